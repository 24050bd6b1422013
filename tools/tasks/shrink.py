"""Small stand-ins for huge random tensors, to learn what their values look like.

While active, torch's factories make tensors of at most so much along each dimension, so that a
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
    """Caps the sizes that factories are asked for.

    Args:
        largest: along each dimension.
        only: cap nothing but first dimensions of this size; by default everything.
    """

    def __init__(self, largest: int = LARGEST, *, only: int | None = None) -> None:
        super().__init__()
        self._largest = largest
        self._only = only

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
            sized = args[:1] if args and isinstance(args[0], (tuple, list)) else args
            args = (*self._capped(sized), *args[len(sized) :])
        elif func in _SIZES_IN_A_LIST:
            args = tuple(self._cap(arg) if isinstance(arg, (tuple, list)) else arg for arg in args)
        if "size" in named:
            named["size"] = self._cap(named["size"])
        return func(*args, **named)

    def _capped(self, sizes: tuple[object, ...]) -> tuple[object, ...]:
        """Sizes as separate arguments, or as one list."""
        if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
            return (self._cap(sizes[0]),)
        capped = self._cap(sizes)
        return tuple(capped) if isinstance(capped, list) else sizes

    def _cap(self, size: object) -> object:
        if isinstance(size, (tuple, list)):
            return [self._least(item, first=i == 0) for i, item in enumerate(size)]
        return self._least(size, first=True)

    def _least(self, size: object, *, first: bool) -> object:
        if not isinstance(size, int) or (self._only is not None and not first):
            return size
        return min(size, self._largest) if self._only in (None, size) else size
