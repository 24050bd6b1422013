"""The tunables of a row strategy: their values, the measured best guess first.

Also where kept values of a row lie in shared memory, and how much of it they take.
"""

from dataclasses import dataclass, replace

from kernelwright.tools.codegen.cuda.families.row_shapes import (
    BLOCK_REGISTERS,
    LONG_ROW_BYTES,
    SERIAL,
    SHAPES,
    Shape,
    access_bytes,
)
from kernelwright.tools.codegen.cuda.printing.case import (
    BLOCK_WORDS,
    KIB,
    LANE_WORDS,
    OTHER_WORDS,
    REGISTERS,
    ROW_WORDS,
    Case,
    first,
    powers,
)
from kernelwright.tools.codegen.cuda.printing.expressions import Tunables
from kernelwright.tools.codegen.cuda.printing.schedule import Kept
from kernelwright.tools.codegen.cuda.printing.vectors import Vectors
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


def shared_text(case: Case) -> str:
    """Shared memory of a block in bytes, over tunables in braces."""
    each = kept_bytes(case.keeps(case.along_rows))
    step = "({THREADS} * {VECTOR})"
    return f"({case.nest.columns} + {step} - 1) // {step} * {{THREADS}} * {{VECTOR}} * {each}"


_MOST_THREADS = 1024
# Words of one position of a row from which on a vector of positions is a matter of registers.
_WIDE_WORDS = 4
# Bytes that a thread of a block should ask for before it uses the first of them.
_UNDER_WAY_BYTES = 64
# Of a row in the registers of a cluster: with more words a thread, two blocks of the most threads
# that a block has by default do not fit a multiprocessor.
_FEW_WORDS, _REGISTER_THREADS = 32, 512


def tunables_of(case: Case, name: str, prefix: str) -> Tunables | None:
    """The tunables of a strategy; None when it does not fit."""
    shape = SHAPES[name]
    if shape.group == "cluster" and not (case.cluster_sizes and case.keeps(case.along_rows)):
        return None
    if name == SERIAL:
        tunables = Tunables(prefix).add("THREADS", (64, 32, 128, 256)).add("LANES", (1,))
        tunables.add("VECTOR", case.along_rows.widths).add("UNROLL", (8, 4, 16))
        return _hints(tunables, again=False)
    vectors = vectors_of_rows(case, name)
    if shape.group == "warp":
        return _warp_tunables(case, prefix)
    if shape.keep == "registers":
        return _register_tunables(case, shape, vectors, prefix)
    if shape.keep == "shared":
        return _shared_tunables(case, prefix)
    return _stream_tunables(case, shape, vectors, prefix)


def vectors_of_rows(case: Case, name: str) -> Vectors:
    """The vectors that a strategy moves rows in; their ends are peeled where that helps."""
    shape, peeled = SHAPES[name], case.peeled_rows
    if peeled is None or name == SERIAL or shape.group == "warp" or shape.keep == "shared":
        return case.along_rows
    if name == BLOCK_REGISTERS:
        # All of a row is asked for at once: narrow accesses were as fast wherever measured.
        return replace(peeled, widths=tuple(reversed(peeled.widths)))
    return peeled


def _stream_tunables(case: Case, shape: Shape, vectors: Vectors, prefix: str) -> Tunables | None:
    tunables, again = Tunables(prefix), len(case.schedule.passes) > 1
    if shape.group == "cluster":
        sizes = streaming_clusters(case)
        if not sizes:
            return None
        # Few threads with many loads each: three such blocks share a multiprocessor.
        tunables.add("THREADS", (256, 512, 128, 1024)).add("CLUSTER", sizes)
        tunables.add("VECTOR", vectors.widths).add("UNROLL", (8, 4, 2))
        return _hints(tunables, again=again)
    if _hopeless(case):
        return None
    sizes = _block_sizes(case, vectors, 1)
    if case.read_bytes > LONG_ROW_BYTES:
        # One row at a time on each multiprocessor: the fewer there are, the more stay in the L2.
        sizes = first(_MOST_THREADS, sizes)
    tunables.add("THREADS", sizes).add("VECTOR", vectors.widths)
    unroll = min(8, _UNDER_WAY_BYTES // access_bytes(case, vectors))
    return _hints(tunables.add("UNROLL", first(unroll, [4, 2, 8, 1])), again=again)


def _hopeless(case: Case) -> bool:
    """Whether a block a row leaves most of the device idle for long."""
    return 8 * case.nest.rows < case.multiprocessors and case.read_bytes > LONG_ROW_BYTES


def streaming_clusters(case: Case) -> list[int]:
    """Cluster sizes for rows that as many blocks as fit would push out of the L2."""
    row = case.read_bytes
    sizes = [n for n in case.cluster_sizes if 16 * KIB * n <= row]
    if row <= LONG_ROW_BYTES or len(case.schedule.passes) < 2 or not sizes:
        return []
    # Eight is what every device with clusters can place well; more only for the longest shares.
    return first(16 if row > 8 * LONG_ROW_BYTES else 8 if row >= 2 * LONG_ROW_BYTES else 4, sizes)


def _warp_tunables(case: Case, prefix: str) -> Tunables | None:
    columns, widths = case.nest.columns, case.along_rows.widths
    vectors = max(1, columns // widths[0])
    lanes = [n for n in powers(1, 32) if columns * case.row_words <= n * LANE_WORDS]
    if not lanes or -(-columns // lanes[-1]) * case.row_words > LANE_WORDS:
        return None
    tunables = Tunables(prefix).add("THREADS", (128, 256, 64, 512))
    tunables.add("LANES", first(min(32, vectors // 2 or 1), lanes)).add("VECTOR", widths)
    if case.row_words > _WIDE_WORDS:
        # Of wide positions a lane holds few: whole vectors of them would spill.
        held = f"({columns} + {{LANES}} * {{VECTOR}} - 1) // ({{LANES}} * {{VECTOR}}) * {{VECTOR}}"
        tunables.require(f"{held} * {case.row_words} <= {LANE_WORDS}")
    return _hints(tunables, again=False)


def _register_tunables(case: Case, shape: Shape, vectors: Vectors, prefix: str) -> Tunables | None:
    columns, words = case.nest.columns, case.row_words
    clusters = _register_clusters(case) if shape.group == "cluster" else [1]
    share = -(-columns * words // max(clusters))
    if share > BLOCK_WORDS or (shape.group == "cluster" and columns < 8192):
        return None
    least = share // ROW_WORDS
    # A block holds 32 words of a row a thread, so that several rows share a multiprocessor and
    # one loads while another computes; in a cluster 64, as fewer threads meet at its barrier.
    each = 16 if shape.group == "cluster" else 8
    sizes = _block_sizes(case, vectors, least, clusters[0], each)
    tunables = Tunables(prefix).add("THREADS", sizes).add("VECTOR", vectors.widths)
    group = "{THREADS}"
    if shape.group == "cluster":
        tunables.add("CLUSTER", clusters)
        group = "{THREADS} * {CLUSTER}"
    # Whole vectors a thread, so the last, partial one counts as full. A block's threads share
    # its registers, and each needs a few for everything else.
    step = f"({group} * {{VECTOR}})"
    held = f"({columns} + {step} - 1) // {step} * {{VECTOR}} * {words}"
    tunables.require(f"{held} <= min({ROW_WORDS}, {REGISTERS} // {{THREADS}} - {OTHER_WORDS})")
    return _hints(tunables, again=False)


def _register_clusters(case: Case) -> list[int]:
    """Cluster sizes, first the smallest that leaves a thread few words of the row."""
    held = case.nest.columns * case.row_words
    few = [n for n in case.cluster_sizes if held <= n * _REGISTER_THREADS * _FEW_WORDS]
    best = min(few, default=case.cluster_sizes[0])
    # More than the first of them is more than every device can place well.
    return first(min(best, case.cluster_sizes[0]), list(case.cluster_sizes))


def _shared_tunables(case: Case, prefix: str) -> Tunables | None:
    keeps = case.keeps(case.along_rows)
    if not keeps or case.nest.columns * kept_bytes(keeps) > case.shared_bytes:
        return None
    tunables = Tunables(prefix).add("THREADS", _block_sizes(case, case.along_rows, 1))
    tunables.add("VECTOR", case.along_rows.widths).add("UNROLL", (4, 2, 8, 1))
    tunables.require(f"{shared_text(case)} <= {case.shared_bytes}")
    return _hints(tunables, again=False)


def _hints(tunables: Tunables, *, again: bool) -> Tunables:
    """Cache hints: marking a read first to evict pays only for the second read of a row."""
    return tunables.add("LOADS", (1, 0) if again else (0, 1)).add("STORES", (1, 0))


def _block_sizes(
    case: Case, vectors: Vectors, least: int, blocks: int = 1, each: int = 4
) -> list[int]:
    """Threads a block: about `each` vectors a thread, never more than the row has vectors."""
    share = max(32, case.nest.columns // vectors.widths[0] // blocks)
    sizes = [n for n in powers(32, _MOST_THREADS) if least <= n <= 2 * share]
    return first(min(512, max(32, share // each)), sizes or [_MOST_THREADS])
