"""What translation has made so far: values as views, nests and library lines in order.

Also reads a node's arguments by position or name, as plain Python values.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from kernelwright.tools.candidates.plan.vocabulary import RESERVED as PLAN_WORDS
from kernelwright.tools.codegen.ir import Buffer, PlanLine
from kernelwright.tools.codegen.lower.nests.expressions import Address, Expr, Pool, computed
from kernelwright.tools.codegen.lower.nests.nest import Nest, Write
from kernelwright.tools.codegen.lower.nests.simplify import Ops
from kernelwright.tools.codegen.lower.nests.views import (
    View,
    at_axes,
    expand,
    extent,
    refine,
    whole,
)
from kernelwright.tools.types import Arg, DType, DTypeArg, ListArg, Node, Ref, Scalar, TensorSpec

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


# Names a plan or device code gives a meaning to; a buffer must not hide them.
_RESERVED_WORDS = """
    empty empty_like zeros zeros_like ones full full_like launch weights prepared update aten
    prepare forward require tune range min max int len ceil_div float bool abs round sum
    tensor_map auto break case char const continue default do double else enum extern for goto
    if inline long register restrict return short signed sizeof static struct switch typedef
    union unsigned void volatile while class new delete template this operator namespace using
    public private true false exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin
    acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc lgamma floor ceil trunc pow fabs
    fmin fmax fma isnan isinf copysign hypot sigmoid relu where y0 y1 j0 j1 gamma div half index
    remainder half2 float2 float4 main threadIdx blockIdx blockDim gridDim shape stride view
    reshape to contiguous
"""
RESERVED = frozenset(_RESERVED_WORDS.split()) | PLAN_WORDS


@dataclass
class Step:
    """A nest or a line of the plan, with its place in the graph's order.

    `stage` counts the library calls before it on the longest path.
    """

    number: int
    nest: Nest | None = None
    line: PlanLine | None = None
    stage: int = 0

    @property
    def reads(self) -> frozenset[str]:
        """Buffers that must exist before."""
        if self.nest is not None:
            return self.nest.reads
        return frozenset(self.line.uses if self.line else ())

    @property
    def targets(self) -> frozenset[str]:
        """Buffers that it fills."""
        if self.nest is not None:
            return self.nest.targets
        return frozenset(self.line.makes if self.line else ())


@dataclass(frozen=True)
class Pooled:
    """A node of windows, and how large these are."""

    node: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Lowering:
    """Which operators become loops of ours, and how they lie; what is not asked for is called.

    Attributes:
        channels_last: whether convolutions that loops read are called in that layout.
        one_pass: whether windows over normalised rows compute the rows' statistics themselves.
        products: whether products of matrices are loops, with what surrounds them fused.
        convolutions: whether convolutions are; they are products too.
        calls_attention: whether attention stays a call where products are loops.
        folds: whether windows that take whole what convolutions make are reductions over blocks.
        sums_windows: whether weighted windows are reductions instead of sums written out; with
            `channels_last` over tensors that lie so.
        calls_windows: whether they are left to the library.
    """

    channels_last: bool = False
    one_pass: bool = False
    products: bool = False
    convolutions: bool = False
    calls_attention: bool = False
    folds: bool = False
    sums_windows: bool = False
    calls_windows: bool = False


@dataclass
class Context:
    """The state of one translation.

    `fills` holds the constant that fills a buffer, `scans` the node whose running values it has.
    `single` names the nodes with one reader, `kept` those whose results leave the forward as they
    lie. `lowering` is what was asked for. `stored` names buffers that are never computed again
    where they are read. `is_tf32` and `sums` are the graph's.
    `turned` are copies with the channels last, by what they were made of.
    `unmade` names buffers that stand for what no step makes, see `lower.scored`.
    `pooled` are windows that take whole what a convolution makes, by the convolution's node: they
    are reductions, and it makes blocks of their size.
    """

    pool: Pool = field(default_factory=Pool)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    values: dict[str, tuple[View | None, ...]] = field(default_factory=dict)
    specs: dict[str, TensorSpec] = field(default_factory=dict)
    leaves: set[str] = field(default_factory=set)
    weights: dict[str, str] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    fills: dict[str, Expr] = field(default_factory=dict)
    scans: dict[str, Node] = field(default_factory=dict)
    unmade: set[str] = field(default_factory=set)
    turned: dict[View, View] = field(default_factory=dict)
    single: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    lowering: Lowering = Lowering()
    is_tf32: bool = True
    sums: DType = DType.FLOAT32
    pooled: Mapping[str, Pooled] = field(default_factory=dict)

    @cached_property
    def ops(self) -> Ops:
        """Makes expressions in this translation's pool."""
        return Ops(self.pool)

    def name(self, wanted: str) -> str:
        """A buffer name like `wanted` that is free and safe in a plan and in device code."""
        plain = "".join(c if c.isalnum() or c == "_" else "_" for c in wanted) or "t"
        plain = f"t{plain}" if not plain[0].isalpha() else plain
        if plain in RESERVED or keyword.iskeyword(plain):
            plain += "_"
        name, count = plain, 1
        while name in self.buffers:
            count += 1
            name = f"{plain}_{count}"
        return name

    def buffer(self, wanted: str, spec: TensorSpec, role: str = "temporary") -> View:
        """A new buffer and the view that is all of it."""
        name = self.name(wanted)
        self.buffers[name] = Buffer.model_validate(
            {"name": name, "shape": spec.shape, "dtype": spec.dtype, "role": role}
        )
        return whole(name, spec)

    def value(self, ref: Ref) -> View:
        """The view that holds a node's (first) result."""
        view = self.values[ref.node][0]
        if view is None:
            raise KeyError(ref.node)
        return view

    def add(self, nest: Nest | None = None, line: PlanLine | None = None) -> None:
        """Appends a step."""
        self.steps.append(Step(len(self.steps), nest, line))

    def space(self, views: Sequence[View], shape: Sequence[int]) -> Space:
        """Axes for `shape` fine enough for every view, which are broadcast to it.

        A view whose atoms fit no common refinement is copied first. Raises `UnlikeError` where the
        views do not broadcast to `shape`.
        """
        held = [expand(view, shape) for view in views]
        dims: list[tuple[int, ...]] = []
        for at, size in enumerate(shape):
            sizes: tuple[int, ...] = (size,) if size > 1 else ()
            for number, view in enumerate(held):
                if all(atom.step == 0 for atom in view.dims[at]):
                    continue
                finer = refine(sizes, [atom.size for atom in view.dims[at]])
                if finer is None:
                    if extent(view.dims[at]) != size:
                        raise UnlikeError(f"{view.buffer} of {view.shape} is not {tuple(shape)}")
                    copied = self.copy(views[number])
                    return self.space([*views[:number], copied, *views[number + 1 :]], shape)
                sizes = finer
            dims.append(sizes)
        axes = tuple(tuple((self.pool.axis(n), n) for n in sizes) for sizes in dims)
        return Space(axes, tuple(at_axes(_fitted(view, dims), axes) for view in held))

    def copy(self, view: View, named: str = "copy") -> View:
        """The same tensor in a buffer of its own."""
        space = self.space([view], view.shape)
        made = self.buffer(f"{view.buffer}_{named}", TensorSpec(shape=view.shape, dtype=view.dtype))
        value = self.read(space.addresses[0])
        self.add(Nest(space.names(), (), (Write(space.at(made), value),)))
        return made

    def in_plan(self, view: View) -> View:
        """The tensor as the plan has words for it: where it has none, a copy."""
        return view if view.text is not None else self.copy(view)

    def held(self, view: View | None, remedy: Callable[[View], View | None], source: View) -> View:
        """`view`, or what `remedy` makes of a copy of `source` where the view does not exist."""
        if view is not None:
            return view
        again = remedy(self.copy(source))
        if again is None:
            raise ValueError(f"no view of {source.buffer} even after a copy")
        return again

    def read(self, where: Address) -> Expr:
        """A read; of a tensor filled with a constant, the constant."""
        fill = self.fills.get(where.buffer)
        return self.pool.load(where) if fill is None else fill

    def load(self, where: Address, dtype: DType) -> Expr:
        """A read converted to the type that `dtype` is computed in."""
        return self.ops.cast(self.read(where), computed(dtype))


@dataclass(frozen=True)
class Space:
    """Axes of each dimension of a shape, and the addresses of the views it was made for."""

    axes: tuple[tuple[tuple[str, int], ...], ...]
    addresses: tuple[Address, ...]

    def names(self, dims: Sequence[int] | None = None) -> tuple[str, ...]:
        """The axes of some dimensions (all), in order."""
        wanted = range(len(self.axes)) if dims is None else dims
        return tuple(name for dim in wanted for name, _ in self.axes[dim])

    def size(self, dim: int) -> int:
        """The size of a dimension."""
        return prod(size for _, size in self.axes[dim])

    def at(self, view: View, dims: Sequence[int] | None = None) -> Address:
        """Where `view`, whose shape is that of some dimensions (all), is at these axes."""
        wanted = range(len(self.axes)) if dims is None else dims
        return at_axes(view, [self.axes[dim] for dim in wanted])


def _fitted(view: View, dims: Sequence[tuple[int, ...]]) -> View:
    """A broadcast dimension moves along no axis, whatever its atoms are."""
    kept = (
        () if all(atom.step == 0 for atom in dim) or extent(dim) == 1 else dim
        for dim, _ in zip(view.dims, dims, strict=True)
    )
    return View(view.buffer, view.dtype, view.offset, tuple(kept), view.chain)
