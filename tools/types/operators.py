"""Small helpers for reading a graph: names of operators, and which nodes feed which."""

from __future__ import annotations

from kernelwright.tools.types import Arg, ListArg, Node, Ref


def words(text: str) -> frozenset[str]:
    """A set of names written as one readable text."""
    return frozenset(text.split())


def base(op: str) -> str:
    """`aten.add.Tensor` -> `add`; the pseudo-operators stay as they are."""
    return op.split(".")[1] if op.startswith("aten.") else op


def refs(node: Node) -> list[str]:
    """Names of the nodes that feed this one, in order."""
    found: list[str] = []
    pending: list[Arg] = [*node.args, *(arg for _, arg in node.kwargs)]
    while pending:
        arg = pending.pop(0)
        if isinstance(arg, Ref):
            found.append(arg.node)
        elif isinstance(arg, ListArg):
            pending[:0] = arg.items
    return found
