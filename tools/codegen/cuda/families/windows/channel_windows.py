"""Strategy for sums over windows where the channels of a position lie together.

A thread takes a few neighbouring channels, as a vector, and a tile of outputs: some along the lines
of the window, some across them. For each row of samples that the tile sees it reads the row's
samples once, as vectors, and adds them to every output of the tile that sees them. Weights are the
same for all positions of a channel, so a block computes those of its channels once and keeps them
in shared memory, where a warp's reads meet in no bank. Rows and lines of padding are left out where
every product would be zero.

Not here: windows whose weights differ by position, samples that lanes read apart from each other.
"""

from __future__ import annotations

from math import prod

from kernelwright.tools.codegen.cuda.families.windows.channel_code import (
    ChannelCode,
    ChannelScopes,
)
from kernelwright.tools.codegen.cuda.printing.case import KIB, Case, first
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    render,
)
from kernelwright.tools.codegen.ir import Access, Emitted, Stmt, Strategy
from kernelwright.tools.codegen.ir.loops import axis_names
from kernelwright.tools.codegen.ir.roofline import statement_flops
from kernelwright.tools.codegen.ir.sliding import Level, SlidingSums

NAME = "channel_windows"
TITLE = "Sums over windows: channels as vectors, a tile of outputs in a thread's registers"
# Sums that a thread may hold, in words, and what a block's weights may take.
_MOST_WORDS, _SHARED_BYTES = 64, 46 * KIB
_OUTPUTS = (7, 8, 4, 5, 6, 3, 2, 1)
_ROWS = (4, 2, 1)
_SIDES = (32, 16, 8, 4, 2, 1)
_THREADS = 256
# What the estimate takes for granted: the share of the instructions' rate (so that first settings
# are predicted within 15 % of what ConvNeXt's four windows took on an H200: 85, 57, 35 and 19 us,
# where the library took 219, 121, 69 and 47; benchmarks/results/h200/channel_windows.jsonl), and
# instructions for a vector of samples, a vector of weights and a result.
_OF_RATE, _SAMPLE, _WEIGHT, _RESULT = 0.42, 4, 1, 6


def takes(sums: SlidingSums) -> bool:
    """Whether samples of a position are one vector, and weights the same for all positions."""
    scopes = ChannelScopes(sums)
    return (
        bool(scopes.samples)
        and bool(scopes.widths())
        and _samples_are_vectors(scopes)
        and _weights_are_shared(scopes)
        and _conditions_are_shared(sums)
        and not any(stmt.op == "load" for stmt in scopes.pairs)
        and _least_shared(sums) <= _SHARED_BYTES
    )


def _samples_are_vectors(scopes: ChannelScopes) -> bool:
    sums = scopes.sums
    for stmt in scopes.behind(scopes.samples):
        if stmt.op == "load" and any(sums.varies(name) for name in stmt.args):
            return False
        if stmt.access is not None and not _is_placed(sums, stmt.access):
            return False
    return all(_is_placed(sums, store.access) for store in sums.loop.stores)


def _is_placed(sums: SlidingSums, access: Access) -> bool:
    """Whether an address is affine in the axes' positions."""
    known = {*axis_names(sums.loop), *sums.places}
    return all(stride.by in known for stride in access.strides)


def _weights_are_shared(scopes: ChannelScopes) -> bool:
    sums = scopes.sums
    inner = {sums.lane.name, *(axis.name for axis in sums.loop.inner)}
    return all(sums.sees(stmt.name) <= inner for stmt in scopes.behind(scopes.weights))


def _conditions_are_shared(sums: SlidingSums) -> bool:
    """Whether no condition asks for a channel, and those of lines for nothing but the line."""
    line = {sums.output.name, sums.tap.name}
    for stmt in sums.under():
        side = sums.sides.get(stmt.name)
        if side is None:
            continue
        axes = {stride.by for stride in side.steps}
        if sums.lane.name in axes or (sums.level(stmt.name) is Level.LINE and not axes <= line):
            return False
    return True


def _least_shared(sums: SlidingSums) -> int:
    return _shared_bytes(sums, 1, 1)


def _shared_bytes(sums: SlidingSums, side: int, vector: int) -> int:
    """What the weights of a block's channels take."""
    weights = ChannelScopes(sums).weights
    taps = prod(axis.size for axis in sums.loop.inner)
    return taps * (side + 1) * vector * sum(s.dtype.itemsize_bytes for s in weights)


def strategy(case: Case, sums: SlidingSums) -> Strategy:
    """The strategy, with the share of bandwidth that its instructions leave."""
    by_memory = sum(case.moved_bytes) / (case.hardware.bandwidth_gb_s * 1e6)
    share = by_memory / max(by_memory, busy_ms(case, sums))
    return Strategy(
        name=NAME,
        title=TITLE,
        mechanism="Neighbouring threads take neighbouring channels, a vector each, and a tile of "
        "positions: a sample is read once for all outputs of the tile that see it. Weights of a "
        "block's channels lie in shared memory; what is made of the sums follows at once.",
        reason="With channels last every read of a position is one line of memory, and weights lie "
        "far apart: read for each output, they take longer than the sums.",
        category="parallelism",
        metric="fma pipe",
        memory="tiles of channels in registers",
        compute="sums together",
        parallel="channels across lanes",
        efficiency=round(0.85 * share, 4),
    )


def busy_ms(case: Case, sums: SlidingSums) -> float:
    """Time of the instructions: for rows of samples under a tile, and taps of its outputs."""
    scopes, across = ChannelScopes(sums), sums.across()
    vector, outputs, rows = _tile(sums)
    taps, columns = sums.tap.size, prod(axis.size for axis in sums.columns)
    pairs = max(sum(map(_cost, scopes.pairs)), len(sums.reductions))
    seen = (rows - 1) * across.step + across.tap.size if across else 1
    walks = columns // across.tap.size if across else columns
    each = walks * seen * sums.lines(outputs) * (_SAMPLE + vector * sum(map(_cost, scopes.samples)))
    each += rows * columns * taps * (_WEIGHT * len(scopes.weights) + outputs * vector * pairs)
    each += rows * outputs * vector * _RESULT
    tall = -(-across.output.size // rows) / across.output.size if across else 1.0
    wide = -(-sums.output.size // outputs) / sums.output.size
    threads = case.loop.rows * wide * tall / vector
    busy = min(1.0, threads / (case.multiprocessors * _THREADS))
    return each * threads / (case.hardware.fp32_tflops / 2 * 1e9 * _OF_RATE * busy)


def _cost(stmt: Stmt) -> int:
    """Instructions of a statement for a lane; of a read of halves a conversion is left."""
    if not stmt.dtype.is_floating or stmt.op in ("where", "const"):
        return 0
    if stmt.op == "load":
        return int(stmt.access is not None and stmt.access.dtype.itemsize_bytes < 4)
    return (statement_flops(stmt) + 1) // 2


def _tile(sums: SlidingSums) -> tuple[int, int, int]:
    """The first guess of lanes, outputs and rows."""
    (vector, *_), outputs = _widths(sums), _outputs(sums)[0]
    return vector, outputs, _rows(sums, vector, outputs)[0]


def _widths(sums: SlidingSums) -> list[int]:
    return ChannelScopes(sums).widths()


def _outputs(sums: SlidingSums) -> list[int]:
    """Neighbours along the lines: the number with the fewest lines to read for all outputs."""
    size = sums.output.size
    fits = [n for n in _OUTPUTS if n <= size and n * len(sums.reductions) <= _MOST_WORDS // 2]
    return first(min(fits, key=lambda n: -(-size // n) * (sums.lines(n) + n)), fits)


def _rows(sums: SlidingSums, vector: int, outputs: int) -> list[int]:
    across = sums.across()
    if across is None:
        return [1]
    words = vector * outputs * len(sums.reductions)
    fits = [n for n in _ROWS if n <= across.output.size]
    return first(max((n for n in fits if n * words <= _MOST_WORDS), default=1), fits)


def _sides(sums: SlidingSums, vector: int) -> list[int]:
    """Threads along the channels: as many as leave the fewest idle in a block of whole channels."""
    groups = sums.lane.size // vector
    fits = [n for n in _SIDES if n < 2 * groups and _shared_bytes(sums, n, vector) <= _SHARED_BYTES]
    best = min(fits, key=lambda n: (-(-groups // n) * n, -n)) if fits else 1
    return first(best, fits or [1])


def emit(case: Case, sums: SlidingSums, prefix: str) -> Emitted:
    """Prints a loop of sums over windows of neighbouring channels."""
    across = sums.across()
    code = ChannelCode(sums, across)
    tunables = _tunables(sums, prefix)
    walked = [axis for axis in sums.walked if axis.name != sums.lane.name]
    tiled = {sums.output.name, across.output.name if across else ""}
    others = [axis for axis in walked if axis.name not in tiled]
    column = "0"
    for axis in sums.columns:
        column = f"({column}) * {axis.size} + p_{axis.name}" if column != "0" else f"p_{axis.name}"
    source = render(
        "channel_windows",
        title=TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        sums=sums,
        across=across,
        code=code,
        walked=walked,
        others=others,
        column=column,
        columns=prod(axis.size for axis in sums.columns),
        sizes={axis.name: axis.size for axis in sums.loop.inner},
    )
    tiles = f"{prod(axis.size for axis in others)} * ceil_div({sums.output.size}, {{OUTPUTS}})"
    tiles += f" * ceil_div({across.output.size}, {{ROWS}})" if across else ""
    chunks = f"ceil_div({sums.lane.size}, {{SIDE}} * {{VECTOR}})"
    grid = tunables.named(f"ceil_div({tiles}, {{THREADS}} // {{SIDE}}) * {chunks}")
    launch = Launch(f"{prefix}_channels", grid, tunables.named("{THREADS}"))
    text, plan = complete(source, buffer_arguments(case.nest), [launch])
    return Emitted(source=text, plan=plan)


def _tunables(sums: SlidingSums, prefix: str) -> Tunables:
    vector, outputs, _ = _tile(sums)
    tunables = Tunables(prefix)
    tunables.add("THREADS", (128, 256, 64)).add("SIDE", _sides(sums, vector))
    tunables.add("VECTOR", _widths(sums)).add("OUTPUTS", _outputs(sums))
    tunables.add("ROWS", _rows(sums, vector, outputs))
    words = len(sums.reductions)
    tunables.require(f"{{VECTOR}} * {{OUTPUTS}} * {{ROWS}} * {words} <= {_MOST_WORDS}")
    each = _shared_bytes(sums, 0, 1)
    return tunables.require(f"({{SIDE}} + 1) * {{VECTOR}} * {each} <= {_SHARED_BYTES}")
