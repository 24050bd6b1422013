"""The emitter of a language: it walks the language's registry of families."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir import Emitted, Loop, ProgramNode, Strategy
from kernelwright.tools.codegen.ir.family import Fit, KernelFamily
from kernelwright.tools.codegen.ir.rewriting import GraphRewrite, LoopRewrite
from kernelwright.tools.types import LanguageName

CaseT = TypeVar("CaseT")


class FamilyEmitter(ABC, Generic[CaseT]):
    """Asks every family of a language; what languages say in words of their own is abstract.

    Raises:
        ValueError: When two families know a strategy of the same name.
    """

    def __init__(self, families: Sequence[KernelFamily[CaseT]]) -> None:
        self.families = tuple(families)
        self._by_name: dict[str, KernelFamily[CaseT]] = {}
        for family in self.families:
            taken = sorted({*family.names} & {*self._by_name})
            if taken:
                raise ValueError(f"two families know the strategies {', '.join(taken)}")
            self._by_name |= dict.fromkeys(family.names, family)

    @property
    @abstractmethod
    def language(self) -> LanguageName:
        """What it emits."""

    @abstractmethod
    def header(self) -> str:
        """The prelude's include."""

    @abstractmethod
    def case(self, node: ProgramNode, hardware: Hardware) -> CaseT:
        """The node, to be analysed once for all families."""

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
        case = self.case(node, hardware)
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

    def proposed(self, case: CaseT, families: Sequence[KernelFamily[CaseT]]) -> list[Strategy]:
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
        return self._family(node, strategy).predicted_ms(self.case(node, hardware), strategy)

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
        case = self.case(node, hardware)
        if family.fit(case) is Fit.NO:
            raise ValueError(f"{strategy.name} does not fit {_called(node)}")
        return family.emit(case, _plain_name(strategy), prefix)

    def _family(self, node: ProgramNode, strategy: Strategy) -> KernelFamily[CaseT]:
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
