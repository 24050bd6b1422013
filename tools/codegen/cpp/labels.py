"""Identifiers of what a sweep declares: accumulators, carries, buffers, staged outputs."""

from __future__ import annotations

from kernelwright.tools.codegen.cpp.analysis import Analysis
from kernelwright.tools.codegen.cpp.spelling import Names
from kernelwright.tools.codegen.ir import Stmt, Store


class Labels:
    """Names for one sweep; buffers in `kept` are shared by all sweeps of a row."""

    def __init__(self, facts: Analysis, names: Names, kept: frozenset[str], tag: str) -> None:
        self.facts, self.names, self.kept, self.tag = facts, names, kept, tag

    def accumulator(self, stmt: Stmt) -> str:
        """Of a reduction."""
        return self.names("accumulator", stmt.name, "_acc")

    def carry(self, stmt: Stmt) -> str:
        """Of what a scan hands from one chunk to the next."""
        return self.names("carry" + self.tag, stmt.name, "_carry")

    def buffer(self, name: str) -> str:
        """Of the buffer that keeps a value for its row or chunk."""
        if name in self.kept:
            return self.names("kept", name, "_kept")
        return self.names("chunk" + self.tag, name, "_chunk")

    def at(self, name: str) -> str:
        """The element of a kept value at the vector loop's position."""
        return f"{self.buffer(name)}[{'first + j' if name in self.kept else 'j'}]"

    def stage(self, store: Store) -> str:
        """Of the buffer that a streamed store goes through."""
        return self.names("stage" + self.tag, self._target(store), "_stage")

    def out(self, store: Store) -> str:
        """Of the pointer that a store that may be streamed writes through."""
        return self.names("out" + self.tag, self._target(store), "_out")

    def _target(self, store: Store) -> str:
        """A buffer may be stored to twice, at different places."""
        same = [s for s in self.facts.loop.stores if s.access.buffer == store.access.buffer]
        number = same.index(store)
        return store.access.buffer if number == 0 else f"{store.access.buffer}_{number}"
