"""What a program asks of a language: the ways to do a node, and the node printed in one of them."""

from typing import Protocol

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir import Emitted, ProgramNode, Strategy
from kernelwright.tools.codegen.ir.rewriting import GraphRewrite
from kernelwright.tools.types import LanguageName

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
