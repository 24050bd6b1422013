"""A tensor read at computed positions along some dimensions and as it stands along the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelwright.tools.codegen.lower.nests.context import Context
from kernelwright.tools.codegen.lower.nests.expr import Expr, Term, address
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.codegen.lower.operators.indexing import position


class Placed:
    """Reads `x` in a space of `shape`, which has x's rank and differs from it along `dims` only.

    Positions must lie inside the tensor: what may lie outside is clamped and chosen by a `where`.
    """

    def __init__(
        self, context: Context, x: View, shape: Sequence[int], dims: Sequence[int]
    ) -> None:
        if any(len(x.dims[dim]) > 1 for dim in dims):
            x = context.copy(x)
        self._context, self._x = context, x
        still = tuple(() if at in dims else dim for at, dim in enumerate(x.dims))
        fixed = View(x.buffer, x.dtype, x.offset, still, None)
        self.space = context.space([fixed], shape)

    def size(self, dim: int) -> int:
        """The tensor's own size along a dimension."""
        return self._x.shape[dim]

    def at(self, dim: int) -> Expr:
        """Where the space is along a dimension."""
        return position(self._context, self.space, dim)

    def clamped(self, dim: int, place: Expr) -> Expr:
        """The nearest position inside the tensor."""
        ops = self._context.ops
        return ops("minimum", ops("maximum", place, 0), self.size(dim) - 1)

    def read(self, places: Mapping[int, Expr]) -> Expr:
        """The element at these positions."""
        (fixed,) = self.space.addresses
        terms = list(fixed.terms)
        for dim, place in places.items():
            terms += [Term(place, atom.step, atom.size) for atom in self._x.dims[dim]]
        return self._context.read(address(fixed.buffer, fixed.dtype, fixed.offset, terms))
