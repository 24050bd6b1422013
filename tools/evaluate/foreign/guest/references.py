"""The reference as PyTorch's baselines, in a guest of its own, timed by the same protocol."""

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from tools.evaluate.clock.stopwatch import graph
from tools.evaluate.foreign.messages import Constant, MakeReference
from tools.tasks import Reference

Forward = Callable[..., object]
_MODES = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}
_MADE: dict[int, nn.Module] = {}


def reference_forward(
    order: MakeReference, device: str, arguments: Sequence[list[Tensor | Constant]]
) -> tuple[nn.Module, Forward]:
    """The reference's module, made once a seed, and the way to call it.

    Raises:
        ValueError: there is no such way.
        Exception: it cannot be made in that way.
    """
    if order.seed not in _MADE:
        _MADE.clear()
        _MADE[order.seed] = Reference.build(order.task, device, seed=order.seed).module
    module = _MADE[order.seed]
    if order.way == "eager":
        return module, module
    if order.way in _MODES:
        return module, torch.compile(module, mode=_MODES[order.way])
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
