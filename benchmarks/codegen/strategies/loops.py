"""Loops written by hand, with their truth: what `gpu_strategies.py` measures strategies on.

A problem is one loop, what it should give in float64, and what PyTorch would call instead.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod

import torch

from kernelwright.tools.codegen.ir import (
    Access,
    Axis,
    Buffer,
    Loop,
    Program,
    ReduceKind,
    Stmt,
    Store,
    Stride,
)
from kernelwright.tools.types import DType

# (output, first element, expected values) in pieces that fit beside the data.
Truth = Callable[[dict[str, torch.Tensor]], Iterator[tuple[str, int, torch.Tensor]]]


class Writer:
    """Writes a loop statement by statement; strides are keywords by axis (or statement) name."""

    def __init__(self, outer: dict[str, int], inner: dict[str, int]):
        self.sizes = {**outer, **inner}
        self.outer = tuple(Axis(name=n, size=s) for n, s in outer.items())
        self.inner = tuple(Axis(name=n, size=s) for n, s in inner.items())
        self.body: list[Stmt] = []
        self.stores: list[Store] = []
        self.buffers: dict[str, Buffer] = {}

    def _access(
        self, buffer: str, dtype: str, steps: dict[str, int], role: str, size: int, offset: int = 0
    ):
        reach = offset + sum(
            (self.sizes[by] - 1) * step for by, step in steps.items() if by in self.sizes
        )
        shape = (max(size, reach + 1),)
        kept = self.buffers.get(buffer)
        if kept is None or kept.shape < shape:
            self.buffers[buffer] = Buffer.model_validate(
                {"name": buffer, "shape": shape, "dtype": dtype, "role": role}
            )
        strides = tuple(Stride(by=by, step=step) for by, step in steps.items())
        return Access(buffer=buffer, dtype=DType(dtype), offset=offset, strides=strides)

    def _add(self, op: str, dtype: str, **more: object) -> str:
        name = f"s{len(self.body)}"
        stmt = {"name": name, "op": op, "dtype": DType(dtype), **more}
        self.body.append(Stmt.model_validate(stmt))
        return name

    def load(
        self,
        buffer: str,
        dtype: str = "float32",
        size: int = 0,
        offset: int = 0,
        when: str = "",
        **steps: int,
    ) -> str:
        """A read, converted to the type computed in; only where `when` holds, if that is given."""
        access = self._access(buffer, dtype, steps, "input", size, offset)
        kind, args = "int64" if dtype == "int64" else "float32", (when,) if when else ()
        return self._add("load", kind, access=access, args=args)

    def const(self, value: float, dtype: str = "float32") -> str:
        """A constant."""
        return self._add("const", dtype, value=value)

    def index(self, axis: str) -> str:
        """The position along an axis."""
        return self._add("index", "int64", args=(axis,))

    def op(self, op: str, *args: str, dtype: str = "float32") -> str:
        """A pointwise operator."""
        return self._add(op, dtype, args=args)

    def reduce(self, kind: str, arg: str, dtype: str = "float32") -> str:
        """A reduction along the inner axes."""
        return self._add("reduce", dtype, args=(arg,), reduce=ReduceKind(kind))

    def scan(self, kind: str, arg: str) -> str:
        """A running reduction along the inner axes."""
        return self._add("scan", "float32", args=(arg,), scan=kind)

    def store(self, buffer: str, value: str, dtype: str = "float32", **steps: int) -> None:
        """A write."""
        access = self._access(buffer, dtype, steps, "output", 0)
        self.stores.append(Store(access=access, value=value))

    def program(self, name: str) -> Program:
        """The loop as a program of one step."""
        loop = Loop(
            name=name,
            outer=self.outer,
            inner=self.inner,
            body=tuple(self.body),
            stores=tuple(self.stores),
        )
        inputs = tuple(b.name for b in self.buffers.values() if b.role == "input")
        outputs = tuple(b.name for b in self.buffers.values() if b.role == "output")
        return Program(
            parameters=inputs,
            weights=(),
            buffers=tuple(self.buffers.values()),
            steps=(loop,),
            returns=outputs,
            output_structure="tuple",
        )


@dataclass(frozen=True)
class Problem:
    """A loop, what it should give, and what PyTorch would call instead."""

    name: str
    program: Program
    truth: Truth
    eager: Callable[[dict[str, torch.Tensor]], object]
    highs: dict[str, int] = field(default_factory=dict)

    @property
    def loop(self) -> Loop:
        """The one loop."""
        return self.program.loops[0]

    @property
    def moved_bytes(self) -> int:
        """Every buffer once."""
        return sum(prod(b.shape) * b.dtype.itemsize_bytes for b in self.program.buffers)


def rowwise(rows: int, columns: int, output: str, call: Callable, *others: str) -> Truth:
    """Truth of a function of rows, evaluated in float64 some rows at a time."""

    def truth(data: dict[str, torch.Tensor]) -> Iterator[tuple[str, int, torch.Tensor]]:
        step = max(1, (1 << 27) // columns)
        for start in range(0, rows, step):
            x = data["x"][start * columns : (start + step) * columns].view(-1, columns).double()
            got = call(x, *(data[name] for name in others)).reshape(-1)
            yield output, start * (got.numel() // x.shape[0]), got

    return truth
