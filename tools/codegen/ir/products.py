"""Products that are rounded by themselves, although the compiler could fuse them into a difference.

In `a * b - c * d` the compiler rounds one product and takes the other exactly. Where the two are
nearly equal, the rounding of that one is all that is left: it has the same sign wherever the
factors are alike, and a sum over many elements adds it up. Rounded both, equal products cancel to
zero, as they do operator by operator (a divergence of two nearly equal distributions).
"""

from collections.abc import Mapping

from kernelwright.tools.codegen.ir import Loop, Stmt

_PRODUCTS = frozenset({"mul", "square"})


def rounded_alone(loop: Loop) -> frozenset[str]:
    """The products of which a difference has one on either side."""
    known = {stmt.name: stmt for stmt in loop.body}
    found: set[str] = set()
    for stmt in loop.body:
        if stmt.op == "sub" and stmt.dtype.is_floating:
            left, right = (_products(name, known) for name in stmt.args)
            if left and right:
                found |= left | right
    return frozenset(found)


def _products(name: str, known: Mapping[str, Stmt]) -> set[str]:
    """The products that a value is, or is chosen or negated from."""
    stmt = known.get(name)
    if stmt is None:
        return set()
    if stmt.op in _PRODUCTS:
        return {name}
    if stmt.op not in ("where", "neg"):
        return set()
    values = stmt.args[1:] if stmt.op == "where" else stmt.args
    return {found for value in values for found in _products(value, known)}
