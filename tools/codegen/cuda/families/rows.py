"""Strategies that give each row to a group of threads: in a warp, a block or a cluster.

The row is read once and stays in registers or shared memory, or, where it does not fit, is read
again for every pass.
"""

from kernelwright.tools.codegen.cuda.families.keeping import offsets, shared_text
from kernelwright.tools.codegen.cuda.families.row_priors import strategy
from kernelwright.tools.codegen.cuda.families.row_shapes import NAMES, SERIAL, SHAPES
from kernelwright.tools.codegen.cuda.families.row_tunables import tunables_of, vectors_of_rows
from kernelwright.tools.codegen.cuda.families.taking import row_family
from kernelwright.tools.codegen.cuda.printing.body import Body
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.peeling import row_start
from kernelwright.tools.codegen.cuda.printing.printing import Printer
from kernelwright.tools.codegen.cuda.printing.rendering import (
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    render,
)
from kernelwright.tools.codegen.ir import Emitted, Strategy


def strategies(case: Case) -> list[Strategy]:
    """The ways to give a row to a group of threads that fit this loop and device."""
    return [strategy(case, name) for name in NAMES if tunables_of(case, name, "x") is not None]


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a row loop.

    Raises:
        ValueError: When the strategy does not fit.
    """
    tunables = tunables_of(case, name, prefix)
    if tunables is None:
        raise ValueError(f"{case.loop.name}: {name} does not fit")
    shape, nest, vectors = SHAPES[name], case.nest, vectors_of_rows(case, name)
    keeps = case.keeps(vectors) if shape.keep != "none" else ()
    printer = Printer(nest, vectors)
    schedule = case.schedule_in_order if name == SERIAL else case.schedule
    body = Body(printer, schedule, prefix, keeps)
    source = render(
        "rows",
        title=shape.title,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        group=shape.group,
        keep=shape.keep,
        turns=shape.keep == "none" and name != SERIAL,
        keeps=offsets(keeps),
        index=printer.index,
        row_index=printer.row_index,
        rows=nest.rows,
        columns=nest.columns,
        row_decode=printer.row_decode(),
        before=body.before,
        before_stores=body.before_stores,
        passes=body.passes(),
        # Where rows are peeled, how far the row's start lies from a multiple of 16 bytes.
        start="" if vectors is case.along_rows else printer.base(row_start(nest, vectors)),
    )
    text, plan = complete(source, buffer_arguments(nest), [_launch(case, name, prefix, tunables)])
    return Emitted(source=text, plan=plan)


def _launch(case: Case, name: str, prefix: str, tunables: Tunables) -> Launch:
    shape, rows = SHAPES[name], case.nest.rows
    grid, cluster = str(rows), ""
    if shape.group == "warp":
        grid = f"ceil_div({rows}, {{THREADS}} // {{LANES}})"
    if shape.group == "cluster":
        grid, cluster = f"{rows} * {{CLUSTER}}", "{CLUSTER}"
    shared = shared_text(case, shape) if shape.keep == "shared" else ""
    named = tunables.named
    return Launch(f"{prefix}_rows", named(grid), named("{THREADS}"), named(shared), named(cluster))


ROW_FAMILY = row_family(NAMES, strategies, emit)
