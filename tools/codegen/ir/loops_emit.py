"""Families for loops, made of the functions that a strategy's file holds anyway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir import Emitted, Loop, ProgramNode, Strategy
from kernelwright.tools.codegen.ir.family import Fit
from kernelwright.tools.codegen.ir.rewriting import GraphRewrite, LoopRewrite
from kernelwright.tools.codegen.ir.roofline import predict_ms


@dataclass(frozen=True)
class NodeCase:
    """One node on one device; languages add what their families decide by."""

    node: ProgramNode
    hardware: Hardware

    @property
    def loop(self) -> Loop:
        """The node, which is a loop.

        Raises:
            TypeError: When it is a call: a family that takes loops was asked about it.
        """
        if not isinstance(self.node, Loop):
            raise TypeError(f"{self.node.name} is no loop")
        return self.node


CaseT = TypeVar("CaseT", bound=NodeCase)


@dataclass(frozen=True)
class LoopFamily(Generic[CaseT]):
    """A family that takes loops alone and is timed by the roofline.

    `takes` is only asked about loops; `propose` and `printed` are the strategies and the source.
    """

    names: tuple[str, ...]
    takes: Callable[[CaseT], Fit]
    propose: Callable[[CaseT], Sequence[Strategy]]
    printed: Callable[[CaseT, str, str], Emitted]
    rewrites: tuple[LoopRewrite, ...] = ()
    graph_rewrites: tuple[GraphRewrite, ...] = ()

    def fit(self, case: CaseT, /) -> Fit:
        """What `takes` says of a loop; no other node fits."""
        return self.takes(case) if isinstance(case.node, Loop) else Fit.NO

    def strategies(self, case: CaseT, /) -> Sequence[Strategy]:
        """What it proposes."""
        return self.propose(case)

    def predicted_ms(self, case: CaseT, strategy: Strategy, /) -> float:
        """The roofline's time."""
        return predict_ms(case.loop, strategy, case.hardware)

    def emit(self, case: CaseT, name: str, prefix: str, /) -> Emitted:
        """The loop's source."""
        return self.printed(case, name, prefix)
