"""Lets the module, its reference and the reference in float64 draw the same random numbers.

The generators are set to one state before every call that is compared. PyTorch draws other numbers
in float64, so a call in float64 draws in the types that the call before it drew in, and widens.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

STATE = 20261127
_DRAWS = {"normal", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like"}
_drawn_in: list[torch.dtype] = []


class _Draws(TorchDispatchMode):
    """Notes the types of all draws, or draws in those that were noted and widens."""

    def __init__(self, noted: Sequence[torch.dtype] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._noted = None if noted is None else list(noted)
        self.types: list[torch.dtype] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operator, a draw in the type of the draw that it stands for."""
        named = dict(kwargs or {})
        if func.overloadpacket.__name__ not in _DRAWS:
            return func(*args, **named)
        if self._noted:
            named["dtype"] = self._noted.pop(0)
        made = func(*args, **named)
        self.types.append(made.dtype)
        return made.double() if self._noted is not None and made.is_floating_point() else made


def fixed(call: Callable[[], object]) -> object:
    """A call from the one state."""
    torch.manual_seed(STATE)
    return call()


def noted(call: Callable[[], object]) -> object:
    """The same, and remembers in which types it drew; a module runs its reference under this."""
    torch.manual_seed(STATE)
    with _Draws() as draws:
        result = call()
    _drawn_in[:] = draws.types
    return result


def widened(call: Callable[[], object]) -> object:
    """A call in float64, which draws what the last one of `noted` drew."""
    torch.manual_seed(STATE)
    with _Draws(_drawn_in):
        return call()
