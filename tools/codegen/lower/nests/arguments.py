"""Reads a node's arguments by position or name, as plain Python values."""

from __future__ import annotations

from kernelwright.tools.types import Arg, DType, DTypeArg, ListArg, Node, Ref, Scalar

Plain = bool | int | float | str | None


class Arguments:
    """A node's arguments. Missing ones read as the default given."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._named = dict(node.kwargs)

    def get(self, at: int, name: str = "") -> Arg | None:
        """The argument as the graph holds it; None when it is not there."""
        if at < len(self.node.args):
            return self.node.args[at]
        return self._named.get(name)

    def ref(self, at: int, name: str = "") -> Ref | None:
        """A tensor."""
        found = self.get(at, name)
        return found if isinstance(found, Ref) else None

    def tensor(self, at: int, name: str = "") -> Ref:
        """A tensor that must be there."""
        found = self.ref(at, name)
        if found is None:
            raise UnlikeError(f"{self.node.name}: argument {at} is no tensor")
        return found

    def scalar(self, at: int, name: str = "", default: Plain = None) -> Plain:
        """A number, flag or word."""
        found = self.get(at, name)
        if isinstance(found, Scalar):
            return default if found.value is None else found.value
        if found is None:
            return default
        raise UnlikeError(f"{self.node.name}: argument {at} is no plain value")

    def number(self, at: int, name: str = "", default: float = 0.0) -> float:
        """A number."""
        found = self.scalar(at, name, default)
        if isinstance(found, int | float):
            return found
        raise UnlikeError(f"{self.node.name}: argument {at} is no number")

    def integer(self, at: int, name: str = "", default: int = 0) -> int:
        """An integer."""
        return int(self.number(at, name, default))

    def flag(self, at: int, name: str = "", default: bool = False) -> bool:
        """A truth value."""
        return bool(self.scalar(at, name, default))

    def integers(self, at: int, name: str = "") -> tuple[int, ...] | None:
        """A list of integers (one alone counts as a list); None when it is not there."""
        found = self.get(at, name)
        if isinstance(found, ListArg):
            return tuple(_integer(item, self.node) for item in found.items)
        if isinstance(found, Scalar) and isinstance(found.value, int):
            return (int(found.value),)
        return None

    def tensors(self, at: int, name: str = "") -> tuple[Ref | None, ...]:
        """A list of tensors, None where one is left out."""
        found = self.get(at, name)
        if not isinstance(found, ListArg):
            raise UnlikeError(f"{self.node.name}: argument {at} is no list")
        return tuple(item if isinstance(item, Ref) else None for item in found.items)

    def dtype(self, at: int, name: str = "dtype") -> DType | None:
        """An element type."""
        found = self.get(at, name)
        return found.value if isinstance(found, DTypeArg) else None


class UnlikeError(Exception):
    """An argument is not what the translation knows; the node goes to the library."""


def _integer(item: Arg, node: Node) -> int:
    if isinstance(item, Scalar) and isinstance(item.value, int):
        return int(item.value)
    raise UnlikeError(f"{node.name}: a list holds no integer")


def base(op: str) -> str:
    """The operator without namespace and overload: `aten.add.Tensor` is `add`."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op
