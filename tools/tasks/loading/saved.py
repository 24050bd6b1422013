"""Tensors that lie in files: inputs that a person saved, and weights of a model that was built.

Both are read as plain tensors only (`weights_only`), so no code can hide in them, and kept with the
task: small ones in it, others where they lie, known by their hash. Only called inside workers.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from kernelwright.tools.tasks.loading.packing import call_packing
from kernelwright.tools.tasks.sources.carried import (
    STATE,
    bytes_as_they_are,
    content_of,
    file_as_it_is,
)
from kernelwright.tools.tasks.sources.find import is_saved
from kernelwright.tools.types import ProjectFile, RefusedError, refuse
from kernelwright.tools.types.packing import CallPacking

LARGEST_BATCH_BYTES = 1 << 30
LARGEST_STATE_BYTES = 2 << 30
# Of a floating input's spread: what other draws of saved inputs differ by.
_NOISE = 0.1


def saved_batch(inputs: Sequence[str]) -> ProjectFile | None:
    """The file of inputs that the person named; None where it is none.

    Raises:
        RefusedError: It is not there, or too large.
    """
    if not is_saved(inputs):
        return None
    file = Path(inputs[0])
    try:
        if file.stat().st_size > LARGEST_BATCH_BYTES:
            raise refuse(f"{file.name} is too large for inputs: {file.stat().st_size} bytes.")
        return file_as_it_is(file.absolute(), file.name)
    except OSError as error:
        raise refuse(f"The inputs {file} cannot be read: {error.strerror}.") from None


def drawn_like(batch: ProjectFile, seed: int) -> tuple[list[object], CallPacking]:
    """The saved inputs, flat; under a seed other than 0 in another order along the first dimension.

    Then floating ones differ by some noise too, so that every draw is new. Integers and booleans
    keep to what was saved, as nobody can guess what they mean.

    Raises:
        RefusedError: The file is gone, is not plain tensors, or holds no call's arguments.
    """
    positional, named = _arguments(batch)
    leaves, call = call_packing(positional, named)
    generator = torch.Generator("cpu").manual_seed(seed)
    orders: dict[int, torch.Tensor] = {}
    return [_varied(leaf, seed, generator, orders) for leaf in leaves], call


def _varied(
    leaf: object, seed: int, generator: torch.Generator, orders: dict[int, torch.Tensor]
) -> object:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    value = leaf.detach()
    if seed == 0 or value.dim() == 0 or value.numel() == 0:
        return value.clone()
    rows = value.shape[0]
    if rows not in orders:
        orders[rows] = torch.randperm(rows, generator=generator, device="cpu")
    value = value[orders[rows]]
    if value.is_floating_point():
        spread = value.float().std(correction=0)
        noise = torch.randn(value.shape, generator=generator, device="cpu") * spread
        value = value + (_NOISE * noise).to(value.dtype)
    return value


def _arguments(batch: ProjectFile) -> tuple[Sequence[object], dict[str, object]]:
    """Positional and named arguments, whichever way they were saved."""
    found = _loaded(batch)
    if isinstance(found, dict) and found and set(found) <= {"args", "kwargs"}:
        args, kwargs = found.get("args", ()), found.get("kwargs", {})
        if isinstance(args, (list, tuple)) and isinstance(kwargs, dict):
            return args, kwargs
    if isinstance(found, dict) and all(isinstance(key, str) for key in found):
        return (), found
    if isinstance(found, (list, tuple)):
        return found, {}
    if isinstance(found, torch.Tensor):
        return (found,), {}
    raise refuse(
        f"{batch.path} holds a {type(found).__name__}; saved inputs are a tensor, a list of "
        "arguments, or a dictionary of named ones."
    )


@lru_cache(maxsize=4)
def _loaded(batch: ProjectFile) -> object:
    try:
        # What is remembered must be real, also where a caller only wants shapes.
        with warnings.catch_warnings(), unset_fake_temporarily():
            warnings.simplefilter("ignore")
            content = io.BytesIO(content_of(batch))
            return torch.load(content, weights_only=True, map_location="cpu")
    except RefusedError:
        raise  # it is gone, or another by now
    except Exception as error:  # a broken file raises nearly every class there is
        kind = type(error).__name__
        raise refuse(
            f"{batch.path} cannot be loaded as plain tensors ({kind}); save tensors, numbers, "
            "lists and dictionaries with torch.save."
        ) from error


def saved_state(module: nn.Module) -> ProjectFile | None:
    """The weights of a model, in a file in this process's folder where they are not small.

    None for a model without any.

    Raises:
        RefusedError: They are too large to be kept.
    """
    state = {name: value.detach().cpu() for name, value in module.state_dict().items()}
    tensors = [value for value in state.values() if isinstance(value, torch.Tensor)]
    size = sum(value.numel() * value.element_size() for value in tensors)
    if size > LARGEST_STATE_BYTES:
        raise refuse(
            f"The model that was built has {size / 2**30:.1f} GiB of weights; at most "
            f"{LARGEST_STATE_BYTES >> 30} can be kept with a run, so build a part of it."
        )
    if not state:
        return None
    saved = io.BytesIO()
    torch.save(state, saved)
    return bytes_as_they_are(saved.getvalue(), STATE, Path.cwd() / STATE)


def load_state(module: nn.Module, state: ProjectFile) -> None:
    """Give the model the weights that it had when it was read.

    Raises:
        RefusedError: They are gone, or the model is built otherwise now.
    """
    try:
        module.load_state_dict(_loaded(state))  # type: ignore[arg-type]
    except RuntimeError as error:
        first = str(error).splitlines()[-1].strip()
        raise refuse(f"The model is not built as it was when it was read: {first}") from None
