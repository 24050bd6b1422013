"""Which nodes an argument list refers to; shared by everything here that walks a graph."""

from collections.abc import Sequence

from kernelwright.tools.types import Arg, ListArg, Node, Ref


def references(arguments: Sequence[Arg]) -> set[str]:
    """Names of the nodes in the arguments, nested lists included."""
    names: set[str] = set()
    for argument in arguments:
        if isinstance(argument, Ref):
            names.add(argument.node)
        elif isinstance(argument, ListArg):
            names |= references(argument.items)
    return names


def reads(node: Node) -> set[str]:
    """Names of the nodes that a node reads."""
    return references(node.args) | references(tuple(value for _, value in node.kwargs))
