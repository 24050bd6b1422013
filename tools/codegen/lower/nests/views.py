"""Views: how a tensor lies in a buffer. What PyTorch calls a view costs nothing here either.

Every dimension is an ordered tuple of atoms (size, step); a dimension of size 1 has none, a
broadcast one steps by 0. Reshapes regroup atoms and split them where needed; they fail (None)
only where PyTorch would have to copy, and then the caller copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod

from kernelwright.tools.codegen.lower.nests.expressions import Address, Term, address
from kernelwright.tools.types import DType, TensorSpec


@dataclass(frozen=True, slots=True)
class Atom:
    """`size` positions, `step` elements apart."""

    size: int
    step: int


Dim = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as it lies in a buffer.

    `chain` is what the plan writes after the buffer's name to make the same view
    (".permute(1, 0)"); None where the plan's language has no word for it.
    """

    buffer: str
    dtype: DType
    offset: int
    dims: tuple[Dim, ...]
    chain: str | None = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        return tuple(extent(dim) for dim in self.dims)

    @property
    def text(self) -> str | None:
        """The view as an expression of the plan."""
        return None if self.chain is None else self.buffer + self.chain

    def chained(self, word: str | None) -> str | None:
        """The chain with one more method call."""
        return None if self.chain is None or word is None else self.chain + word


def extent(dim: Dim) -> int:
    """Size of a dimension."""
    return prod(atom.size for atom in dim)


def whole(buffer: str, spec: TensorSpec) -> View:
    """A tensor that is all of its buffer."""
    strides = spec.strides or contiguous_strides(spec.shape)
    dims = (_dim(size, step) for size, step in zip(spec.shape, strides, strict=True))
    return View(buffer, spec.dtype, 0, tuple(dims))


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    return tuple(prod(shape[at + 1 :]) for at in range(len(shape)))


def _dim(size: int, step: int) -> Dim:
    return () if size == 1 else (Atom(size, step),)


def words(values: Iterable[int]) -> str:
    """A tuple as the plan writes it."""
    items = [str(value) for value in values]
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def permute(view: View, order: Sequence[int]) -> View:
    """Dimensions in another order."""
    rank = len(view.dims)
    order = [at % rank for at in order]
    chain = (
        view.chained(f".permute({words(order)})") if list(order) != [*range(rank)] else view.chain
    )
    return replace(view, dims=tuple(view.dims[at] for at in order), chain=chain)


def channels_last(rank: int) -> tuple[int, ...]:
    """The order of dimensions in which channels, the second, come last."""
    return (0, *range(2, rank), 1)


def channels_first(rank: int) -> tuple[int, ...]:
    """The order that puts channels, the last, second again."""
    return (0, rank - 1, *range(1, rank - 1))


def expand(view: View, shape: Sequence[int]) -> View:
    """Size-1 and missing leading dimensions repeated."""
    missing = len(shape) - len(view.dims)
    dims: list[Dim] = []
    for at, size in enumerate(shape):
        dim = view.dims[at - missing] if at >= missing else ()
        dims.append((Atom(size, 0),) if not dim and size not in (1, -1) else dim)
    result = tuple(dims)
    sizes = [extent(dim) for dim in result]
    chain = view.chained(f".expand({words(sizes)})") if sizes != list(view.shape) else view.chain
    return replace(view, dims=result, chain=chain)


def unsqueeze(view: View, at: int) -> View:
    """A new dimension of size 1."""
    at %= len(view.dims) + 1
    dims = (*view.dims[:at], (), *view.dims[at:])
    return replace(view, dims=dims, chain=view.chained(f".unsqueeze({at})"))


def reshape(view: View, shape: Sequence[int]) -> View | None:
    """Another shape of the same elements in the same order; None where that takes a copy."""
    if tuple(shape) == view.shape:
        return view
    atoms = coalesced([atom for dim in view.dims for atom in dim])
    dims: list[Dim] = []
    for size in shape:
        taken = _take(atoms, size)
        if taken is None:
            return None
        dims.append(tuple(coalesced(taken)))
    return replace(view, dims=tuple(dims), chain=view.chained(f".reshape({words(shape)})"))


def _take(atoms: list[Atom], size: int) -> list[Atom] | None:
    """Removes leading atoms of `size` positions, splitting the last if it must."""
    taken: list[Atom] = []
    while size > 1:
        if not atoms:
            return None
        first = atoms.pop(0)
        if first.size > size:
            if first.size % size:
                return None
            rest = first.size // size
            atoms.insert(0, Atom(rest, first.step))
            first = Atom(size, first.step * rest)
        elif size % first.size:
            return None
        taken.append(first)
        size //= first.size
    return taken


def coalesced(atoms: Sequence[Atom]) -> list[Atom]:
    """Neighbours that move as one, made one."""
    result: list[Atom] = []
    for atom in atoms:
        if result and result[-1].step == atom.step * atom.size:
            atom = Atom(result.pop().size * atom.size, atom.step)
        result.append(atom)
    return result


def narrow(view: View, dim: int, start: int, length: int, step: int = 1) -> View | None:
    """Some positions of one dimension; None where the dimension is no single stride."""
    dim %= len(view.dims)
    if start == 0 and step == 1 and length == extent(view.dims[dim]):
        return view
    if len(view.dims[dim]) != 1:
        return None
    (atom,) = view.dims[dim]
    dims = list(view.dims)
    dims[dim] = _dim(length, atom.step * step)
    word = f".narrow({dim}, {start}, {length})" if step == 1 else None
    moved = view.offset + atom.step * start
    return replace(view, offset=moved, dims=tuple(dims), chain=view.chained(word))


def select(view: View, dim: int, index: int) -> View | None:
    """One position of a dimension, which goes away."""
    dim %= len(view.dims)
    narrowed = narrow(view, dim, index, 1)
    return None if narrowed is None else squeeze(narrowed, dim)


def squeeze(view: View, dim: int) -> View:
    """Without a dimension of size 1."""
    dims = view.dims[:dim] + view.dims[dim + 1 :]
    return replace(view, dims=dims, chain=view.chained(f".squeeze({dim})"))


def flip(view: View, dims: Sequence[int]) -> View:
    """Dimensions read backwards."""
    wanted = {dim % len(view.dims) for dim in dims if view.dims}
    offset, result = view.offset, list(view.dims)
    for at in wanted:
        offset += sum(atom.step * (atom.size - 1) for atom in view.dims[at])
        result[at] = tuple(Atom(atom.size, -atom.step) for atom in view.dims[at])
    return replace(view, offset=offset, dims=tuple(result), chain=None)


def _stepped(dim: Sequence[Atom]) -> Atom | None:
    """A dimension that is walked by one step; None for one that is not. One element needs none."""
    return dim[0] if len(dim) == 1 else None if dim else Atom(1, 0)


def diagonal(view: View, offset: int, first: int, second: int) -> View | None:
    """The diagonal of two dimensions, as a last dimension."""
    first, second = first % len(view.dims), second % len(view.dims)
    row, column = _stepped(view.dims[first]), _stepped(view.dims[second])
    if row is None or column is None:
        return None
    start = offset * column.step if offset >= 0 else -offset * row.step
    length = min(row.size + min(offset, 0), column.size - max(offset, 0))
    kept = [dim for at, dim in enumerate(view.dims) if at not in (first, second)]
    dims = (*kept, _dim(length, row.step + column.step))
    return replace(view, offset=view.offset + start, dims=dims, chain=None)


def unfold(view: View, dim: int, size: int, step: int) -> View | None:
    """Windows of a dimension, as a last dimension."""
    if not view.dims:  # a number is a window of itself
        return replace(view, dims=(_dim(size, 0),), chain=None)
    dim %= len(view.dims)
    atom = _stepped(view.dims[dim])
    if atom is None:
        return None
    count = (atom.size - size) // step + 1
    dims = list(view.dims)
    dims[dim] = _dim(count, atom.step * step)
    return replace(view, dims=(*dims, _dim(size, atom.step)), chain=None)


def repeat(view: View, times: Sequence[int]) -> View:
    """Whole copies side by side, without making them."""
    missing = len(times) - len(view.dims)
    dims = [
        ((Atom(count, 0),) if count > 1 else ())
        + (view.dims[at - missing] if at >= missing else ())
        for at, count in enumerate(times)
    ]
    return replace(view, dims=tuple(dims), chain=None)


def refine(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...] | None:
    """The coarsest list of sizes that both lists are groupings of; None when there is none."""
    left, right, result = list(first), list(second), []
    while left and right:
        a, b = left.pop(), right.pop()
        low = min(a, b)
        if max(a, b) % low:
            return None
        result.append(low)
        if a != low:
            left.append(a // low)
        if b != low:
            right.append(b // low)
    return None if left or right else tuple(reversed(result))


def at_axes(view: View, axes: Sequence[Sequence[tuple[str, int]]]) -> Address:
    """The address of the view's element at a position of the axes of each of its dimensions.

    `axes` gives (name, size) for each dimension, finer than or equal to the view's atoms.
    """
    terms: list[Term] = []
    for dim, names in zip(view.dims, axes, strict=True):
        left = list(names)
        for atom in reversed(dim):
            step, size = atom.step, atom.size
            while size > 1:
                name, count = left.pop()
                terms.append(Term(name, step, count))
                step, size = step * count, size // count
    return address(view.buffer, view.dtype, view.offset, terms)
