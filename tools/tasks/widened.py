"""A forward in float64 although it names other types, as `x.float()` does.

Used on the float64 copy of a reference, never on what is compared with it. Exports carry this file,
so that their own check compares with the same truth.
"""

from collections.abc import Mapping, Sequence

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_WIDER = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}


class Widened(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A type that a forward names, as in `x.float()`, is float64 while this is active.

    What follows would meet weights of another type otherwise, and a forward that rounds on the way
    would tell as the truth what is rounded: how far it is off by that is part of its own error,
    which others are measured by. Types of 8 bits stay, and bits that are read as another type.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run the operator with wider types."""
        kwargs = kwargs or {}
        if func is torch.ops.aten.view.dtype or func._schema.is_mutable:
            return func(*args, **kwargs)
        args, kwargs = pytree.tree_map(_widened, (args, dict(kwargs)))
        result = func(*args, **kwargs)
        # What Python's numbers were made into before anybody could say otherwise.
        lifted = func in (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)
        return _widened(result) if lifted else result


def _widened(value: object) -> object:
    if isinstance(value, torch.dtype):
        return _WIDER.get(value, value)
    if isinstance(value, torch.Tensor) and value.dtype in _WIDER:
        return value.to(_WIDER[value.dtype])
    return value
