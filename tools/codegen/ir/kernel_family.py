"""Families of kernels, and how a language's emitter asks them; nothing of one language.

A family is strategies that are printed alike: rows held by a block, tiles turned in shared memory,
products on tensor cores. It says which nodes of a lowered program it takes, in which ways it can do
them, how long each should take, and prints one. A node is a loop, or a call that a family may take
from the library. `CaseT` is a language's analysis of one node on one device, made once and shared
by all families that look at it. `LoopFamily` is a family for loops, made of the functions that a
strategy's file holds anyway.

An `Emitter` is what a program asks of a language: the ways to do a node, and the node printed in
one of them. `FamilyEmitter` answers by walking the language's registry of families. Tunables stand
in the source that a family prints (`// tune:` lines), the best guess first: they are the tuner's
business, not the planner's.

Operators that every language of C's family writes alike are here too. Not here: logical operators
(a GPU may branch over them, vectors of a CPU may not), division and what the preludes have
functions for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir import Emitted, Loop, ProgramNode, Strategy
from kernelwright.tools.codegen.ir.rewrites import GraphRewrite, LoopRewrite
from kernelwright.tools.codegen.ir.roofline import loop_bytes, predict_ms
from kernelwright.tools.types import LanguageName

CaseT = TypeVar("CaseT", contravariant=True)


class Fit(IntEnum):
    """How well a family fits a node; strategies of what fits better are listed first.

    NO: it cannot print the node. ON_REQUEST: it prints it when asked, and proposes nothing.
    LAST_RESORT: it proposes where no other family does. The others propose always.
    """

    NO = 0
    ON_REQUEST = 1
    LAST_RESORT = 2
    POOR = 3
    FAIR = 4
    GOOD = 5
    BEST = 6


class KernelFamily(Protocol[CaseT]):
    """Strategies that are printed alike, and what they are worth."""

    @property
    def names(self) -> tuple[str, ...]:
        """The strategies that it knows; no two families of a language share a name."""
        ...

    @property
    def rewrites(self) -> tuple[LoopRewrite, ...]:
        """Rewrites of a loop after which it proposes its strategies once more."""
        ...

    @property
    def graph_rewrites(self) -> tuple[GraphRewrite, ...]:
        """Rewrites of the traced graph, before lowering, that make nodes for it."""
        ...

    def fit(self, case: CaseT, /) -> Fit:
        """Whether it takes the node."""
        ...

    def strategies(self, case: CaseT, /) -> Sequence[Strategy]:
        """The ways that it proposes for a node that it takes; none is a fine answer."""
        ...

    def predicted_ms(self, case: CaseT, strategy: Strategy, /) -> float:
        """The time to expect of a strategy, launches included.

        The roofline of `ir.predict` for most; a family on tensor cores counts by their rate.
        """
        ...

    def emit(self, case: CaseT, name: str, prefix: str, /) -> Emitted:
        """Print the node under the strategy of that name.

        Args:
            case: The node, already rewritten where the strategy says so.
            name: One of `names`.
            prefix: What every function and tunable starts with.

        Raises:
            ValueError: When the strategy does not fit the node.
        """
        ...


# What a library call is where no family takes it, and one of its options where one does.
LIBRARY = Strategy(
    name="library",
    title="the library's own call",
    mechanism="the plan calls the operator as the module does",
    reason="libraries are hard to beat at what they are made for",
    category="algebra",
    metric="time of the library's call",
    memory="library",
    compute="library",
    parallel="library",
)


class Emitter(Protocol):
    """Knows which strategies fit a node on a device, and prints the node under one of them."""

    @property
    def language(self) -> LanguageName:
        """What it emits."""
        ...

    @property
    def graph_rewrites(self) -> tuple[GraphRewrite, ...]:
        """Rewrites of graphs that make nodes for its families."""
        ...

    @property
    def multiplies(self) -> bool:
        """Whether it has kernels for products of matrices, which are lowered to loops then."""
        ...

    @property
    def sums_windows(self) -> bool:
        """Whether it has kernels for sums over windows, which are written out otherwise."""
        ...

    def convolves(self, hardware: Hardware) -> bool:
        """Whether it has kernels for convolutions on a device, which are lowered to loops then."""
        ...

    def header(self) -> str:
        """What stands once at the top of a file that holds emitted nodes."""
        ...

    def strategies(self, node: ProgramNode, hardware: Hardware) -> tuple[Strategy, ...]:
        """Every strategy that fits, the most promising first.

        Never empty for a valid loop; empty for a call that stays with the library.
        """
        ...

    def predicted_ms(self, node: ProgramNode, strategy: Strategy, hardware: Hardware) -> float:
        """The time to expect of a node under one of its strategies."""
        ...

    def rewritten(self, node: ProgramNode, strategy: Strategy) -> ProgramNode:
        """The node after the rewrite that the strategy names; itself where it names none."""
        ...

    def emit(
        self, node: ProgramNode, strategy: Strategy, prefix: str, hardware: Hardware
    ) -> Emitted:
        """Device code and plan lines for the node; ValueError when the strategy does not fit.

        A strategy with a `rewrite` is given the node already rewritten.
        """
        ...


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

    @cached_property
    def moved_bytes(self) -> tuple[int, int]:
        """Bytes that the loop must read and write, each element once."""
        return loop_bytes(self.loop)


LoopCaseT = TypeVar("LoopCaseT", bound=NodeCase)


@dataclass(frozen=True)
class LoopFamily(Generic[LoopCaseT]):
    """A family that takes loops alone and is timed by the roofline.

    `takes` is only asked about loops; `propose` and `printed` are the strategies and the source.
    """

    names: tuple[str, ...]
    takes: Callable[[LoopCaseT], Fit]
    propose: Callable[[LoopCaseT], Sequence[Strategy]]
    printed: Callable[[LoopCaseT, str, str], Emitted]
    rewrites: tuple[LoopRewrite, ...] = ()
    graph_rewrites: tuple[GraphRewrite, ...] = ()

    def fit(self, case: LoopCaseT, /) -> Fit:
        """What `takes` says of a loop; no other node fits."""
        is_ours = isinstance(case.node, Loop) and not case.node.is_for_products
        return self.takes(case) if is_ours else Fit.NO

    def strategies(self, case: LoopCaseT, /) -> Sequence[Strategy]:
        """What it proposes."""
        return self.propose(case)

    def predicted_ms(self, case: LoopCaseT, strategy: Strategy, /) -> float:
        """The roofline's time."""
        return predict_ms(case.loop, strategy, case.hardware)

    def emit(self, case: LoopCaseT, name: str, prefix: str, /) -> Emitted:
        """The loop's source."""
        return self.printed(case, name, prefix)


EmitterCaseT = TypeVar("EmitterCaseT", bound=NodeCase)


class FamilyEmitter(ABC, Generic[EmitterCaseT]):
    """Asks every family of a language; what languages say in words of their own is abstract.

    Raises:
        ValueError: When two families know a strategy of the same name.
    """

    def __init__(self, families: Sequence[KernelFamily[EmitterCaseT]]) -> None:
        self.families = tuple(families)
        self._by_name: dict[str, KernelFamily[EmitterCaseT]] = {}
        for family in self.families:
            taken = sorted({*family.names} & {*self._by_name})
            if taken:
                raise ValueError(f"two families know the strategies {', '.join(taken)}")
            self._by_name |= dict.fromkeys(family.names, family)
        self._last: EmitterCaseT | None = None

    @property
    @abstractmethod
    def language(self) -> LanguageName:
        """What it emits."""

    @property
    def multiplies(self) -> bool:
        """Products stay with the library unless a language says otherwise."""
        return False

    @property
    def sums_windows(self) -> bool:
        """Windows are written out unless it says otherwise."""
        return False

    def convolves(self, hardware: Hardware) -> bool:
        """So do convolutions."""
        return False

    @abstractmethod
    def header(self) -> str:
        """The prelude's include."""

    @abstractmethod
    def case(self, node: ProgramNode, hardware: Hardware) -> EmitterCaseT:
        """The node, to be analysed once for all families."""

    def case_of(self, node: ProgramNode, hardware: Hardware) -> EmitterCaseT:
        """The same, analysed once for all questions about it that follow each other."""
        last = self._last
        if last is None or last.node is not node or last.hardware is not hardware:
            last = self._last = self.case(node, hardware)
        return last

    @abstractmethod
    def with_gain(self, gain: str, mechanism: str) -> str:
        """A strategy's mechanism, told together with what a rewrite before it saves."""

    @abstractmethod
    def listed(
        self,
        node: Loop,
        hardware: Hardware,
        plain: list[Strategy],
        after: dict[str, list[Strategy]],
    ) -> list[Strategy]:
        """The strategies of a loop as it is, and after each rewrite, the most promising first."""

    @property
    def graph_rewrites(self) -> tuple[GraphRewrite, ...]:
        """Those of all families."""
        every = (rewrite for family in self.families for rewrite in family.graph_rewrites)
        return tuple(dict.fromkeys(every))

    def strategies(self, node: ProgramNode, hardware: Hardware) -> tuple[Strategy, ...]:
        """Every strategy that fits, the most promising first.

        Raises:
            ValueError: When an axis of a loop is empty.
        """
        case = self.case_of(node, hardware)
        plain = self.proposed(case, self.families)
        if not isinstance(node, Loop):
            return tuple(sorted(plain, key=lambda one: self.predicted_ms(node, one, hardware)))
        after: dict[str, list[Strategy]] = {}
        for rewrite in self._loop_rewrites():
            changed = rewrite.change(node)
            if changed is not None:
                willing = [one for one in self.families if rewrite in one.rewrites]
                found = self.proposed(self.case(changed, hardware), willing)
                said = [self.said(strategy, rewrite) for strategy in found]
                after.setdefault(rewrite.name, []).extend(said)
        return tuple(self.listed(node, hardware, plain, after))

    def said(self, strategy: Strategy, rewrite: LoopRewrite) -> Strategy:
        """A strategy for a loop after a rewrite, said so in its words."""
        return strategy.model_copy(
            update={
                "name": f"{strategy.name}_{rewrite.name}",
                "title": f"{strategy.title}; {rewrite.gain}",
                "mechanism": self.with_gain(rewrite.gain, strategy.mechanism),
                "rewrite": rewrite.name,
            }
        )

    def proposed(
        self, case: EmitterCaseT, families: Sequence[KernelFamily[EmitterCaseT]]
    ) -> list[Strategy]:
        """What families propose: by how well they fit, then in the registry's order."""
        fits = [(family.fit(case), family) for family in families]
        ranked = sorted(fits, key=lambda one: -one[0])
        found = [
            strategy
            for fit, family in ranked
            if fit > Fit.LAST_RESORT
            for strategy in family.strategies(case)
        ]
        last = [family for fit, family in ranked if fit is Fit.LAST_RESORT]
        return found or [strategy for family in last for strategy in family.strategies(case)]

    def predicted_ms(self, node: ProgramNode, strategy: Strategy, hardware: Hardware) -> float:
        """What the strategy's family expects.

        Raises:
            ValueError: When no family knows it.
        """
        return self._family(node, strategy).predicted_ms(self.case_of(node, hardware), strategy)

    def rewritten(self, node: ProgramNode, strategy: Strategy) -> ProgramNode:
        """The node after the rewrite that the strategy names.

        Raises:
            ValueError: When no family has such a rewrite, or it does not apply.
        """
        if not strategy.rewrite or not isinstance(node, Loop):
            return node
        for rewrite in self._loop_rewrites():
            changed = rewrite.change(node) if rewrite.name == strategy.rewrite else None
            if changed is not None:
                return changed
        raise ValueError(f"rewrite {strategy.rewrite!r} does not apply to loop {node.name}")

    def emit(
        self, node: ProgramNode, strategy: Strategy, prefix: str, hardware: Hardware
    ) -> Emitted:
        """The node under a strategy.

        Raises:
            ValueError: When the strategy does not fit the node.
        """
        family = self._family(node, strategy)
        case = self.case_of(node, hardware)
        if family.fit(case) is Fit.NO:
            raise ValueError(f"{strategy.name} does not fit {_called(node)}")
        return family.emit(case, _plain_name(strategy), prefix)

    def _family(self, node: ProgramNode, strategy: Strategy) -> KernelFamily[EmitterCaseT]:
        family = self._by_name.get(_plain_name(strategy))
        if family is None:
            language = self.language.upper()
            raise ValueError(f"{strategy.name} is no strategy of {language}'s for {_called(node)}")
        return family

    def _loop_rewrites(self) -> tuple[LoopRewrite, ...]:
        every = (rewrite for family in self.families for rewrite in family.rewrites)
        return tuple(dict.fromkeys(every))


def _plain_name(strategy: Strategy) -> str:
    """The strategy's name in its family, whatever was rewritten before."""
    return strategy.name.removesuffix(f"_{strategy.rewrite}")


def _called(node: ProgramNode) -> str:
    return f"{'loop' if isinstance(node, Loop) else 'call'} {node.name}"


ARITHMETIC: Mapping[str, str] = {"add": "+", "sub": "-", "mul": "*"}
COMPARE: Mapping[str, str] = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
BITWISE: Mapping[str, str] = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
