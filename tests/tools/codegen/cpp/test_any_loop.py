"""Random loops of the intermediate form, under every strategy that accepts them."""

import random
from typing import Any

import pytest
import torch

SIZES = (1, 2, 3, 5, 9, 17, 33, 70)
TAME = ("add", "sub", "mul", "maximum", "minimum")
SMOOTH = ("tanh", "sigmoid", "neg", "abs", "relu", "erf", "sin", "square", "cos")
KINDS = ("sum", "max", "min", "moments", "softmax", "prod")


class RandomLoop:
    """A loop with loads that broadcast, gather and run backwards, and several passes."""

    def __init__(self, build: Any, seed: int) -> None:
        self.random = random.Random(seed)
        outer = {f"o{k}": self._size() for k in range(self.random.randint(0, 2))}
        inner = {f"i{k}": self._size() for k in range(self.random.randint(0, 3))}
        if not outer and not inner:
            outer = {"o0": 5}
        self.sizes = {**outer, **inner}
        self.inner = inner
        self.b = build(outer, inner)
        self.data: dict[str, torch.Tensor] = {}
        self.outputs: dict[str, tuple[int, torch.dtype]] = {}
        self.values: list[str] = [self.load() for _ in range(self.random.randint(1, 3))]
        self._fill()

    def _size(self) -> int:
        return self.random.choice(SIZES)

    def _layout(self, names: list[str]) -> tuple[dict[str, int], int]:
        """Dense strides over some axes in a random order, and the number of elements."""
        strides, size = {}, 1
        for name in names:
            strides[name] = size
            size *= self.sizes[name]
        return strides, size

    def _chosen(self) -> list[str]:
        names = [name for name in self.sizes if self.random.random() < 0.75]
        if self.random.random() < 0.5:
            names.reverse()
        else:
            self.random.shuffle(names)
        return names

    def load(self) -> str:
        """A load of a new buffer."""
        strides, size = self._layout(self._chosen())
        offset = self.random.randint(0, 3)
        for name in list(strides):
            if self.random.random() < 0.15:
                offset += strides[name] * (self.sizes[name] - 1)
                strides[name] = -strides[name]
        name = f"x{len(self.data)}"
        dtype = self.random.choice(("float32", "float32", "float32", "float16", "bfloat16"))
        self.data[name] = torch.randn(size + 8).to(getattr(torch, dtype))
        return self.b.load(name, dtype, offset=offset, **strides)

    def gather(self) -> str:
        """A load addressed by values of another buffer, and perhaps by axes beside them."""
        strides, size = self._layout(self._chosen())
        rows, name = self.random.randint(1, 9), f"x{len(self.data)}"
        self.data[f"{name}_at"] = torch.randint(0, rows, (size,))
        at = self.b.load(f"{name}_at", "int64", **strides)
        beside, width = self._layout(self._chosen() if self.random.random() < 0.5 else [])
        self.data[name] = torch.randn(rows * (width + 2) + 1)
        return self.b.load(name, offset=1, **{at: width + 2}, **beside)

    def _fill(self) -> None:
        b, pick = self.b, self.random.choice
        for _ in range(self.random.randint(2, 8)):
            roll = self.random.random()
            if roll < 0.35:
                self.values.append(b.op(pick(TAME), pick(self.values), pick(self.values)))
            elif roll < 0.55:
                self.values.append(b.op(pick(SMOOTH), pick(self.values)))
            elif roll < 0.62:
                self.values.append(self.gather())
            elif roll < 0.68 and self.sizes:
                axis = pick(list(self.sizes))
                self.values.append(b.op("cast", b.index(axis)))
            elif roll < 0.75:
                bounded = b.op("tanh", pick(self.values))
                chosen = b.op(
                    "where",
                    b.op("gt", self.values[0], b.const(0.1), dtype="bool"),
                    bounded,
                    b.const(-0.5),
                )
                self.values.append(chosen)
            elif roll < 0.92 and self.inner:
                self._reduce()
            elif self.inner:
                tame = b.op("sigmoid", pick(self.values))
                self.values.append(b.scan(pick(("sum", "max", "min", "prod")), tame))
        for _ in range(self.random.randint(1, 3)):
            self._store(pick(self.values))
        self._store(self.values[-1])

    def _reduce(self) -> None:
        kind = self.random.choice(KINDS)
        bounded = self.b.op("tanh", self.random.choice(self.values))
        name = self.b.reduce(kind, bounded)
        self.values.append(name)
        if kind == "moments":
            self.values.append(f"{name}_m2")
        if kind == "softmax":
            self.values.append(f"{name}_sum")

    def _store(self, value: str) -> None:
        loop = self.b.loop("probe")
        element = loop.levels()[value] == "element"
        names = [axis for axis in self.sizes if element or axis not in self.inner]
        self.random.shuffle(names)
        strides, size = self._layout(names)
        name = f"y{len(self.outputs)}"
        dtype = self.random.choice(("float32", "float32", "float16", "float64"))
        self.outputs[name] = (size, getattr(torch, dtype))
        self.b.store(name, value, dtype, **strides)


MORE = (pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 8))


@pytest.mark.parametrize("seed", [0, *MORE])
def test_random_loops_agree_with_float64(
    build: Any, case: Any, everything: Any, check: Any, seed: int
):
    torch.manual_seed(seed)
    cases = []
    for number in range(4):
        made = RandomLoop(build, seed * 1000 + number)
        loop = made.b.loop(f"random{seed}_{number}")
        cases.append(case(loop, made.data, **made.outputs))
    check(everything(cases, settings=1), 2e-5)
