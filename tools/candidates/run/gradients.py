"""Calls without autograd's records, at next to no cost."""

from collections.abc import Callable, Iterable

import torch


def without_gradients(function: Callable[..., object], arguments: Iterable[object]) -> object:
    """`function(*arguments)` as under `torch.no_grad`.

    That context costs the host more than a microsecond, much of it before the call begins: in a
    timed call that is time in which a device waits. Whatever is timed is called by this function,
    candidate and baseline alike.
    """
    if not torch.is_grad_enabled():
        return function(*arguments)
    torch._C._set_grad_enabled(False)
    try:
        return function(*arguments)
    finally:
        torch._C._set_grad_enabled(True)
