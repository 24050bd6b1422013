"""Small stand-ins for huge random tensors, to learn what their values look like.

While active, torch's factories make tensors of at most `LARGEST` along each dimension, so that a
`get_inputs` of many gigabytes runs in no time and its ranges can be read off. Code that depends
on the exact sizes may raise; then there are no statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch.overrides import TorchFunctionMode

LARGEST = 64

_SIZES_FIRST = (torch.rand, torch.randn, torch.zeros, torch.ones, torch.empty)
_SIZES_IN_A_LIST = (torch.randint, torch.full, torch.normal)


class ShrunkenFactories(TorchFunctionMode):
    """Caps the sizes that factories are asked for."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Call `func` with capped sizes when it is a factory, else as it is."""
        named = dict(kwargs or {})
        if func in _SIZES_FIRST:
            args = tuple(_cap(arg) for arg in args)
        elif func in _SIZES_IN_A_LIST:
            args = tuple(_cap(arg) if isinstance(arg, (tuple, list)) else arg for arg in args)
        if "size" in named:
            named["size"] = _cap(named["size"])
        return func(*args, **named)


def _cap(size: object) -> object:
    if isinstance(size, (tuple, list)):
        return [_cap(item) for item in size]
    return min(size, LARGEST) if isinstance(size, int) else size
