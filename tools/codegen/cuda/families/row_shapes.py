"""The ways to share a row: who works on it, where it stays, and the words for it."""

from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.printing.case import KIB

WARP = "warp_rows"
WARP_TURNED = "warp_rows_turned"
BLOCK_REGISTERS = "block_rows_registers"
BLOCK_SHARED = "block_rows_shared"
BLOCK_STREAM = "block_rows_stream"
CLUSTER_REGISTERS = "cluster_rows_registers"
CLUSTER_SHARED = "cluster_rows_shared"
CLUSTER_STREAM = "cluster_rows_stream"
SERIAL = "thread_rows"
NAMES = (
    WARP,
    BLOCK_REGISTERS,
    BLOCK_SHARED,
    BLOCK_STREAM,
    CLUSTER_REGISTERS,
    CLUSTER_SHARED,
    CLUSTER_STREAM,
)

# Beyond this, the rows that resident blocks read no longer fit the cache together.
LONG_ROW_BYTES = 128 * KIB


@dataclass(frozen=True)
class Shape:
    """Who shares a row and where it stays."""

    group: str
    keep: str
    title: str
    mechanism: str
    reason: str
    metric: str


SHAPES = {
    SERIAL: Shape(
        "warp",
        "none",
        "A thread a row, in order",
        "Each thread walks its own row from end to end, with several loads in flight, carrying "
        "running values and reductions along.",
        "Running values that feed reductions or other running values are known in order only.",
        "achieved occupancy",
    ),
    WARP: Shape(
        "warp",
        "registers",
        "Several rows a block, each within one warp",
        "A few lanes hold a row in registers and reduce it by shuffles.",
        "A short row leaves a block idle and its barriers exposed; lanes of one warp need "
        "neither barriers nor shared memory.",
        "warp stall at barriers",
    ),
    BLOCK_REGISTERS: Shape(
        "block",
        "registers",
        "A block a row, the row in registers",
        "All loads of a row are issued at once; every later pass runs from registers.",
        "The row is read from memory once however many passes it needs, and nothing is faster "
        "than a register.",
        "dram bytes read",
    ),
    BLOCK_SHARED: Shape(
        "block",
        "shared",
        "A block a row, the row in shared memory",
        "The first pass leaves the row in shared memory; later passes read it there.",
        "Reads the row from memory once where it is too long for registers, or leaves "
        "registers to more resident blocks.",
        "dram bytes read",
    ),
    BLOCK_STREAM: Shape(
        "block",
        "none",
        "A block a row, read again for each pass",
        "A block walks over its row with several vectors in flight, once for each pass.",
        "Works for rows of any length; a second read that the L2 answers costs little.",
        "L2 hit rate",
    ),
    CLUSTER_REGISTERS: Shape(
        "cluster",
        "registers",
        "A cluster a row, the row in registers",
        "The blocks of a cluster hold a share of the row each in registers and exchange "
        "partials through distributed shared memory.",
        "A row too long for one block is still read from memory only once.",
        "dram bytes read",
    ),
    CLUSTER_SHARED: Shape(
        "cluster",
        "shared",
        "A cluster a row, the row in shared memory",
        "The blocks of a cluster keep a share of the row each in shared memory and exchange "
        "partials through distributed shared memory.",
        "A row too long for one block is still read from memory only once, and long rows fit.",
        "dram bytes read",
    ),
    CLUSTER_STREAM: Shape(
        "cluster",
        "none",
        "A cluster a row, read again for each pass",
        "The blocks of a cluster walk over one row together, and again, backwards, for each "
        "later pass; partials go through distributed shared memory.",
        "With a cluster a row few rows are under way at a time, so that the L2 still has them "
        "when they are read again.",
        "L2 hit rate",
    ),
}
