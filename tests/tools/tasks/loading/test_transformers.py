"""Small models of transformers with random weights: keyword arguments in, a ModelOutput out."""

from collections.abc import Callable
from importlib.util import find_spec

import pytest
import torch

from kernelwright.tools.tasks.inputs.draws import draw
from kernelwright.tools.tasks.reference import Reference
from kernelwright.tools.types import Task

# Only asked for: every process that collects the tests would import it for seconds.
pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="no transformers here")

BERT = """
from transformers import BertConfig, BertModel

class Model(BertModel):
    def __init__(self):
        super().__init__(BertConfig(
            vocab_size=128, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=64, max_position_embeddings=32))
        self.eval()
"""
LLAMA = """
from transformers import LlamaConfig, LlamaForCausalLM

class Model(LlamaForCausalLM):
    def __init__(self):
        super().__init__(LlamaConfig(
            vocab_size=128, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, intermediate_size=64, max_position_embeddings=32,
            use_cache=False))
        self.eval()
"""
INPUTS = """
def get_inputs():
    return {"input_ids": torch.randint(0, 128, (2, 16)),
            "attention_mask": torch.ones(2, 16, dtype=torch.int64)}
"""


@pytest.mark.parametrize(
    ("source", "kind", "keys"),
    [
        (
            BERT,
            "BaseModelOutputWithPoolingAndCrossAttentions",
            ["last_hidden_state", "pooler_output"],
        ),
        pytest.param(LLAMA, "CausalLMOutputWithPast", ["logits"], marks=pytest.mark.exhaustive),
    ],
    ids=["bert", "llama"],
)
def test_a_model_is_called_by_name_and_returns_what_it_always_did(
    traced: Callable[..., Task], source: str, kind: str, keys: list[str]
) -> None:
    task = traced(source + INPUTS)
    assert task.call is not None
    assert task.call.keywords == ("input_ids", "attention_mask")
    assert task.returns is not None
    assert task.returns.of == f"transformers.modeling_outputs:{kind}"
    present = zip(task.returns.keys, task.returns.items, strict=True)
    assert [key for key, item in present if item.kind == "leaf"] == keys
    reference = Reference.build(task, "cpu")
    outputs = reference.forward(draw(task, "task", 1, "cpu"))
    assert [tuple(item.shape) for item in outputs] == [spec.shape for spec in task.outputs]
    assert all(bool(torch.isfinite(item).all()) for item in outputs)
