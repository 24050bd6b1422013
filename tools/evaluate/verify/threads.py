"""Small steps on one thread: dividing them costs more than it brings.

Comparing works through tensors in chunks that fit a cache. On a machine with few cores that also
does other work, every step shared among threads would wait for the one that is not scheduled.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_FEW = 4


@contextmanager
def small_steps() -> Iterator[None]:
    """One thread inside, where there are few anyway; for everything but references and kernels."""
    usual = torch.get_num_threads()
    if usual > _FEW:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)
