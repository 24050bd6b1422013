"""Sizes as a small model can copy them: products of the sizes that a question names.

786432 elements of a tensor of 2048 x 384 are written `2048 * 384`, and a mean over them multiplies
by `1.0f / (2048 * 384)`: both are read off the question's shapes, where the number itself would
have to be computed without paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod


class Sizes:
    """Numbers by the dimensions of some tensors.

    Args:
        shapes: Of the tensors that the question names, in its order.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        self._named = {size for shape in shapes for size in shape}
        self._products: dict[int, tuple[int, ...]] = {}
        for run in sorted(_runs(shapes), key=len):
            self._products.setdefault(prod(run), run)

    def text(self, number: int) -> str:
        """A number, or the shortest product of neighbouring dimensions that it is."""
        if number in self._named or number not in self._products:
            return str(number)
        return " * ".join(map(str, self._products[number]))

    def factor(self, number: int) -> str:
        """The same, to be divided or multiplied by."""
        text = self.text(number)
        return f"({text})" if " " in text else text

    def constant(self, value: float, literal: str) -> str:
        """A constant where it is used: by sizes where it is one or a part of one.

        Args:
            value: The constant.
            literal: As its language writes it.
        """
        mark = "f" if literal.endswith("f") else ""
        if "." in literal and float(value).is_integer() and " " in self.text(int(value)):
            first, *others = self.text(int(value)).split(" * ")
            return f"({first}.0{mark} * {' * '.join(others)})"
        parts = round(1 / value) if 0 < value < 1 else 0
        if (parts in self._named or parts in self._products) and 1.0 / parts == value:
            return f"(1.0{mark} / {self.factor(parts)})"
        return f"({literal})" if literal.startswith("-") else literal


def _runs(shapes: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """Neighbouring dimensions above 1, two or more of them."""
    for shape in shapes:
        wide = tuple(size for size in shape if size > 1)
        for first in range(len(wide)):
            for end in range(first + 2, len(wide) + 1):
                yield wide[first:end]
