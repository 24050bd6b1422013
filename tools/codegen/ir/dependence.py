"""What the values of a loop depend on: axes, walks over the row, and other statements."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from kernelwright.tools.codegen.ir.loops import Access, Loop, Stmt, results


def indices(access: Access, axes: Container[str]) -> tuple[str, ...]:
    """The statements that an indirect access is addressed by."""
    return tuple(one.by for one in access.strides if one.by not in axes and one.step)


def operands(stmt: Stmt, axes: Container[str]) -> tuple[str, ...]:
    """The values that a statement reads; `axes` names those of its loop."""
    names = [] if stmt.op == "index" else list(stmt.args)
    if stmt.access is not None:
        names += indices(stmt.access, axes)
    return tuple(dict.fromkeys(names))


def axis_names(loop: Loop) -> frozenset[str]:
    """The names of a loop's axes."""
    return frozenset(axis.name for axis in (*loop.outer, *loop.inner))


def varies_along(loop: Loop) -> dict[str, frozenset[str]]:
    """For every value, the axes along which it varies."""
    axes, inner = axis_names(loop), {axis.name for axis in loop.inner}
    known: dict[str, frozenset[str]] = {}
    for stmt in loop.body:
        varies = set(stmt.args) if stmt.op == "index" else set()
        if stmt.access is not None:
            varies |= {one.by for one in stmt.access.strides if one.by in axes and one.step}
        for name in operands(stmt, axes):
            varies |= known[name]
        if stmt.op == "reduce":
            varies -= inner
        if stmt.op == "scan":
            varies |= inner
        known |= dict.fromkeys(results(stmt), frozenset(varies))
    return known


def walks_before(loop: Loop) -> dict[str, int]:
    """For every value, how many walks over the row must be complete before it can be computed.

    A row is walked in order: a running value is known in the very walk that makes it, so it adds
    none (unlike `Loop.passes`, which is for rows that many threads share).
    """
    axes = axis_names(loop)
    known: dict[str, int] = {}
    for stmt in loop.body:
        before = max((known[name] for name in operands(stmt, axes)), default=0)
        known |= dict.fromkeys(results(stmt), before + (stmt.op == "reduce"))
    return known


def statements_behind(
    names: Iterable[str],
    statements: Mapping[str, Stmt],
    reads: Callable[[Stmt], Sequence[str]],
    *,
    taken: Callable[[Stmt], bool] = lambda stmt: True,
    opened: Callable[[Stmt], bool] = lambda stmt: True,
) -> set[str]:
    """The names of the statements that some values are computed from, their own among them.

    Args:
        names: The values.
        statements: The statement behind every value.
        reads: What a statement reads.
        taken: Which statements count at all.
        opened: Which are looked behind.
    """
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        stmt = statements[waiting.pop()]
        if stmt.name not in found and taken(stmt):
            found.add(stmt.name)
            waiting += reads(stmt) if opened(stmt) else ()
    return found


def without_unread(loop: Loop) -> Loop:
    """The loop without statements that nothing uses any more."""
    wanted = {store.value for store in loop.stores}
    wanted |= {stride.by for store in loop.stores for stride in store.access.strides}
    kept: list[Stmt] = []
    for stmt in reversed(loop.body):
        if wanted & set(results(stmt)):
            kept.append(stmt)
            wanted |= set(stmt.args)
            wanted |= {s.by for s in stmt.access.strides} if stmt.access is not None else set()
    return loop.model_copy(update={"body": tuple(reversed(kept))})
