"""Strategies that keep a part of each row in the shared memory of the blocks that share it.

Several rows share the multiprocessors, so that they load, meet and store at different times;
what does not fit on chip is little enough to be still in the L2 when it is read again.
"""

from kernelwright.tools.codegen.cuda.families.keeping import offsets
from kernelwright.tools.codegen.cuda.families.partly_shape import BLOCKS, THREADS, Partly
from kernelwright.tools.codegen.cuda.families.taking import row_family
from kernelwright.tools.codegen.cuda.printing.body import Body
from kernelwright.tools.codegen.cuda.printing.case import KIB, REGISTERS, Case, first
from kernelwright.tools.codegen.cuda.printing.peeling import row_start
from kernelwright.tools.codegen.cuda.printing.printing import Printer
from kernelwright.tools.codegen.cuda.printing.rendering import (
    Argument,
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    render,
)
from kernelwright.tools.codegen.ir import Emitted, Strategy

PARTLY = "cluster_rows_partly"
GRID = "grid_rows_partly"
NAMES = (PARTLY, GRID)
_TITLES = {
    PARTLY: "A cluster a row, part of it in shared memory",
    GRID: "A group of resident blocks a row, most of it in shared memory",
}
_WHERE = {PARTLY: "of a cluster's blocks", GRID: "of blocks that meet through memory"}
_FEWEST_REGISTERS = 64  # a thread's; fewer would spill


def strategies(case: Case) -> list[Strategy]:
    """Part of the row on chip, where blocks share rows that need more than one pass."""
    shapes = {name: Partly(case, groups=name == GRID) for name in NAMES}
    return [_strategy(name, shape) for name, shape in shapes.items() if shape.fits]


def _strategy(name: str, shape: Partly) -> Strategy:
    passes = len(shape.case.schedule.passes)
    return Strategy(
        name=name,
        title=_TITLES[name],
        mechanism="Asynchronous copies bring as much of a row as fits into the shared memory "
        f"{_WHERE[name]}, while the rest is read and reduced; later passes read that rest again, "
        "the other part where it lies.",
        reason="Several rows share the multiprocessors, so that one loads while another "
        "meets or stores, and still only little of them has to stay in the L2.",
        category="memory",
        metric="dram bytes read",
        memory="row partly in shared memory, asynchronous copies",
        compute=f"{passes} passes",
        parallel="resident blocks per row" if shape.groups else "cluster per row",
        bytes_read_factor=shape.reads,
        efficiency=shape.efficiency,
        launches=2 if shape.groups else 1,
    )


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a loop whose rows stay partly on chip.

    Raises:
        ValueError: When it does not fit.
    """
    shape = Partly(case, groups=name == GRID)
    if not shape.fits:
        raise ValueError(f"{case.loop.name}: {name} does not fit")
    nest, keeps, vectors = case.nest, shape.keeps, shape.vectors
    printer = Printer(nest, vectors)
    body = Body(printer, case.schedule, prefix)
    held = Body(printer, case.schedule, prefix, keeps, preloaded=True)
    streamed = body.passes()
    names = {f"raw_{one.stmt.name}" for one in keeps}
    tunables = _tunables(shape, prefix)
    source = render(
        "partly",
        title=_TITLES[name],
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        members=tunables.named(_members(shape)),
        grid=shape.groups,
        streamed=streamed,
        passes=held.passes(),
        copied=[load for load in streamed[0].loads if load.raw in names],
        keeps=offsets(keeps),
        kept_bytes=shape.kept_bytes,
        room=tunables.named(_room_text(shape, "/")),
        index=printer.index,
        row_index=printer.row_index,
        rows=nest.rows,
        columns=nest.columns,
        row_decode=printer.row_decode(),
        # Where rows are peeled, how far the row's start lies from a multiple of 16 bytes.
        start="" if vectors is case.along_rows else printer.base(row_start(nest, vectors)),
        before=body.before,
        before_stores=body.before_stores,
    )
    launch = Launch(
        f"{prefix}_partly",
        tunables.named(f"{nest.rows} * {_members(shape)}"),
        tunables.named("{THREADS}"),
        tunables.named(_shared_text(shape)),
        "" if shape.groups else tunables.named("{CLUSTER}"),
    )
    # What the blocks of a row tell each other, pass by pass.
    parts = {
        f"parts{code.number}": tunables.named(
            f"ceil_div({nest.rows} * {_members(shape)} * {code.part_bytes}, 8)"
        )
        for code in streamed
        if code.part and shape.groups
    }
    arguments = [Argument(one, f"long long* {one}", f"{prefix}_{one}") for one in parts]
    arguments.append(Argument("counters", "unsigned int* counters", f"{prefix}_counters"))
    text, plan = complete(source, [*buffer_arguments(nest), *arguments], [launch])
    lines = [f'{prefix}_{one} = empty(({words},), dtype="int64")' for one, words in parts.items()]
    if parts:
        count = 1 + len(parts) * nest.rows
        lines.append(f'{prefix}_counters = zeros(({count},), dtype="int32")')
    return Emitted(source=text, plan=(*lines, *plan))


def _members(shape: Partly) -> str:
    """How many blocks share a row, as a tunable in braces."""
    return "{GROUP}" if shape.groups else "{CLUSTER}"


def _tunables(shape: Partly, prefix: str) -> Tunables:
    tunables = Tunables(prefix).add("THREADS", first(THREADS, [128, 256, 512]))
    tunables.add(_members(shape).strip("{}"), shape.members).add("VECTOR", shape.widths)
    tunables.add("UNROLL", shape.unrolls).add("BLOCKS", first(BLOCKS, [2, 3, 4]))
    tunables.add("LOADS", shape.loads).add("STORES", (1, 0))
    # Fewer registers a thread than this would spill.
    return tunables.require(f"{{THREADS}} * {{BLOCKS}} <= {REGISTERS // _FEWEST_REGISTERS}")


def _room_text(shape: Partly, divide: str) -> str:
    """Bytes of a row that a block can hold, over tunables in braces."""
    whole = shape.case.shared_bytes + 3 * KIB
    return f"({whole} {divide} {{BLOCKS}} - {shape.reserved_bytes})"


def _shared_text(shape: Partly) -> str:
    """Shared memory of a block: whole batches, as the kernel counts them."""
    batch = "({UNROLL} * {THREADS} * {VECTOR})"
    batches = f"ceil_div({shape.case.nest.columns}, {batch} * {_members(shape)})"
    held = f"{batch} * {shape.kept_bytes}"
    return f"min({_room_text(shape, '//')} // ({held}), {batches}) * {held}"


PARTLY_FAMILY = row_family(NAMES, strategies, emit)
