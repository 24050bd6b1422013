"""What families of attention share: which calls they take, and tiles in the order of their time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.algebra.attention import WRITTEN_ATTENTION
from kernelwright.tools.codegen.algebra.scored_attention import SCORED_ATTENTION
from kernelwright.tools.codegen.cuda.attention.reading import (
    HALVES,
    Attention,
    NotTakenError,
    attention_of,
)
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.ir import Emitted, LibraryCall, Strategy
from kernelwright.tools.codegen.ir.kernel_family import Fit
from kernelwright.tools.codegen.ir.rewrites import GraphRewrite, LoopRewrite
from kernelwright.tools.codegen.ir.roofline import roofline_ms
from kernelwright.tools.types import DType


class AttentionFamily(ABC):
    """Takes a library's attention in some types, in one way.

    Attributes:
        strategy: The way.
        names: Its name alone.
        types: Of queries, keys and values.
        kind: What those types are called.
    """

    strategy: Strategy
    names: tuple[str, ...]
    types: tuple[DType, ...] = HALVES
    kind: str = "of one half type"
    rewrites: tuple[LoopRewrite, ...] = ()
    graph_rewrites: tuple[GraphRewrite, ...] = (WRITTEN_ATTENTION, SCORED_ATTENTION)

    @abstractmethod
    def fit_on(self, hardware: Hardware, /) -> Fit:
        """How well it fits a device."""

    def refuses(self, one: Attention, /) -> str:
        """Why it does not take what other families may; "" where it does."""
        return ""

    @abstractmethod
    def tile_ms(self, case: Case, one: Attention, /) -> float:
        """The time of the best tiles."""

    @abstractmethod
    def printed(self, case: Case, one: Attention, prefix: str, /) -> Emitted:
        """Kernel and plan."""

    def fit(self, case: Case, /) -> Fit:
        """Whether it is attention that it understands, on a device that it knows."""
        found = self.fit_on(case.hardware)
        if found is Fit.NO or not isinstance(case.node, LibraryCall):
            return Fit.NO
        try:
            self._understood(case)
        except NotTakenError:
            return Fit.NO
        return found

    def strategies(self, case: Case, /) -> Sequence[Strategy]:
        """The one way."""
        return [self.strategy]

    def predicted_ms(self, case: Case, strategy: Strategy, /) -> float:
        """That of the tiles, never less than the bytes take."""
        one, moved = self._understood(case), _call(case).line.cost_bytes
        rate = one.flops / (self.tile_ms(case, one) * 1e9)
        return roofline_ms(moved, one.flops, strategy, case.hardware, tflops=rate)

    def emit(self, case: Case, name: str, prefix: str, /) -> Emitted:
        """Kernel and plan.

        Raises:
            ValueError: With the reason, where the call stays with the library.
        """
        try:
            one = self._understood(case)
        except NotTakenError as why:
            raise ValueError(f"{case.node.name}: {why}") from why
        return self.printed(case, one, prefix)

    def _understood(self, case: Case) -> Attention:
        one = attention_of(_call(case))
        if one.dtype not in self.types:
            raise NotTakenError(f"queries, keys and values are not all {self.kind}")
        why = self.refuses(one)
        if why:
            raise NotTakenError(why)
        return one


def _call(case: Case) -> LibraryCall:
    if not isinstance(case.node, LibraryCall):
        raise ValueError(f"{case.node.name} is no call of the library")
    return case.node


PANEL = 64
# Plain operations of a multiprocessor in a cycle.
LANES = 128
# Heads whose tiles are taken together: on an H200 one was never behind, and up to 1.5 times as fast
# as those whose keys and values stay cached.
HEADS_TOGETHER = (1, 4, 16)


def panels(width: int) -> int:
    """Panels of 64 columns that a width takes."""
    return -(-width // PANEL)


def stage_bytes(one: Attention, keys: int) -> int:
    """Shared memory of a step's keys and values."""
    return keys * (panels(one.width) + panels(one.value_width)) * PANEL * 2


def stages_beside(one: Attention, rows: int, keys: int, room_bytes: int) -> int:
    """Steps that fit into shared memory beside a tile of so many queries."""
    return (room_bytes - rows * panels(one.width) * PANEL * 2) // stage_bytes(one, keys)


def steps_of(one: Attention, rows: int, keys: int, number: int) -> int:
    """Steps of the tile of queries of that number."""
    last = min(one.keys, (number + 1) * rows) if one.is_causal else one.keys
    first = 0 if one.window is None else min(max(0, number * rows - one.window), last - 1)
    return -(-last // keys) - first // keys
