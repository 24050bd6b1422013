"""The strategy that keeps a part of each row in the shared memory of a cluster.

Several clusters share the multiprocessors, so that rows load, meet and store at different times;
what does not fit on chip is little enough to be still in the L2 when it is read again.
"""

from math import ceil

from agents.playbook.cuda.access import narrowed
from agents.playbook.cuda.body import Body
from agents.playbook.cuda.case import KIB, REGISTERS, Case, first
from agents.playbook.cuda.keeping import kept_bytes, offsets
from agents.playbook.cuda.partials import struct_bytes
from agents.playbook.cuda.peeling import PEELED, row_start
from agents.playbook.cuda.printing import Printer
from agents.playbook.cuda.rendering import Launch, Tunables, buffer_arguments, complete, render
from agents.playbook.cuda.row_tunables import streaming_clusters
from agents.playbook.cuda.schedule import Kept
from agents.playbook.cuda.vectors import Vectors
from agents.playbook.ir import Emitted, Strategy

PARTLY = "cluster_rows_partly"
NAMES = (PARTLY,)
_TITLE = "A cluster a row, part of it in shared memory"
# Two blocks of many threads: rows take turns, and a thread still has the registers for a batch.
_THREADS, _BLOCKS = 512, 2
_UNROLLS = (4, 2, 8)
# Values of a batch that a thread can have besides what it computes.
_BATCH_VALUES = 32
# Shares of a row that are wanted: a little more than two blocks of a multiprocessor can hold. With
# 128 KiB each, clusters were fastest on rows of 0.5 and 1 MiB; half of that took 1.2 to 1.7 times
# as long (one H200).
_SHARE_BYTES = 144 * KIB
# Blocks of a cluster that every device with clusters can run together.
_PLACED = 8
# Of shared memory, besides the row: the system's, and what the blocks of a cluster exchange.
_SYSTEM_BYTES = 1024
_FEWEST_REGISTERS = 64
# Measured on one H200, where little or nothing came from memory twice: 0.84 of the bandwidth with
# two passes over rows of 1 and 1.5 MiB; of that, what rows read in accesses of 4 bytes leave.
_EFFICIENCY, _NARROW = 0.865, 0.71
# Where all of a row is held, no block reduces while its copies come (rows of 256 KiB).
_HELD_WHOLE = 0.95


def strategies(case: Case) -> list[Strategy]:
    """Part of the row on chip, where clusters share rows that need more than one pass."""
    if not _fits(case):
        return []
    passes = len(case.schedule.passes)
    return [
        Strategy(
            name=PARTLY,
            title=_TITLE,
            mechanism="Asynchronous copies bring as much of a row as fits into the shared memory "
            "of a cluster's blocks, while the rest is read and reduced; later passes read that "
            "rest again, the other part where it lies.",
            reason="Several rows share the multiprocessors, so that one loads while another "
            "meets or stores, and still only little of them has to stay in the L2.",
            category="memory",
            metric="dram bytes read",
            memory="row partly in shared memory, asynchronous copies",
            compute=f"{passes} passes",
            parallel="cluster per row",
            bytes_read_factor=_reads(case),
            efficiency=_efficiency(case),
        )
    ]


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a loop whose rows stay partly on chip.

    Raises:
        ValueError: When it does not fit.
    """
    if not _fits(case):
        raise ValueError(f"{case.loop.name}: {name} does not fit")
    nest, keeps = case.nest, _keeps(case)
    vectors = _vectors(case)
    printer = Printer(nest, vectors)
    body = Body(printer, case.schedule, prefix)
    held = Body(printer, case.schedule, prefix, keeps, preloaded=True)
    streamed = body.passes()
    names = {f"raw_{one.stmt.name}" for one in keeps}
    tunables = _tunables(case, prefix)
    source = render(
        "partly",
        title=_TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        streamed=streamed,
        passes=held.passes(),
        copied=[load for load in streamed[0].loads if load.raw in names],
        keeps=offsets(keeps),
        kept_bytes=kept_bytes(keeps),
        room=tunables.named(_room_text(case, "/")),
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
    named = tunables.named
    launch = Launch(
        f"{prefix}_partly",
        named(f"{nest.rows} * {{CLUSTER}}"),
        named("{THREADS}"),
        named(_shared_text(case)),
        named("{CLUSTER}"),
    )
    text, plan = complete(source, buffer_arguments(nest), [launch])
    return Emitted(source=text, plan=plan)


def _fits(case: Case) -> bool:
    return bool(
        len(case.schedule.passes) > 1 and _keeps(case) and _widths(case) and _clusters(case)
    )


def _vectors(case: Case) -> Vectors:
    """What moves rows; the ends of those that lie at odd places are peeled."""
    return case.peeled_rows or case.along_rows


def _keeps(case: Case) -> tuple[Kept, ...]:
    return case.keeps(_vectors(case), loads_only=True)


def _widths(case: Case) -> list[int]:
    """Vectors that an asynchronous copy can move: 4, 8 or 16 bytes for every kept load."""
    sizes = [one.bytes_each for one in _keeps(case)]
    widths = _vectors(case).widths
    fitting = [width for width in widths if all(width * size in (4, 8, 16) for size in sizes)]
    # Of rows that are peeled, the widest and the narrowest, which peels nothing where it fits.
    return fitting[:2] if case.peeled_rows is None else fitting[:: max(1, len(fitting) - 1)]


def _clusters(case: Case) -> list[int]:
    """Cluster sizes, first the smallest whose shares are nearly held whole, else the largest.

    What only some devices can place is tried but never first: with blocks of 512 threads clusters
    of 16 took 1.2 to 1.7 times as long as clusters of 8, though more of a row stayed on chip.
    """
    sizes = streaming_clusters(case)
    placed = [size for size in sizes if size <= _PLACED] or sizes
    whole = [size for size in placed if case.read_bytes <= size * _SHARE_BYTES]
    return first(min(whole, default=max(placed)), sizes) if sizes else []


def _unrolls(case: Case) -> list[int]:
    """Vectors a batch, first the most whose values a thread can have at once."""
    places = (case.nest.places[stmt.name] for stmt in case.loop.body if stmt.op == "load")
    loads = len({place.buffer for place in places if any(place.inner[-1:])})
    width = _widths(case)[0]
    few = [n for n in _UNROLLS if n * width * loads <= _BATCH_VALUES]
    return first(min(_UNROLLS[0], max(few, default=min(_UNROLLS))), list(_UNROLLS))


def _tunables(case: Case, prefix: str) -> Tunables:
    tunables = Tunables(prefix).add("THREADS", first(_THREADS, [128, 256, 512]))
    tunables.add("CLUSTER", _clusters(case)).add("VECTOR", _widths(case))
    tunables.add("UNROLL", _unrolls(case)).add("BLOCKS", first(_BLOCKS, [2, 3, 4]))
    tunables.add("LOADS", (1, 0)).add("STORES", (1, 0))
    # Fewer registers a thread than this would spill.
    return tunables.require(f"{{THREADS}} * {{BLOCKS}} <= {REGISTERS // _FEWEST_REGISTERS}")


def _reserved_bytes(case: Case) -> int:
    """Shared memory of a block that holds none of the row."""
    printer = Printer(case.nest, _vectors(case))
    parts = [printer.members(one) for one in case.schedule.reducing]
    # A partial for each of at most 32 warps, and one for the block.
    return _SYSTEM_BYTES + sum(33 * struct_bytes(members) + 16 for members in parts)


def _room_text(case: Case, divide: str) -> str:
    """Bytes of a row that a block can hold, over tunables in braces."""
    whole = case.shared_bytes + 3 * KIB
    return f"({whole} {divide} {{BLOCKS}} - {_reserved_bytes(case)})"


def _shared_text(case: Case) -> str:
    """Shared memory of a block: whole batches, as the kernel counts them."""
    batch = "({UNROLL} * {THREADS} * {VECTOR})"
    batches = f"ceil_div({case.nest.columns}, {batch} * {{CLUSTER}})"
    held = f"{batch} * {kept_bytes(_keeps(case))}"
    return f"min({_room_text(case, '//')} // ({held}), {batches}) * {held}"


def _reads(case: Case) -> float:
    """How often a row comes from memory: what is not on chip meets what the L2 still has."""
    blocks = case.multiprocessors * _BLOCKS
    share, again = _share(case)
    found = min(1.0, 1.25 * case.cache_bytes / (again * blocks)) if again else 1.0
    passes = len(case.schedule.passes)
    return round(1 + (passes - 1) * (again / share) * (1 - found), 3)


def _share(case: Case) -> tuple[int, int]:
    """Bytes of a row that a block has, and how many of them are read again."""
    share = ceil(case.read_bytes / _clusters(case)[0])
    room = (case.shared_bytes + 3 * KIB) // _BLOCKS - _reserved_bytes(case)
    return share, max(0, share - room)


def _efficiency(case: Case) -> float:
    """The share of bandwidth to expect: rows must fill the device more than once."""
    filled = min(1.0, case.nest.rows * _clusters(case)[0] / (2 * case.multiprocessors * _BLOCKS))
    vectors = _vectors(case)
    base = (_EFFICIENCY - 0.01 * len(case.schedule.passes)) * narrowed(case, _NARROW, vectors)
    if vectors is not case.along_rows:
        base *= PEELED
    if _share(case)[1] == 0:
        base *= _HELD_WHOLE
    return round(base * max(filled, 0.02), 3)
