"""What becomes of a trained model: unpacked from a GGUF file, merged, and served by others.

A GGUF file loads as a model that refuses to be saved: it calls itself quantized, though its weights
are plain by then. `unpack` clears what says so, ties the embedding to the output where the file
holds it twice, and names the token that ends a turn.
"""

from __future__ import annotations

import shlex
import struct
from importlib.util import find_spec
from pathlib import Path

from kernelwright.tools.learning.training.policy import (
    Policy,
    UnusableModelError,
    end_of_turn,
    need_extra,
)
from kernelwright.tools.types import EnvironmentLacksError

_QUANTIZED = ("quantization_method", "_is_quantized")
# Relative difference of two embeddings that a quantizer rounded apart.
_ROUNDED_APART = 0.05


def unpack(file: Path, folder: Path) -> Policy:
    """A GGUF file as a model's folder, in bfloat16.

    Raises:
        EnvironmentLacksError: The extra is missing.
        UnusableModelError: There is no such file, or it is no model that transformers reads.
    """
    need_extra()
    if find_spec("gguf") is None:
        raise EnvironmentLacksError(f"{file.name} needs gguf: pip install 'kernelwright[learn]'")
    if not file.is_file():
        raise UnusableModelError(f"there is no file {file}")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    given = {"gguf_file": file.name, "local_files_only": True}
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **given)
        model = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.bfloat16, **given)
    except (OSError, ValueError, KeyError, IndexError, struct.error) as error:
        raise UnusableModelError(f"{file} is no model that transformers reads: {error}") from error
    model.hf_quantizer, model.is_quantized = None, False
    for name in _QUANTIZED:
        if name in vars(model):
            delattr(model, name)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    inward, outward = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    if inward.shape == outward.shape:
        given_in = inward.detach().float()
        apart = (given_in - outward.detach().float()).norm() / given_in.norm()
        if float(apart) < _ROUNDED_APART:
            model.config.tie_word_embeddings = True
            model.tie_weights()
    end = end_of_turn(tokenizer)
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
    model.generation_config.eos_token_id = end
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Policy(model, tokenizer, folder.name)


def ways_to_serve(folder: Path) -> tuple[tuple[str, str], ...]:
    """Who serves a merged model, and by which command."""
    at = shlex.quote(str(folder.absolute()))
    return (
        ("transformers", f"transformers serve {at} --host 127.0.0.1 --port 8123"),
        ("vLLM", f"vllm serve {at} --host 127.0.0.1 --port 8123"),
        (
            "llama.cpp",
            f"python convert_hf_to_gguf.py {at} --outtype q8_0 --outfile {at}.gguf && "
            f"llama-server -m {at}.gguf --host 127.0.0.1 --port 8123",
        ),
    )
