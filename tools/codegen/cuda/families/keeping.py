"""Where kept values of a row lie in shared memory, and how much of it they take."""

from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.families.row_shapes import Shape
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.schedule import Kept
from kernelwright.tools.codegen.ir import Stmt


@dataclass(frozen=True)
class Placed:
    """A kept value and the bytes an element that lie before it in shared memory."""

    stmt: Stmt
    type: str
    before: int


def offsets(keeps: tuple[Kept, ...]) -> tuple[Placed, ...]:
    """Kept values with their places in shared memory, the widest first so that all are aligned."""
    placed, before = [], 0
    for one in sorted(keeps, key=lambda kept: -kept.bytes_each):
        placed.append(Placed(one.stmt, one.type, before))
        before += one.bytes_each
    return tuple(placed)


def kept_bytes(keeps: tuple[Kept, ...]) -> int:
    """Bytes an element that are kept."""
    return sum(one.bytes_each for one in keeps)


def shared_text(case: Case, shape: Shape) -> str:
    """Shared memory of a block in bytes, over tunables in braces."""
    share = "{THREADS} * {CLUSTER}" if shape.group == "cluster" else "{THREADS}"
    each = kept_bytes(case.keeps(case.along_rows))
    step = f"({share} * {{VECTOR}})"
    return f"({case.nest.columns} + {step} - 1) // {step} * {{THREADS}} * {{VECTOR}} * {each}"
