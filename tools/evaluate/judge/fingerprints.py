"""Tensors as one number each, so that a change is seen without keeping a copy.

The key is drawn for every use and never lies on the device: a kernel that writes where it should
not cannot make other values with the same number. Not cryptography, which nobody here needs.
"""

import secrets
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tools.evaluate.judge.bits import bits, flat_memory

_CHUNK = 1 << 20
_ODD = 0x5DEECE66D


class Fingerprints:
    """Takes the numbers of some tensors now, and says later which of them changed.

    Args:
        named: the tensors under the names they shall be called by.
    """

    def __init__(self, named: Mapping[str, Tensor]) -> None:
        self._key = secrets.randbits(62) | 1
        self._named = dict(named)
        self._then = self._numbers()

    def changed(self) -> list[str]:
        """Names of the tensors whose memory holds something else than when this was made."""
        now = self._numbers()
        return [name for name, number in self._then.items() if now[name] != number]

    def _numbers(self) -> dict[str, int]:
        # One wait for all of them: a number a tensor, read together.
        sums = [_number(tensor, self._key) for tensor in self._named.values()]
        read = [value.cpu() for value in sums]
        return {name: int(value) for name, value in zip(self._named, read, strict=True)}


def numbered(tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """The tensors by their places in the list."""
    return {str(number): tensor for number, tensor in enumerate(tensors)}


def _number(tensor: Tensor, key: int) -> Tensor:
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    flat = bits(flat_memory(tensor))
    step = _CHUNK * (64 if tensor.is_cuda else 1)
    for start in range(0, flat.numel(), step):
        part = flat[start : start + step].to(torch.int64) + 1
        places = torch.arange(start, start + part.numel(), device=tensor.device)
        # Two multiplications that wrap around mix place, value and key.
        weights = (places * _ODD + key).mul_(key | 1)
        total += part.mul_(weights ^ (weights >> 29)).sum()
    return total
