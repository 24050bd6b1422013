"""The strategy for loops that reduce nothing: every element on its own."""

from kernelwright.tools.codegen.cuda.families.row_shapes import access_bytes, element_family
from kernelwright.tools.codegen.cuda.families.tiles.strips import one_by_one
from kernelwright.tools.codegen.cuda.families.tiles.transposed import across_of
from kernelwright.tools.codegen.cuda.printing.case import Case, first
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.printing.kernels import Body
from kernelwright.tools.codegen.cuda.printing.printing import Printer
from kernelwright.tools.codegen.cuda.printing.vectors import MOVED_BYTES
from kernelwright.tools.codegen.ir import Emitted, Strategy

TILES = "pointwise_tiles"
NAMES = (TILES,)

# What is left where reads lie along another axis than writes: each moves a sector (an H200,
# benchmarks/results/h200/strategies.jsonl).
_SCATTERED = 0.15
_TITLE = "One tile a block, wide independent loads"


def strategies(case: Case) -> list[Strategy]:
    """A tile a block, which fits every pointwise loop."""
    broadcasts = len(case.nest.walked) > 1
    share = one_by_one(case) * (_SCATTERED if across_of(case) is not None else 1.0)
    decode = "; broadcasts are decoded with constant divisors" if broadcasts else ""
    return [
        Strategy(
            name=TILES,
            title=_TITLE,
            mechanism=f"Each block moves one small tile in 16-byte accesses and ends{decode}.",
            reason="Every operand is read once and every result written once, so the time is the "
            "traffic's; many short blocks keep reads and writes in flight at the same places.",
            category="memory",
            metric="dram throughput",
            memory="single pass, vectors",
            compute="fused chain",
            parallel="tile per block",
            efficiency=0.97 * share,
        )
    ]


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a pointwise loop."""
    nest, vectors = case.nest, case.along_rows
    printer = Printer(nest, vectors)
    body = Body(printer, case.schedule, prefix)
    tunables = Tunables(prefix)
    # Small blocks and plain stores: 2.98 to 3.09 ms for activations of 6.4 GB on H200s, where
    # blocks of 256 with streaming stores took 3.01 to 3.16 (round "waves").
    tunables.add("THREADS", (128, 256, 512, 1024)).add("VECTOR", vectors.widths)
    # One vector a thread and many small blocks: 3.02 ms for a ReLU of 6.4 GB on an H200, where four
    # a thread took 3.17 to 3.30 (round "streams", benchmarks/results/h200/strategies.jsonl). Of
    # narrower accesses as many as bring the same bytes.
    alike = MOVED_BYTES // access_bytes(case, vectors)
    tunables.add("UNROLL", first(min(8, alike), [1, 2, 4, 8]))
    tunables.add("LOADS", (0, 1)).add("STORES", (0, 1))
    source = render(
        "pointwise",
        title=_TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        index=printer.index,
        columns=nest.columns,
        before=(*printer.row_decode(), *body.before),
        before_stores=body.before_stores,
        passes=body.passes(),
    )
    tiles = tunables.named(f"ceil_div({nest.columns}, {{THREADS}} * {{VECTOR}} * {{UNROLL}})")
    launch = Launch(f"{prefix}_map", tiles, tunables.named("{THREADS}"))
    text, plan = complete(source, buffer_arguments(nest), [launch])
    return Emitted(source=text, plan=plan)


POINTWISE_FAMILY = element_family(NAMES, strategies, emit)
