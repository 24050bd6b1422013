"""When two results are the same: raw bits and fingerprints.

As raw bits NaN equals itself and -0 differs from 0. A fingerprint is one number for a tensor, so
that a change is seen without keeping a copy. Its key is drawn for every use and never lies on the
device: a kernel that writes where it should not cannot make other values with the same number. Not
cryptography, which nobody here needs.
"""

import secrets
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def extent(tensor: Tensor) -> int:
    """Elements from the first to the last that the tensor can reach, gaps included."""
    if tensor.numel() == 0:
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps)


def flat_memory(tensor: Tensor) -> Tensor:
    """The memory under the tensor as one flat view, gaps and repetitions as they lie."""
    return tensor.as_strided((extent(tensor),), (1,), tensor.storage_offset())


def bits(tensor: Tensor) -> Tensor:
    """The elements in order as integers of the same width; a view where the layout allows it."""
    return tensor.detach().reshape(-1).view(_INTEGER[tensor.element_size()])


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether every element has the same bits."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(bits(left), bits(right.to(left.device)))


def first_difference(left: Tensor, right: Tensor) -> tuple[int, ...]:
    """Index of the first element whose bits differ; the tensors are known to differ."""
    flat = int((bits(left) != bits(right.to(left.device))).to(torch.uint8).argmax())
    return unravel(flat, tuple(left.shape))


def unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of an element from its position in memory order."""
    index: list[int] = []
    for size in reversed(shape):
        flat, rest = divmod(flat, size)
        index.append(rest)
    return tuple(reversed(index))


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
