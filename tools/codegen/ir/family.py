"""The seam that every family of kernels stands behind.

A family is strategies that are printed alike: rows held by a block, tiles turned in shared memory,
products on tensor cores. It says which nodes of a lowered program it takes, in which ways it can do
them, how long each should take, and prints one. A node is a loop, or a call that a family may take
from the library. `CaseT` is a language's analysis of one node on one device, made once and shared
by all families that look at it.

Tunables stand in the source that a family prints (`// tune:` lines), the best guess first: they are
the tuner's business, not the planner's.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.rewriting import GraphRewrite, LoopRewrite

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
