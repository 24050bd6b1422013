"""What addresses and nests move, by their own positions: no cache and no sector is in it."""

from __future__ import annotations

from math import prod

from kernelwright.tools.codegen.lower.nests.context import Context
from kernelwright.tools.codegen.lower.nests.expr import Address
from kernelwright.tools.codegen.lower.nests.nest import Nest, where_of


def fastest(where: Address) -> str | None:
    """The axis along which an address moves least; None where it stays."""
    axes = [(abs(term.step), term.by) for term in where.terms if isinstance(term.by, str)]
    return min(axes)[1] if axes else None


def footprint(where: Address) -> int:
    """Bytes at distinct positions of an address."""
    return prod(term.size for term in where.terms) * where.dtype.itemsize_bytes


def nest_read_bytes(context: Context, nest: Nest) -> int:
    """Bytes that a nest must read, each element counted once."""
    read: dict[str, int] = {}
    for load in nest.loads:
        where = where_of(load)
        buffer = context.buffers[where.buffer]
        size = prod(buffer.shape) * buffer.dtype.itemsize_bytes
        read[where.buffer] = min(size, read.get(where.buffer, 0) + footprint(where))
    return sum(read.values())
