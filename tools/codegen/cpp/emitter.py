"""The C++ emitter: what its families have in common, and their registry.

Whoever adds a family adds a line here. Strategies are listed by how well their family fits a loop,
and where that is equal in this order.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.cpp.split import SPLIT_FAMILY
from kernelwright.tools.codegen.cpp.strategies import Case, walks_from_memory
from kernelwright.tools.codegen.cpp.walks import (
    COLUMN_FAMILY,
    COLUMN_SPLIT_FAMILY,
    FLAT_FAMILY,
    ROW_FAMILY,
)
from kernelwright.tools.codegen.ir import Emitted, Loop, ProgramNode, Strategy
from kernelwright.tools.codegen.ir.kernel_family import FamilyEmitter, KernelFamily
from kernelwright.tools.types import LanguageName

FAMILIES: tuple[KernelFamily[Case], ...] = (
    FLAT_FAMILY,
    ROW_FAMILY,
    SPLIT_FAMILY,
    COLUMN_FAMILY,
    COLUMN_SPLIT_FAMILY,
)


class CppEmitter(FamilyEmitter[Case]):
    """Emits C++ over the prelude `kernelwright.hpp`."""

    def __init__(self, families: Sequence[KernelFamily[Case]] = FAMILIES) -> None:
        super().__init__(families)

    @property
    def language(self) -> LanguageName:
        """C++."""
        return "cpp"

    def header(self) -> str:
        """The prelude's include."""
        return '#include "kernelwright.hpp"\n'

    def case(self, node: ProgramNode, hardware: Hardware) -> Case:
        """The node on the CPU."""
        return Case(node, hardware)

    def proposed(self, case: Case, families: Sequence[KernelFamily[Case]]) -> list[Strategy]:
        """What families propose, as far as it can be printed: printing is what finds out."""
        found = super().proposed(case, families)
        return [strategy for strategy in found if self._is_printable(case, strategy)]

    def emit(
        self, node: ProgramNode, strategy: Strategy, prefix: str, hardware: Hardware
    ) -> Emitted:
        """The kernel and the plan line that launches it; ValueError when they do not fit."""
        emitted = super().emit(node, strategy, prefix, hardware)
        return emitted.model_copy(update={"source": f"// {strategy.title}\n{emitted.source}"})

    def with_gain(self, gain: str, mechanism: str) -> str:
        """The gain first."""
        return f"{gain}; {mechanism}"

    def listed(
        self,
        node: Loop,
        hardware: Hardware,
        plain: list[Strategy],
        after: dict[str, list[Strategy]],
    ) -> list[Strategy]:
        """Those after a rewrite first where the walk that it saves is worth it."""
        found = plain
        for name, better in after.items():
            # A walk out of cache is cheap; one out of memory is not.
            worth = walks_from_memory(node, hardware) > 1 or name == "moments"
            found = [*better, *found] if worth else [*found, *better]
        return found

    def _is_printable(self, case: Case, strategy: Strategy) -> bool:
        try:
            self.emit(case.node, strategy, "probe", case.hardware)
        except ValueError:
            return False
        return True
