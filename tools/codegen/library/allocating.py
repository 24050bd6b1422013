"""Puts every allocation of a loop directly before the first of its lines that takes it.

A device that has nothing to do waits for the host until the first launch, and not after it: what
later launches alone need is allocated while the device works. Launches keep their order, and so
does whatever is no allocation. Lines of different loops are not mixed: a loop's allocations stand
with the loop already, so they come behind the launches of the loops before it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_MAKERS = {"empty": False, "zeros": True}


@dataclass(frozen=True)
class _Allocation:
    """A line that makes a tensor of known size, and nothing else."""

    text: str
    name: str
    sized_by: frozenset[str]
    filled: bool


def allocated_late(lines: Iterable[str]) -> Iterator[str]:
    """The plan lines of one loop, allocations as late as the others let them be.

    Among those that one line needs, fills come first: the device fills while the host allocates
    what is left. One that nothing needs stays, at the end.
    """
    waiting: list[_Allocation] = []
    for line in lines:
        node = ast.parse(line).body[0]
        names = _names(node)
        new = _allocation(line, node)
        # A name that is bound anew, or decides a size, is no longer free to wait.
        needed = [one for one in waiting if one.name in names or one.sized_by & _bound(node)]
        yield from _fills_first(needed)
        waiting = [one for one in waiting if one not in needed]
        if new is None:
            yield line
        else:
            waiting.append(new)
    yield from _fills_first(waiting)


def _fills_first(allocations: list[_Allocation]) -> list[str]:
    return [one.text for one in sorted(allocations, key=lambda one: not one.filled)]


def _allocation(line: str, node: ast.stmt) -> _Allocation | None:
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=maker)) as call
        ) if maker in _MAKERS:
            return _Allocation(line, name, _names(call), _MAKERS[maker])
    return None


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def _bound(node: ast.AST) -> frozenset[str]:
    stored = (p for p in ast.walk(node) if isinstance(p, ast.Name))
    return frozenset(part.id for part in stored if isinstance(part.ctx, ast.Store))
