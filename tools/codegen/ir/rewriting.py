"""What a rewrite is, of a loop and of a traced graph; both hold for every input.

The rewrites of loops that are built in stand in `ir.rewrites`, those of graphs in `algebra`; a
family of kernels may bring its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.tools.codegen.ir.loops import Loop
from kernelwright.tools.types import Graph, Node


@dataclass(frozen=True)
class LoopRewrite:
    """One rewrite of a loop: `change` answers None where it does not apply.

    `gain` says in a language's own words what it saves.
    """

    name: str
    change: Callable[[Loop], Loop | None]
    gain: str


@dataclass(frozen=True)
class GraphRewrite:
    """One rewrite of a graph: `change` rewrites one node of it, or answers None."""

    name: str
    title: str
    proof: str
    conditions: str
    change: Callable[[Graph, Node], Graph | None]
