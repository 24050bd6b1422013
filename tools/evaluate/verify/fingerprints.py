"""Tensors as one number each, so that a change is seen without keeping a copy.

The key is drawn for every use and never lies on the device: a kernel that writes where it should
not cannot make other values with the same number. Not cryptography, which nobody here needs.
"""

import secrets
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from kernelwright.tools.evaluate.verify.bits import bits, flat_memory

# Elements under one set of weights, and how many times as many are worked on in one step: weights
# stay in a cache then, and a step still keeps a GPU busy.
_TILE, _TILES = 1 << 17, 1
_TILE_CUDA, _TILES_CUDA = 1 << 20, 32
_ODD = 0x5DEECE66D
_KEY_BITS = 62


class Fingerprints:
    """Takes the numbers of some tensors now, and says later which of them changed.

    Args:
        named: the tensors under the names they shall be called by.
    """

    def __init__(self, named: Mapping[str, Tensor]) -> None:
        self._keys = (secrets.randbits(_KEY_BITS), secrets.randbits(_KEY_BITS))
        self._named = dict(named)
        self._then = self._numbers()

    def changed(self) -> list[str]:
        """Names of the tensors whose memory holds something else than when this was made."""
        now = self._numbers()
        return [name for name, number in self._then.items() if now[name] != number]

    def _numbers(self) -> dict[str, int]:
        # One wait for all of them: a number a tensor, read together.
        sums = [_number(tensor, *self._keys) for tensor in self._named.values()]
        read = [value.cpu() for value in sums]
        return {name: int(value) for name, value in zip(self._named, read, strict=True)}


def numbered(tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """The tensors by their places in the list."""
    return {str(number): tensor for number, tensor in enumerate(tensors)}


def _number(tensor: Tensor, key: int, tile_key: int) -> Tensor:
    """The sum of all elements times the weights of their places in a tile and of their tiles.

    Weights are odd, and no element has more than 32 bits: so none of its bits is lost in a sum
    that keeps the lowest 64.
    """
    elements = _narrow(flat_memory(tensor))
    cuda = tensor.is_cuda
    tile = max(1, min(elements.numel(), _TILE_CUDA if cuda else _TILE))
    step = tile * (_TILES_CUDA if cuda else _TILES)
    whole = elements.numel() // tile
    weights = _weights(tile, key, tensor.device)
    tiles = _weights(whole + 1, tile_key, tensor.device)
    sums = torch.zeros(whole + 1, dtype=torch.int64, device=tensor.device)
    for start in range(0, whole * tile, step):
        part = elements[start : min(start + step, whole * tile)].view(-1, tile)
        first = start // tile
        sums[first : first + len(part)] = (part * weights).sum(dim=1)
    rest = elements[whole * tile :]
    sums[whole] = (rest * weights[: rest.numel()]).sum()
    return (sums * tiles).sum()


def _weights(count: int, key: int, device: torch.device) -> Tensor:
    """Odd numbers that follow from the key."""
    # Two multiplications that wrap around mix place and key.
    mixed = (torch.arange(count, device=device) * _ODD + key).mul_(key | 1)
    return (mixed ^ (mixed >> 29)) | 1


def _narrow(flat: Tensor) -> Tensor:
    """The memory as integers of at most 32 bits."""
    return bits(flat).view(torch.int32) if flat.element_size() > 4 else bits(flat)
