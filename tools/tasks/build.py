"""Makes modules and inputs out of a loaded file, in KernelBench's order of draws.

The seed is set before `get_init_inputs`, again before the constructor, and again before
`get_inputs`, so that weights and inputs do not depend on each other. The module stays in the mode
its constructor left it in (training, for KernelBench). Only called inside workers.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from types import ModuleType
from typing import cast

import torch
from torch import nn

from kernelwright.tools.tasks.load import Entry
from kernelwright.tools.tasks.overrides import draw_override, parse_override
from kernelwright.tools.tasks.refusals import RefusedError, refuse, user_code
from kernelwright.tools.tasks.seeds import seed_everything


class FunctionModule(nn.Module):
    """A plain function as a module, so that everything after sees one kind of reference."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: object) -> object:
        """The function itself."""
        return self.function(*args)  # type: ignore[operator]


def build_module(file: ModuleType, entry: Entry, seed: int) -> nn.Module:
    """The reference with weights drawn under `seed`, on the default device."""
    path = str(file.__file__)
    seed_everything(seed)
    if entry.kind == "function":
        return FunctionModule(entry.target)
    if isinstance(entry.target, nn.Module):
        return adopt_plain_tensors(copy.deepcopy(entry.target))
    arguments = _init_inputs(file, path)
    seed_everything(seed)
    try:
        return _construct(entry, arguments, path)
    except RefusedError as refused:
        # The file's constructor arguments may be meant for another of its classes.
        if entry.kind == "kernelbench" or not isinstance(refused.__cause__, TypeError):
            raise
    seed_everything(seed)
    return _construct(entry, (), path)


def _construct(entry: Entry, arguments: Sequence[object], path: str) -> nn.Module:
    with user_code(f"Constructing {entry.name}", path), torch.no_grad():
        module = cast("type[nn.Module]", entry.target)(*arguments)
    return adopt_plain_tensors(module)


def _init_inputs(file: ModuleType, path: str) -> Sequence[object]:
    getter = getattr(file, "get_init_inputs", None)
    if getter is None:
        return ()
    with user_code("get_init_inputs()", path):
        arguments = getter()
    if not isinstance(arguments, (list, tuple)):
        kind = type(arguments).__name__
        raise refuse(f"get_init_inputs() must return a list, but it returned a {kind}.")
    return arguments


def build_inputs(file: ModuleType, override: Sequence[str], seed: int) -> list[object]:
    """The task's own inputs under `seed`: what the person named, else `get_inputs()`."""
    seed_everything(seed)
    if override:
        return [draw_override(parse_override(text)) for text in override]
    path = str(file.__file__)
    getter = getattr(file, "get_inputs", None)
    if not callable(getter):
        raise refuse("The file has no get_inputs() function, and no inputs were named.")
    with user_code("get_inputs()", path), torch.no_grad():
        inputs = getter()
    if not isinstance(inputs, (list, tuple)):
        kind = type(inputs).__name__
        raise refuse(f"get_inputs() must return a list, but it returned a {kind}.")
    return [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]


def adopt_plain_tensors(module: nn.Module) -> nn.Module:
    """Turn tensors kept as plain attributes into non-persistent buffers of the same name.

    Then they have a state-dict name, move with the module and can be read by a plan.
    """
    for part in module.modules():
        plain = [n for n, v in vars(part).items() if isinstance(v, torch.Tensor)]
        for name in plain:
            value = vars(part).pop(name)
            part.register_buffer(name, value.detach(), persistent=False)
    return module
