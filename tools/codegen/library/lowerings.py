"""One task lowered in the ways that forms are made of, each at most once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kernelwright.tools.codegen.algebra import REWRITES, rewritten
from kernelwright.tools.codegen.ir import Program
from kernelwright.tools.codegen.ir.rewriting import GraphRewrite
from kernelwright.tools.codegen.ir.roofline import loop_bytes
from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.types import Graph

# Percent of the bytes that a form in one pass may move, to be worth a look.
_ENOUGH_LESS = 95


@dataclass(frozen=True)
class Lowerings:
    """What forms ask about a task: its graph as written and rewritten, each lowered."""

    graph: Graph
    parameters: tuple[str, ...]
    more: Sequence[GraphRewrite] = ()

    @cached_property
    def written(self) -> Program:
        """The operators as the module wrote them."""
        return lower(self.graph, self.parameters)

    @cached_property
    def _rewriting(self) -> tuple[Graph, tuple[GraphRewrite, ...]]:
        return rewritten(self.graph, (*REWRITES, *self.more))

    @property
    def changed(self) -> Graph:
        """The graph after every rewrite that applies; the same one where none does."""
        return self._rewriting[0]

    @property
    def rewrites(self) -> tuple[GraphRewrite, ...]:
        """The rewrites that applied."""
        return self._rewriting[1]

    @cached_property
    def plain(self) -> Program:
        """The rewritten graph, lowered as usual."""
        return lower(self.changed, self.parameters) if self.rewrites else self.written

    @cached_property
    def joined(self) -> Program:
        """It in one pass under windows, where there are windows over what loops make."""
        if not slides(self.plain):
            return self.plain
        return lower(self.changed, self.parameters, one_pass=True)

    @property
    def moves_less(self) -> bool:
        """Whether one pass moves enough bytes less."""
        return 100 * _moved(self.joined) < _ENOUGH_LESS * _moved(self.plain)

    @property
    def after(self) -> str:
        """The words for what was rewritten before anything else."""
        titles = " and ".join(rewrite.title for rewrite in self.rewrites)
        return f" after {titles}" if titles else ""


def slides(program: Program) -> bool:
    """Whether windows (a tensor read at several places) need what another loop of ours makes."""
    made = {store.access.buffer for loop in program.loops for store in loop.stores}
    for loop in program.loops:
        read = [stmt.access.buffer for stmt in loop.body if stmt.access is not None]
        if not loop.inner and len(set(read)) < len(read) and made & set(read):
            return True
    return False


def _moved(program: Program) -> int:
    return sum(sum(loop_bytes(loop)) for loop in program.loops)
