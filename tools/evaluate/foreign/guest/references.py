"""The reference as PyTorch's baselines, in a guest of its own, timed by the same protocol."""

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from kernelwright.tools.evaluate.foreign.messages import Constant, MakeReference
from kernelwright.tools.evaluate.timing.stopwatch import graph
from kernelwright.tools.tasks import Reference

Forward = Callable[..., object]
_MODES = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}
_MADE: list[nn.Module] = []
_COMPILED: dict[str, Forward] = {}


def reference_forward(
    order: MakeReference, device: str, arguments: Sequence[list[Tensor | Constant]]
) -> tuple[nn.Module, Forward]:
    """The reference's module, and the way to call it.

    A guest serves one task only: the module is made once, under the first seed, and so is what a
    compiler made of it.

    Raises:
        ValueError: there is no such way.
        Exception: it cannot be made in that way.
    """
    if not _MADE:
        _MADE.append(Reference.build(order.task, device, seed=order.seed).module)
    module = _MADE[0]
    if order.way == "eager":
        return module, module
    if order.way in _MODES:
        if order.way not in _COMPILED:
            _COMPILED[order.way] = torch.compile(module, mode=_MODES[order.way])
        return module, _COMPILED[order.way]
    if order.way == "graph":
        return module, Replays(module, arguments)
    raise ValueError(f"unknown baseline {order.way!r}")


class Replays:
    """Eager as CUDA graphs, one for each set of arguments that stands ready."""

    def __init__(self, module: nn.Module, arguments: Sequence[list[Tensor | Constant]]) -> None:
        self._module, self._arguments = module, arguments

    def __call__(self, *arguments: Tensor | Constant) -> object:
        """Replay what was captured on these very tensors."""
        return self._replays[_key(arguments)]()

    @cached_property
    def _replays(self) -> dict[tuple[int, ...], Callable[[], object]]:
        def captured(given: list[Tensor | Constant]) -> Callable[[], object]:
            with torch.no_grad():
                return graph(lambda: self._module(*given))

        return {_key(given): captured(given) for given in self._arguments}


def _key(arguments: Sequence[Tensor | Constant]) -> tuple[int, ...]:
    return tuple(id(value) for value in arguments if isinstance(value, Tensor))
