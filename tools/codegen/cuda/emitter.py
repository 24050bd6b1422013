"""The CUDA emitter: what its families have in common, and their registry.

Whoever adds a family adds a line here. Strategies are listed by their cost, and where that is equal
in this order.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.cuda.attention.split import SPLIT_ATTENTION_FAMILY
from kernelwright.tools.codegen.cuda.attention.warpgroups import WGMMA_ATTENTION_FAMILY
from kernelwright.tools.codegen.cuda.attention.warps import MMA_ATTENTION_FAMILY
from kernelwright.tools.codegen.cuda.contractions.convolutions.convolution import CONVOLUTION_FAMILY
from kernelwright.tools.codegen.cuda.contractions.family import (
    ContractionFamily,
    Settings,
    is_tiled,
)
from kernelwright.tools.codegen.cuda.contractions.float32.split import SPLIT_MMA_FAMILY
from kernelwright.tools.codegen.cuda.contractions.float32.streamed import STREAMED_FAMILY
from kernelwright.tools.codegen.cuda.contractions.float32.streamed_both import STREAMED_BOTH_FAMILY
from kernelwright.tools.codegen.cuda.contractions.float32.wgmma import SPLIT_WGMMA_FAMILY
from kernelwright.tools.codegen.cuda.contractions.mapped.family import MAP_FAMILY
from kernelwright.tools.codegen.cuda.contractions.mma_tiles import MMA_FAMILY
from kernelwright.tools.codegen.cuda.contractions.simt import SIMT_FAMILY
from kernelwright.tools.codegen.cuda.families.pointwise import POINTWISE_FAMILY
from kernelwright.tools.codegen.cuda.families.reductions.columns import COLUMN_FAMILY
from kernelwright.tools.codegen.cuda.families.reductions.partly import PARTLY_FAMILY
from kernelwright.tools.codegen.cuda.families.reductions.ring import RING_FAMILY
from kernelwright.tools.codegen.cuda.families.reductions.rows import ROW_FAMILY, SERIAL_FAMILY
from kernelwright.tools.codegen.cuda.families.reductions.scans import SCAN_FAMILY
from kernelwright.tools.codegen.cuda.families.reductions.split import SPLIT_FAMILY
from kernelwright.tools.codegen.cuda.families.reductions.waves import WAVE_FAMILY
from kernelwright.tools.codegen.cuda.families.tiles.rows_turned import TURNED_ROW_FAMILY
from kernelwright.tools.codegen.cuda.families.tiles.staged import LINE_FAMILY
from kernelwright.tools.codegen.cuda.families.tiles.strips import STRIP_FAMILY
from kernelwright.tools.codegen.cuda.families.tiles.transposed import TRANSPOSED_FAMILY
from kernelwright.tools.codegen.cuda.families.windows.window_sums import WINDOW_SUM_FAMILY, fills
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.recurrences.family import RECURRENT_FAMILY
from kernelwright.tools.codegen.ir import Emitted, Loop, ProgramNode, Strategy
from kernelwright.tools.codegen.ir.kernel_family import FamilyEmitter, KernelFamily, LoopFamily
from kernelwright.tools.types import DType, LanguageName

FAMILIES: tuple[KernelFamily[Case], ...] = (
    WGMMA_ATTENTION_FAMILY,
    MMA_ATTENTION_FAMILY,
    SPLIT_ATTENTION_FAMILY,
    CONVOLUTION_FAMILY,
    MAP_FAMILY,
    MMA_FAMILY,
    SPLIT_WGMMA_FAMILY,
    STREAMED_FAMILY,
    STREAMED_BOTH_FAMILY,
    SPLIT_MMA_FAMILY,
    POINTWISE_FAMILY,
    STRIP_FAMILY,
    WINDOW_SUM_FAMILY,
    LINE_FAMILY,
    TRANSPOSED_FAMILY,
    SCAN_FAMILY,
    COLUMN_FAMILY,
    ROW_FAMILY,
    TURNED_ROW_FAMILY,
    PARTLY_FAMILY,
    RING_FAMILY,
    WAVE_FAMILY,
    SPLIT_FAMILY,
    SERIAL_FAMILY,
    SIMT_FAMILY,
    RECURRENT_FAMILY,
)


_HEADER = '#include "kernelwright.cuh"\n'


class CudaEmitter(FamilyEmitter[Case]):
    """Prints loops as CUDA C++ over the prelude `kernelwright.cuh`."""

    def __init__(self, families: Sequence[KernelFamily[Case]] = FAMILIES) -> None:
        super().__init__(families)

    @property
    def language(self) -> LanguageName:
        """CUDA."""
        return "cuda"

    def header(self) -> str:
        """The prelude's include."""
        return _HEADER

    def case(self, node: ProgramNode, hardware: Hardware) -> Case:
        """The node on the device."""
        return Case(node, hardware)

    @property
    def multiplies(self) -> bool:
        """Whether one of its families is made for products."""
        return any(isinstance(one, ContractionFamily) for one in self.families)

    @property
    def sums_windows(self) -> bool:
        """Whether its families hold the one for them."""
        return WINDOW_SUM_FAMILY in self.families

    def convolves(self, hardware: Hardware) -> bool:
        """Whether one of its families has a layout for windows on that device."""
        multiplying = (one for one in self.families if isinstance(one, ContractionFamily))
        return any(hardware.architecture in one.slides_on for one in multiplying)

    def proposed(self, case: Case, families: Sequence[KernelFamily[Case]]) -> list[Strategy]:
        """What families propose; for products of matrices, what those with tiles do.

        The roofline times the others as if every operand were read once, which only tiles bring
        about. So it does of sums over windows that neighbours share, where there are outputs for
        all threads.
        """
        if WINDOW_SUM_FAMILY in families and WINDOW_SUM_FAMILY.fit(case) and fills(case):
            return super().proposed(case, [WINDOW_SUM_FAMILY])
        if _is_tiled(case):
            tiled = [one for one in families if not isinstance(one, LoopFamily)]
            found = super().proposed(case, tiled)
            eights = case.contraction and case.contraction.precision is DType.FLOAT8_E4M3FN
            if found or eights:
                return found
        return super().proposed(case, families)

    def emit(
        self, node: ProgramNode, strategy: Strategy, prefix: str, hardware: Hardware
    ) -> Emitted:
        """The node under a strategy.

        Raises:
            ValueError: When the strategy does not fit the node.
        """
        # A name that ends in "_" would make "__", which belongs to the compiler.
        return super().emit(node, strategy, prefix.rstrip("_"), hardware)

    def first_settings(self, node: Loop, strategy: Strategy, hardware: Hardware) -> Settings:
        """Settings of a product's strategy that are worth a look before others, the best first."""
        family = self._family(node, strategy)
        if not isinstance(family, ContractionFamily):
            return ()
        return family.first_settings(self.case_of(node, hardware), strategy)

    def with_gain(self, gain: str, mechanism: str) -> str:
        """The gain first."""
        return f"{gain[0].upper()}{gain[1:]}. {mechanism}"

    def listed(
        self,
        node: Loop,
        hardware: Hardware,
        plain: list[Strategy],
        after: dict[str, list[Strategy]],
    ) -> list[Strategy]:
        """All of them, by cost; products by their time."""
        if _is_tiled(self.case_of(node, hardware)):
            return sorted(plain, key=lambda one: self.predicted_ms(node, one, hardware))
        return sorted([*plain, *(one for found in after.values() for one in found)], key=_cost)


def _is_tiled(case: Case) -> bool:
    return isinstance(case.node, Loop) and is_tiled(case.contraction)


def _cost(strategy: Strategy) -> float:
    """Traffic over the share of bandwidth: reads count as half of what a pass moves."""
    return (1 + strategy.bytes_read_factor) / strategy.efficiency
