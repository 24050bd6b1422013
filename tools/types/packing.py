"""How the tensors of a call, or of its result, are packed: nested containers as a value.

The judge and every kernel see flat tensors in one order; whoever calls the module sees what it
always gave and got: keyword arguments, dictionaries, named tuples, dataclasses. A packing prints
itself as the Python expression that makes the whole of its parts, which costs nothing but the
containers themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from kernelwright.tools.types.value import Value

PackingKind = Literal["leaf", "none", "constant", "tuple", "list", "dict", "fields"]


class Packing(Value):
    """A leaf, an absent value, a constant beside tensors that are returned, or a container of such.

    `fields` is a named tuple or a dataclass, made by its class with keywords. `of` is that class as
    `module:Name`, or `:Name` where the user's own file defines it; a dict's is "" unless it is an
    OrderedDict, a tuple's unless it is a torch.Size. `keys` name the items of a dict and of fields.
    `text` is a constant as Python.
    """

    kind: PackingKind = "leaf"
    of: str = ""
    keys: tuple[str, ...] = ()
    items: tuple[Packing, ...] = ()
    text: str = ""

    def printed(self, leaves: Iterator[str], class_name: Callable[[str], str]) -> str:
        """The expression that makes it.

        Args:
            leaves: The leaves' expressions, in order.
            class_name: The expression for a class, given as in `of`.
        """
        if self.kind == "leaf":
            return next(leaves)
        if self.kind == "none":
            return "None"
        if self.kind == "constant":
            return self.text
        parts = [item.printed(leaves, class_name) for item in self.items]
        named = list(zip(self.keys, parts, strict=False))
        if self.kind == "tuple":
            listed = f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
            return f"{class_name(self.of)}({listed})" if self.of else listed
        if self.kind == "list":
            return f"[{', '.join(parts)}]"
        if self.kind == "dict":
            listed = f"{{{', '.join(f'{key!r}: {part}' for key, part in named)}}}"
            return f"{class_name(self.of)}({listed})" if self.of else listed
        return f"{class_name(self.of)}({', '.join(f'{key}={part}' for key, part in named)})"

    def taken_apart(
        self, whole: str, class_name: Callable[[str], str]
    ) -> tuple[list[str], list[str]]:
        """Conditions under which `whole`, an expression, is packed so, and its leaves' expressions.

        Conditions are to be tried in order.
        """
        if self.kind == "leaf":
            return [], [whole]
        if self.kind == "none":
            return [f"{whole} is None"], []
        if self.kind == "constant":
            return [f"{whole} == {self.text}"], []
        conditions, reached = self._opened(whole, class_name)
        leaves: list[str] = []
        for item, place in zip(self.items, reached, strict=True):
            inner, found = item.taken_apart(place, class_name)
            conditions += inner
            leaves += found
        return conditions, leaves

    def _opened(self, whole: str, class_name: Callable[[str], str]) -> tuple[list[str], list[str]]:
        if self.kind in ("tuple", "list"):
            kind = class_name(self.of) if self.of else self.kind
            kind = f"type({whole}) is {kind} and len({whole}) == {len(self.items)}"
            return [kind], [f"{whole}[{place}]" for place in range(len(self.items))]
        if self.kind == "dict":
            kind = f"type({whole}) is {class_name(self.of) if self.of else 'dict'}"
            keys = f"list({whole}) == {list(self.keys)!r}"
            return [f"{kind} and {keys}"], [f"{whole}[{key!r}]" for key in self.keys]
        kind = f"type({whole}) is {class_name(self.of)}"
        return [kind], [f"{whole}.{key}" for key in self.keys]

    @property
    def plain(self) -> bool:
        """Whether it is a leaf, or a tuple or list of leaves."""
        flat = all(item.kind == "leaf" for item in self.items)
        return self.kind == "leaf" or (self.kind in ("tuple", "list") and flat)

    @property
    def constants(self) -> tuple[str, ...]:
        """What is returned beside tensors, in order."""
        own = (self.text,) if self.kind == "constant" else ()
        return (*own, *(text for item in self.items for text in item.constants))

    @property
    def classes(self) -> tuple[str, ...]:
        """Every class that is made, each once, in order."""
        own = (self.of,) if self.of else ()
        inner = (name for item in self.items for name in item.classes)
        return tuple(dict.fromkeys((*own, *inner)))


class CallPacking(Value):
    """How flat inputs become the arguments of a forward: by position, then by keyword."""

    positional: tuple[Packing, ...] = ()
    keywords: tuple[str, ...] = ()
    named: tuple[Packing, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether flat inputs are the positional arguments as they are."""
        return not self.keywords and all(item.kind == "leaf" for item in self.positional)

    @property
    def classes(self) -> tuple[str, ...]:
        """Every class that is made, each once, in order."""
        parts = (*self.positional, *self.named)
        return tuple(dict.fromkeys(name for item in parts for name in item.classes))

    def printed(self, leaves: Iterator[str], class_name: Callable[[str], str]) -> str:
        """The arguments as they stand between a call's parentheses; see `Packing.printed`."""
        given = [item.printed(leaves, class_name) for item in self.positional]
        for key, item in zip(self.keywords, self.named, strict=True):
            given.append(f"{key}={item.printed(leaves, class_name)}")
        return ", ".join(given)
