"""Makes every timed call meet cold caches, the same way for baseline and candidate.

Inputs rotate among several sets, so that a call does not find the last one's data. Where all the
sets together do not exceed twice the last-level cache, a buffer of twice its size is written
through outside the timed span as well; on a GPU that is always done. On a CPU the harness then
waits a moment, so that the threads which wrote the buffer stop spinning for more work.
Not covered: set-associativity, and lines that a kernel asked the L2 to persist (a plan cannot).
"""

import time
from math import ceil

import torch

_FLUSH_CACHES = 2


def input_sets(call_bytes: int, cache_bytes: int, most: int) -> int:
    """How many sets of inputs rotate: enough to pass through the cache, but no more than fit.

    Args:
        call_bytes: what one call reads and writes.
        cache_bytes: the last-level cache.
        most: never more than this, but always one, and never a multiple of 4.
    """
    wanted = ceil(_FLUSH_CACHES * cache_bytes / max(call_bytes, 1)) + 1
    count = max(1, min(most, wanted))
    # In turns of A B B A, with 4 or 8 sets each would keep to its own half of them for good, and
    # what differs between the sets' memory would be taken for a difference between A and B.
    return count - 1 if count % 4 == 0 else count


class Flush:
    """Writes through twice the last-level cache, when it has to."""

    def __init__(self, device: str, cache_bytes: int, *, needed: bool, settle_s: float) -> None:
        self._on_cpu = not device.startswith("cuda")
        self._settle_s = settle_s
        self._buffer = (
            torch.zeros(_FLUSH_CACHES * cache_bytes // 4, dtype=torch.int32, device=device)
            if needed or not self._on_cpu
            else None
        )

    @property
    def flushes(self) -> bool:
        """Whether a buffer is written, rather than the inputs' rotation being enough."""
        return self._buffer is not None

    def __call__(self) -> None:
        """Evict what the last call left behind, then let the runtime's threads go to sleep."""
        if self._buffer is not None:
            self._buffer.add_(1)
        if self._on_cpu:
            time.sleep(self._settle_s)
