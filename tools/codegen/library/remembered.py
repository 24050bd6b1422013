"""An emitter that is asked about nodes that are alike once.

A network of twelve layers has twelve loops of each kind in each of its forms, and what fits one of
them, and how long it would take, is so for all.
"""

from __future__ import annotations

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir import Emitted, Loop, ProgramNode, Strategy
from kernelwright.tools.codegen.ir.kernel_family import Emitter
from kernelwright.tools.codegen.ir.rewrites import GraphRewrite
from kernelwright.tools.codegen.library.alike import shape_of
from kernelwright.tools.types import LanguageName

# What is done once takes no time of a call; ratios are made of it.
_NOTHING_MS = 1e-6


class RememberingEmitter:
    """Another emitter's answers for one device, each found once for all nodes of a shape."""

    def __init__(self, emitter: Emitter, hardware: Hardware) -> None:
        self._emitter = emitter
        self._hardware = hardware
        self._kinds: dict[ProgramNode, int] = {}
        # By the node's identity, which is kept with it: a loop's hash is a walk through all of it.
        self._kind_of: dict[int, tuple[ProgramNode, int]] = {}
        self._strategies: dict[int, tuple[Strategy, ...]] = {}
        self._predicted_ms: dict[tuple[int, Strategy], float] = {}
        self.language: LanguageName = emitter.language
        self.graph_rewrites: tuple[GraphRewrite, ...] = emitter.graph_rewrites
        self.multiplies: bool = emitter.multiplies
        self.sums_windows: bool = emitter.sums_windows

    def convolves(self, hardware: Hardware) -> bool:
        """The other's answer."""
        return self._emitter.convolves(hardware)

    def header(self) -> str:
        """The other's."""
        return self._emitter.header()

    def strategies(self, node: ProgramNode, hardware: Hardware) -> tuple[Strategy, ...]:
        """Every strategy that fits, the most promising first."""
        if hardware is not self._hardware:
            return self._emitter.strategies(node, hardware)
        kind = self._kind(node)
        if kind not in self._strategies:
            self._strategies[kind] = self._emitter.strategies(node, hardware)
        return self._strategies[kind]

    def predicted_ms(self, node: ProgramNode, strategy: Strategy, hardware: Hardware) -> float:
        """The time to expect of a node under one of its strategies; none where it is done once."""
        if isinstance(node, Loop) and node.once:
            return _NOTHING_MS
        if hardware is not self._hardware:
            return self._emitter.predicted_ms(node, strategy, hardware)
        key = self._kind(node), strategy
        if key not in self._predicted_ms:
            self._predicted_ms[key] = self._emitter.predicted_ms(node, strategy, hardware)
        return self._predicted_ms[key]

    def rewritten(self, node: ProgramNode, strategy: Strategy) -> ProgramNode:
        """The other's."""
        return self._emitter.rewritten(node, strategy)

    def emit(
        self, node: ProgramNode, strategy: Strategy, prefix: str, hardware: Hardware
    ) -> Emitted:
        """The other's."""
        return self._emitter.emit(node, strategy, prefix, hardware)

    def _kind(self, node: ProgramNode) -> int:
        if id(node) not in self._kind_of:
            kind = self._kinds.setdefault(shape_of(node), len(self._kinds))
            self._kind_of[id(node)] = node, kind
        return self._kind_of[id(node)][1]
