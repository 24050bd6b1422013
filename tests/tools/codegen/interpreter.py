"""A reference interpreter of Programs, so that lowering is checked against PyTorch alone.

It executes loops with plain index tensors (every axis is one dimension of a broadcast tensor)
and plan lines with Python, and knows nothing of how kernels would do it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch

from kernelwright.tools.codegen.ir import Access, Buffer, Loop, PlanLine, Program, ReduceKind, Stmt
from kernelwright.tools.codegen.library.assemble import returned
from kernelwright.tools.types import DType

Tensors: TypeAlias = Mapping[str, torch.Tensor]

_NAMES = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.true_divide,
    "pow": torch.pow, "atan2": torch.atan2, "fmod": torch.fmod, "remainder": torch.remainder,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "fma": lambda a, b, c: a * b + c, "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
}  # fmt: skip


class _LoopRun:
    """One loop over real tensors; floats are computed in float64."""

    def __init__(self, loop: Loop, tensors: Tensors, written: Tensors) -> None:
        self.loop, self.tensors, self.written = loop, tensors, written
        self.axes = [*loop.outer, *loop.inner]
        self.values: dict[str, torch.Tensor] = {}

    def position(self, name: str) -> torch.Tensor:
        at = [axis.name for axis in self.axes].index(name)
        shape = [1] * len(self.axes)
        shape[at] = self.axes[at].size
        return torch.arange(self.axes[at].size).reshape(shape)

    def where(self, access: Access) -> torch.Tensor:
        at = torch.full([1] * len(self.axes), access.offset)
        names = {axis.name for axis in self.axes}
        for stride in access.strides:
            by = self.position(stride.by) if stride.by in names else self.values[stride.by]
            at = at + stride.step * by
        return at

    def run(self) -> None:
        for stmt in self.loop.body:
            self.statement(stmt)
        levels = self.loop.levels()
        folded = {name for stmt in self.loop.body for name in stmt.along}
        for store in self.loop.stores:
            axes = self.loop.outer if levels[store.value] == "row" else tuple(self.axes)
            shape = [axis.size if axis in axes else 1 for axis in self.axes]
            where = self.where(store.access)
            without = [a.size for a in axes if a.name in folded and not store.access.step(a.name)]
            assert where.numel() * math.prod(without) == math.prod(shape), "a store covers a level"
            flat = self.tensors[store.access.buffer].view(-1)
            value = self.values[store.value].expand(where.shape).reshape(-1)
            inside = self.values[store.when] if store.when else torch.tensor(True)
            inside = inside.expand(where.shape).reshape(-1)
            where, value = where.reshape(-1)[inside], value[inside]
            assert where.unique().numel() == where.numel(), "a store writes no element twice"
            reached = self.written[store.access.buffer]
            assert not reached[where].any(), "no two stores write one element"
            reached[where] = True
            flat[where] = value.to(flat.dtype)

    def statement(self, stmt: Stmt) -> None:
        result = self.result(stmt)
        if isinstance(result, tuple):
            self.values[stmt.name], other = result
            suffix = "_m2" if stmt.reduce is ReduceKind.MOMENTS else "_sum"
            self.values[stmt.name + suffix] = other
        else:
            self.values[stmt.name] = result

    def result(self, stmt: Stmt) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        args = [self.values[name] for name in stmt.args] if stmt.op != "index" else []
        if stmt.op == "load":
            assert stmt.access is not None
            where = self.where(stmt.access)
            flat = _flat(self.tensors[stmt.access.buffer])
            inside = args[0] if args else torch.ones((), dtype=torch.bool)
            where = torch.where(inside, where, 0)
            assert int(where.min()) >= 0, "a read lies inside its buffer"
            assert int(where.max()) < flat.numel(), "a read lies inside its buffer"
            return torch.where(inside, flat[where], 0).to(_wide(stmt.dtype))
        if stmt.op == "const":
            return torch.tensor(stmt.value, dtype=_wide(stmt.dtype)).reshape([1] * len(self.axes))
        if stmt.op == "index":
            return self.position(stmt.args[0])
        if stmt.op == "cast":
            return _cast(args[0], stmt.dtype)
        if stmt.op == "tf32":
            return args[0]
        if stmt.op == "reduce":
            return self.reduce(stmt, args[0])
        if stmt.op == "scan":
            return self.scan(stmt, args[0])
        if stmt.op == "fold":
            return self.fold(stmt, args[0])
        if stmt.op == "statistic":
            return self.statistic(stmt, *args)
        if stmt.op in ("to_float16", "to_bfloat16"):
            return args[0].to(getattr(torch, stmt.op.removeprefix("to_"))).to(args[0].dtype)
        return _pointwise(stmt.op, args)

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        sizes = [axis.size for axis in self.axes]
        return x.expand(sizes).reshape([axis.size for axis in self.loop.outer] + [-1])

    def kept(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape([axis.size for axis in self.loop.outer] + [1] * len(self.loop.inner))

    def reduce(
        self, stmt: Stmt, x: torch.Tensor
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        assert self.loop.levels()[stmt.args[0]] == "element", "a reduction has something to reduce"
        rows = self.rows(x)
        if stmt.reduce is ReduceKind.MOMENTS:
            mean = rows.mean(-1)
            return self.kept(mean), self.kept((rows - mean.unsqueeze(-1)).square().sum(-1))
        if stmt.reduce is ReduceKind.SOFTMAX:
            top = rows.amax(-1)
            return self.kept(top), self.kept((rows - top.unsqueeze(-1)).exp().sum(-1))
        kinds: dict[ReduceKind | None, Callable[[torch.Tensor], torch.Tensor]] = {
            ReduceKind.SUM: lambda t: t.sum(-1), ReduceKind.PROD: lambda t: t.prod(-1),
            ReduceKind.MAX: lambda t: t.amax(-1), ReduceKind.MIN: lambda t: t.amin(-1),
            ReduceKind.ANY: lambda t: t.any(-1), ReduceKind.ALL: lambda t: t.all(-1),
            ReduceKind.ARGMAX: lambda t: t.argmax(-1), ReduceKind.ARGMIN: lambda t: t.argmin(-1),
        }  # fmt: skip
        return self.kept(kinds[stmt.reduce](rows))

    def fold(self, stmt: Stmt, x: torch.Tensor) -> torch.Tensor:
        for at, axis in enumerate(self.axes):
            if axis.name in stmt.along:
                x = x.expand([axis.size if one == at else s for one, s in enumerate(x.shape)])
                x = _FOLDS[stmt.reduce](x, at)
        return x

    def statistic(
        self, stmt: Stmt, x: torch.Tensor, held: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        dims = [at for at, axis in enumerate(self.axes) if axis.name in stmt.along]
        sizes = [axis.size for axis in self.axes]
        shape = [sizes[at] if at in dims else size for at, size in enumerate(x.shape)]
        x = x.expand(shape)
        held = torch.ones_like(x, dtype=torch.bool) if held is None else held.expand(shape)
        if stmt.reduce is ReduceKind.MOMENTS:
            count = held.sum(dims, keepdim=True)
            mean = torch.where(held, x, 0).sum(dims, keepdim=True) / count
            return mean, torch.where(held, (x - mean).square(), 0).sum(dims, keepdim=True)
        inert = {ReduceKind.SUM: 0.0, ReduceKind.MAX: -math.inf, ReduceKind.MIN: math.inf}
        assert stmt.reduce is not None
        x = torch.where(held, x, inert[stmt.reduce])
        for at in dims:
            x = _FOLDS[stmt.reduce](x, at)
        return x

    def scan(self, stmt: Stmt, x: torch.Tensor) -> torch.Tensor:
        rows = self.rows(x)
        kinds: dict[str | None, Callable[[torch.Tensor], torch.Tensor]] = {
            "sum": lambda t: t.cumsum(-1), "prod": lambda t: t.cumprod(-1),
            "max": lambda t: t.cummax(-1).values, "min": lambda t: t.cummin(-1).values,
        }  # fmt: skip
        return kinds[stmt.scan](rows).reshape([axis.size for axis in self.axes])


_FOLDS: Mapping[ReduceKind | None, Callable[[torch.Tensor, int], torch.Tensor]] = {
    ReduceKind.SUM: lambda t, dim: t.sum(dim, keepdim=True),
    ReduceKind.PROD: lambda t, dim: t.prod(dim, keepdim=True),
    ReduceKind.MAX: lambda t, dim: t.amax(dim, keepdim=True),
    ReduceKind.MIN: lambda t, dim: t.amin(dim, keepdim=True),
}


def _wide(dtype: DType) -> torch.dtype:
    if dtype.is_floating:
        return torch.float64
    return torch.bool if dtype is DType.BOOL else torch.int64


def _cast(x: torch.Tensor, dtype: DType) -> torch.Tensor:
    return x != 0 if dtype is DType.BOOL else x.to(_wide(dtype))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The storage from the tensor's first element on."""
    size = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    return tensor.as_strided((size,), (1,), tensor.storage_offset())


def _pointwise(op: str, args: Sequence[torch.Tensor]) -> torch.Tensor:
    function = _NAMES.get(op) or getattr(torch, op)
    result = function(*args)
    assert isinstance(result, torch.Tensor)
    return result


class _Library:
    """`aten.<op>` as the plan calls it."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        operator = getattr(torch.ops.aten, name)

        def call(*args: object, **kwargs: object) -> object:
            return operator(*map(_typed, args), **{k: _typed(v) for k, v in kwargs.items()})

        return call


def _typed(value: object) -> object:
    return getattr(torch, value) if isinstance(value, str) and hasattr(torch, value) else value


def _poisoned(buffer: Buffer) -> torch.Tensor:
    dtype = getattr(torch, buffer.dtype.value)
    poison = float("nan") if buffer.dtype.is_floating else buffer.dtype is DType.BOOL or 77
    return torch.full(buffer.shape, poison, dtype=dtype)


Interpreted: TypeAlias = tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]


def interpreted(program: Program, inputs: Sequence[torch.Tensor], weights: Tensors) -> Interpreted:
    """Outputs, and the new values of buffers that the forward updates."""
    tensors: dict[str, torch.Tensor] = dict(zip(program.parameters, inputs, strict=True))
    tensors |= {name: weights[target] for name, target in program.weights}
    updates: dict[str, torch.Tensor] = {}
    written: dict[str, torch.Tensor] = {}
    for step in program.steps:
        if isinstance(step, PlanLine):
            names = {
                "aten": _Library(),
                "update": updates.__setitem__,
                "inf": math.inf,
                "nan": math.nan,
            }
            exec(step.text, names, tensors)
            continue
        for store in step.stores:
            buffer = program.buffer(store.access.buffer)
            if buffer.name not in tensors:
                tensors[buffer.name] = _poisoned(buffer)
                written[buffer.name] = torch.zeros(buffer.shape, dtype=torch.bool).view(-1)
        _LoopRun(step, tensors, written).run()
    assert all(bool(everywhere.all()) for everywhere in written.values()), "a buffer has a gap"
    return tuple(eval(text, {}, tensors) for text in returned(program)), updates
