"""Reads a library's attention: where queries, keys, values and a mask lie, and what is asked.

A call names its tensors by chains of views, which are followed here as lowering wrote them. Batches
and heads are axes, as fine as every tensor needs them: heads that share keys are an axis along
which keys stand still, whether the module says so or repeats them by a view.

Not here: dropout, and widths that are no multiple of eight.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kernelwright.tools.codegen.ir import Buffer, LibraryCall
from kernelwright.tools.codegen.ir.scores import ATTENTION, ATTENTION_CALL, ScoreFunction
from kernelwright.tools.codegen.lower.nests import views
from kernelwright.tools.codegen.lower.nests.expressions import Address
from kernelwright.tools.codegen.lower.nests.views import Atom, View
from kernelwright.tools.types import DType, TensorSpec

HALVES = (DType.FLOAT16, DType.BFLOAT16)
_TYPES = (*HALVES, DType.FLOAT32)
_MASKS = (DType.BOOL, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32)
_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
# Elements of 16 bytes, the widest head whose results stay in registers, and axes of batches that a
# map has besides rows and columns.
_PIECE, _WIDEST, MOST_AXES = 8, 256, 3
_ROW, _COLUMN = "row", "column"


class NotTakenError(Exception):
    """Why a call stays with the library."""


@dataclass(frozen=True)
class Placed:
    """A tensor as it lies: elements from one position to the next along each axis."""

    buffer: str
    dtype: DType
    offset: int
    axis_steps: tuple[int, ...]
    row_step: int
    column_step: int


@dataclass(frozen=True)
class Attention:
    """softmax(scale Q K^T + mask) V for every batch and head.

    `axes` are the sizes of batches and heads, the fastest last; tensors step along each of them.
    `scale` multiplies the products; a boolean mask keeps what is true. Of a call with a score
    function of its own `scores` says what is made of products, the causal mask aside; keys further
    than `window` before their query do not count.
    """

    dtype: DType
    axes: tuple[int, ...]
    queries: int
    keys: int
    width: int
    value_width: int
    scale: float
    is_causal: bool
    query: Placed
    key: Placed
    value: Placed
    mask: Placed | None
    result: Buffer
    scores: ScoreFunction | None = None
    window: int | None = None

    @property
    def is_softmax(self) -> bool:
        """Whether weights are a softmax of scores; else they are what scores were made."""
        return self.scores is None or self.scores.is_softmax

    @property
    def score_operations(self) -> int:
        """Plain operations of a score before it is weighed, about."""
        return self.scores.operations if self.scores is not None else 0

    @property
    def heads(self) -> int:
        """Batches and heads together."""
        return math.prod(self.axes)

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that count, masks given as tensors aside."""
        if self.window is not None:
            near = self.window + 1 + (0 if self.is_causal else self.keys)
            return self.heads * self.queries * min(self.keys, near)
        if not self.is_causal:
            return self.heads * self.queries * self.keys
        short = min(self.queries, self.keys)
        return self.heads * (short * (short + 1) // 2 + (self.queries - short) * self.keys)

    @property
    def flops(self) -> int:
        """Both products, a multiply-add counted as two."""
        return 2 * self.pairs * (self.width + self.value_width)


def attention_of(call: LibraryCall) -> Attention:
    """What a call asks for.

    Raises:
        NotTakenError: In words, where it stays with the library.
    """
    if call.line.operator not in (ATTENTION_CALL, ATTENTION):
        raise NotTakenError("it is no attention")
    given = _Arguments(call)
    query, key, value = (given.view(name) for name in _NAMES[:3])
    if query.dtype not in _TYPES or {key.dtype, value.dtype} != {query.dtype}:
        raise NotTakenError("queries, keys and values are not all of one type, half or single")
    if given.number("dropout_p", 0.0):
        raise NotTakenError("it drops weights at random")
    if 0 in (*query.shape, *key.shape, *value.shape):
        raise NotTakenError("a tensor is empty")
    _check_widths(query.shape[-1], value.shape[-1])
    if call.line.operator == ATTENTION:
        return _scored(call, (query, key, value, None))
    scale = given.number("scale", 1.0 / math.sqrt(query.shape[-1]))
    mask = given.view("attn_mask") if given.has("attn_mask") else None
    return _placed(call, (query, key, value, mask), scale, bool(given.number("is_causal", 0.0)))


def _scored(call: LibraryCall, given: Views) -> Attention:
    """Attention whose scores are changed by a function of the module's own."""
    scores = call.line.scores
    if scores is None:
        raise NotTakenError("what changes its scores is no one loop")
    made = _placed(call, given, 1.0, scores.is_causal)
    return replace(made, scores=scores.without_future() or scores, window=scores.window)


def _check_widths(width: int, value_width: int) -> None:
    for name, size in (("heads", width), ("values", value_width)):
        if size % _PIECE:
            raise NotTakenError(f"{name} are {size} wide, which is no multiple of {_PIECE}")
        if size > _WIDEST:
            raise NotTakenError(f"{name} are {size} wide, and results of {_WIDEST} fill registers")


class _Arguments:
    """The arguments of a call by name, tensors as views."""

    def __init__(self, call: LibraryCall) -> None:
        statement = ast.parse(call.line.text).body[0]
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            raise NotTakenError("its result is not taken as it is")
        self._buffers = {one.name: one for one in call.operands}
        self._given = dict(zip(_NAMES, statement.value.args, strict=False))
        self._given |= {one.arg: one.value for one in statement.value.keywords if one.arg}

    def has(self, name: str) -> bool:
        """Whether it is given, and not None."""
        node = self._given.get(name)
        return node is not None and not (isinstance(node, ast.Constant) and node.value is None)

    def number(self, name: str, default: float) -> float:
        """A number or a flag."""
        value = ast.literal_eval(self._given[name]) if self.has(name) else default
        if not isinstance(value, int | float):
            raise NotTakenError(f"{name} is no number")
        return float(value)

    def view(self, name: str) -> View:
        """A tensor, as a chain of views makes it of a contiguous buffer."""
        if not self.has(name):
            raise NotTakenError(f"{name} is not given")
        return self._viewed(self._given[name])

    def _viewed(self, node: ast.expr) -> View:
        if isinstance(node, ast.Name):
            buffer = self._buffers[node.id]
            return views.whole(buffer.name, TensorSpec(shape=buffer.shape, dtype=buffer.dtype))
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            raise NotTakenError("a tensor is more than a view")
        change = _VIEWS.get(node.func.attr)
        given = [ast.literal_eval(arg) for arg in node.args]
        found = change(self._viewed(node.func.value), given) if change is not None else None
        if found is None:
            raise NotTakenError(f"no tensor map describes what {node.func.attr} makes")
        return found


_VIEWS: Mapping[str, Callable[[View, list[object]], View | None]] = {
    "permute": lambda view, given: views.permute(view, _sizes(given)),
    "expand": lambda view, given: views.expand(view, _sizes(given)),
    "reshape": lambda view, given: views.reshape(view, _sizes(given)),
    "unsqueeze": lambda view, given: views.unsqueeze(view, *_sizes(given)),
    "squeeze": lambda view, given: views.squeeze(view, *_sizes(given)),
    "narrow": lambda view, given: views.narrow(view, *_sizes(given)),
}


def _sizes(given: Sequence[object]) -> list[int]:
    items = given[0] if len(given) == 1 and isinstance(given[0], tuple) else given
    return [int(item) for item in items if isinstance(item, int)]


Views = tuple[View, View, View, View | None]


def _placed(call: LibraryCall, given: Views, scale: float, is_causal: bool) -> Attention:
    """Every tensor along axes that all of them have."""
    query, key, value, mask = given
    (result,) = call.results
    batch, queries, keys = result.shape[:-2], query.shape[-2], key.shape[-2]
    shared = [_over_batch(view, batch) for view in (query, key, value)]
    if mask is not None:
        if mask.dtype not in _MASKS:
            raise NotTakenError(f"its mask is of {mask.dtype.value}")
        shared.append(views.expand(mask, (*batch, queries, keys)))
    axes = [_refined(at, size, shared) for at, size in enumerate(batch)]
    named = [(*axes, *_sides(view)) for view in shared]
    places = [_place(view, names) for view, names in zip(shared, named, strict=True)]
    if query.dtype in HALVES:
        for view, place in zip(shared[:3], places, strict=False):
            _check_map(view, place)
    return Attention(
        dtype=query.dtype,
        axes=tuple(size for of in axes for _, size in of),
        queries=queries,
        keys=keys,
        width=query.shape[-1],
        value_width=value.shape[-1],
        scale=scale,
        is_causal=is_causal,
        query=places[0],
        key=places[1],
        value=places[2],
        mask=places[3] if mask is not None else None,
        result=result,
    )


def _over_batch(view: View, batch: Sequence[int]) -> View:
    """With every batch and head of the result; keys that heads share are repeated in a row."""
    missing = len(batch) + 2 - len(view.dims)
    sizes = (*(1,) * missing, *view.shape[:-2])
    if batch and 1 < sizes[-1] < batch[-1]:
        dims = list(view.dims)
        dims[-3] = (*dims[-3], Atom(batch[-1] // sizes[-1], 0))
        view = replace(view, dims=tuple(dims))
    return views.expand(view, (*batch, *view.shape[-2:]))


Axes = tuple[tuple[str, int], ...]


def _refined(at: int, size: int, given: Sequence[View]) -> Axes:
    """One dimension of batches as axes that are fine enough for every tensor."""
    sizes: tuple[int, ...] = (size,) if size > 1 else ()
    for view in given:
        finer = views.refine(sizes, [atom.size for atom in view.dims[at]])
        if finer is None:
            raise NotTakenError("batches of its tensors have no common axes")
        sizes = finer
    return tuple((f"axis_{at}_{number}", part) for number, part in enumerate(sizes))


def _sides(view: View) -> tuple[Axes, Axes]:
    row, column = view.dims[-2:]
    if max(len(row), len(column)) > 1:
        raise NotTakenError("rows of a tensor are no constant step apart")
    sides = zip((_ROW, _COLUMN), (row, column), strict=True)
    found = [((name, dim[0].size),) if dim else () for name, dim in sides]
    return found[0], found[1]


def _place(view: View, axes: Sequence[Axes]) -> Placed:
    where = views.at_axes(view, axes)
    return Placed(
        buffer=where.buffer,
        dtype=where.dtype,
        offset=where.offset,
        axis_steps=tuple(where.step(name) for of in axes[:-2] for name, _ in of),
        row_step=_step(where, view, -2),
        column_step=_step(where, view, -1),
    )


def _step(where: Address, view: View, at: int) -> int:
    return where.step(_ROW if at == -2 else _COLUMN) if view.dims[at] else 0


def _check_map(view: View, place: Placed) -> None:
    """Refuses what no tensor map describes."""
    steps = [step for step in (*place.axis_steps, place.row_step) if step]
    if place.column_step != 1:
        raise NotTakenError("elements of a row are not neighbours")
    if view.shape[-2] > 1 and not place.row_step:
        raise NotTakenError("all rows of a tensor are one")
    if place.offset % _PIECE or any(step < 0 or step % _PIECE for step in steps):
        raise NotTakenError("rows begin at no multiples of 16 bytes")
    if sum(step != 0 for step in place.axis_steps) > MOST_AXES:
        raise NotTakenError(f"batches have more than {MOST_AXES} axes")
