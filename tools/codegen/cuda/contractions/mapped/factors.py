"""What tensor maps describe of a product: factors as they are fetched, results as they are stored.

A map takes a factor as it lies: along the depth or along its side, up to three axes of batches, 16
bytes between any two rows. It takes results of two bytes that lie row after row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelwright.tools.codegen.cuda.contractions.epilogue import ElementPrinter
from kernelwright.tools.codegen.cuda.contractions.mapped.schemes import LINE_BYTES
from kernelwright.tools.codegen.cuda.contractions.mma_tiles import HALVES
from kernelwright.tools.codegen.cuda.printing.expressions import Argument, c_type
from kernelwright.tools.codegen.ir import Access, Axis, Stmt
from kernelwright.tools.codegen.ir.contraction import Contraction, Operand

# Bytes of what copies move, and axes of batches beside a side and the depth.
_PIECE_BYTES, _MOST_BATCH_AXES = 16, 3
# Rows and columns of a warp's box of results: lines of 128 bytes.
_BOX_ROWS, _BOX_COLUMNS = 16, 64
RESULT_BYTES = 2


@dataclass(frozen=True)
class MappedFactor:
    """A factor as the skeleton fetches it: its map's parameter, and its places along batches."""

    map: str
    along_depth: bool
    places: str


@dataclass(frozen=True)
class MappedResults:
    """Results as the skeleton stores them: their map, and the epilogue of two neighbours.

    `lines` leave what belongs at `into` there; `places` are as a factor's.
    """

    map: str
    places: str
    lines: tuple[str, ...]
    argument: Argument


def mapped(contraction: Contraction, which: str) -> MappedFactor | None:
    """The "left" or "right" factor; None where no map describes it."""
    operand, side, axes = _sides(contraction, which)
    access = operand.access
    piece = _PIECE_BYTES // contraction.precision.itemsize_bytes
    if access is None or access.dtype is not contraction.precision or access.offset % piece:
        return None
    if len(side) != 1 or len(contraction.depth) != 1 or len(contraction.batch) > _MOST_BATCH_AXES:
        return None
    if {stride.by for stride in access.strides if stride.step} - {axis.name for axis in axes}:
        return None
    depth_step, side_step = (access.step(axes[at].name) for at in (-1, -2))
    along_depth = depth_step == 1
    others = [access.step(axis.name) for axis in axes[:-2]]
    others.append(side_step if along_depth else depth_step)
    if (not along_depth and side_step != 1) or any(step <= 0 or step % piece for step in others):
        return None
    if not along_depth and contraction.precision not in HALVES:
        return None
    return MappedFactor(f"{which}_map", along_depth, _places(contraction))


def both_mapped(contraction: Contraction) -> tuple[MappedFactor, MappedFactor] | None:
    """Left and right; None where either is not described by a map."""
    left, right = mapped(contraction, "left"), mapped(contraction, "right")
    return None if left is None or right is None else (left, right)


def _places(contraction: Contraction) -> str:
    return "".join(f", batch_{at}" for at in reversed(range(len(contraction.batch))))


def _sides(
    contraction: Contraction, which: str
) -> tuple[Operand, tuple[Axis, ...], tuple[Axis, ...]]:
    """The operand, the axes of its side, and all its axes from batches to the depth."""
    is_left = which == "left"
    operand = contraction.left if is_left else contraction.right
    side = contraction.rows if is_left else contraction.columns
    return operand, side, (*contraction.batch, *side, *contraction.depth)


def map_argument(contraction: Contraction, which: str, factor: MappedFactor, rows: str) -> Argument:
    """The map as a parameter; `rows` is how many of them one box has, as a plan's expression."""
    operand, _, axes = _sides(contraction, which)
    assert operand.access is not None
    if not factor.along_depth:
        axes = (*axes[:-2], axes[-1], axes[-2])
    step = LINE_BYTES // contraction.precision.itemsize_bytes
    inner = f"{rows}, {step}" if factor.along_depth else f"{step}, 64"
    return _argument(factor.map, operand.access, axes, inner)


def _argument(name: str, access: Access, axes: tuple[Axis, ...], inner: str) -> Argument:
    """A map over these axes, whose boxes have one element along all but the last two."""
    shape = ", ".join(str(axis.size) for axis in axes)
    strides = ", ".join(str(access.step(axis.name)) for axis in axes)
    box = "1, " * (len(axes) - 2) + inner
    passed = f"tensor_map({access.buffer}, shape=({shape}), strides=({strides}), "
    passed += f"offset={access.offset}, box=({box}))"
    return Argument(name, f"const __grid_constant__ kw::TensorMap {name}", passed)


def mapped_results(contraction: Contraction, printer: ElementPrinter) -> MappedResults | None:
    """How results leave by a map.

    None where no map describes them, or where the epilogue reads a matrix of which two neighbours
    of a thread are not one access. Where they are, all that a box of them reads is under way at
    once; from registers each eight results wait for their own.
    """
    axes = _result_axes(contraction)
    if axes is None or printer.width_of_epilogue() % 2:
        return None
    if reads_matrix(contraction) and printer.width_of_reads() % 2:
        return None
    (store,) = contraction.stores
    printed = printer.epilogue("sum[k]", width=2)
    if len(printed.after) != 1:
        return None
    kept = f"*reinterpret_cast<kw::Vec<{c_type(store.access.dtype)}, 2>*>(into) = out_0;"
    return MappedResults(
        map="result_map",
        places=_places(contraction),
        lines=replace(printed, after=(kept,)).lines(),
        argument=_argument("result_map", store.access, axes, f"{_BOX_ROWS}, {_BOX_COLUMNS}"),
    )


def _result_axes(contraction: Contraction) -> tuple[Axis, ...] | None:
    """The axes of the results where one store, of two bytes each, is all there is."""
    if len(contraction.stores) != 1 or len(contraction.rows) != 1 or len(contraction.columns) != 1:
        return None
    (store,), axes = contraction.stores, (*contraction.batch, *contraction.rows)
    access, piece = store.access, _PIECE_BYTES // RESULT_BYTES
    if store.when or access.dtype.itemsize_bytes != RESULT_BYTES or access.offset % piece:
        return None
    names = {axis.name for axis in (*axes, *contraction.columns)}
    if {stride.by for stride in access.strides if stride.step} - names:
        return None
    steps = [access.step(axis.name) for axis in axes]
    if access.step(contraction.columns[0].name) != 1 or any(s <= 0 or s % piece for s in steps):
        return None
    return None if len(contraction.batch) > _MOST_BATCH_AXES else (*axes, *contraction.columns)


def reads_matrix(contraction: Contraction) -> bool:
    """Whether the epilogue reads what depends on row and column, as a residual does."""
    return any(_reads_each(stmt, contraction) for stmt in contraction.epilogue)


def _reads_each(stmt: Stmt, contraction: Contraction) -> bool:
    """Whether results of a box read different places by row and by column alike.

    What tells apart only parts of a side that are longer than a box stays nearly always in one.
    """
    if stmt.access is None:
        return False
    sides = ((contraction.rows, _BOX_ROWS), (contraction.columns, _BOX_COLUMNS))
    named = [_names_within(contraction, axes, length) for axes, length in sides]
    moved = {stride.by for stride in stmt.access.strides if stride.step}
    return bool(stmt.args) or all(moved & names for names in named)


def _names_within(contraction: Contraction, axes: Sequence[Axis], length: int) -> frozenset[str]:
    """The axes, and parts of them, by which neighbours of so many usually differ."""
    parts = [part for axis in axes for part in contraction.parts_of(axis)]
    far = frozenset(part.name for part in parts[:-1])
    return contraction.names_of(axes) - (far if parts and parts[-1].size >= length else frozenset())
