"""Strategy for sums over windows that neighbouring outputs share, several at once.

Depthwise convolutions, and formulas of several of them (means, variances and covariances of two
images under one blur). A thread holds the sums of outputs that lie side by side across the lanes.
For each column of the window it takes the weights of that column into registers, then goes through
the lines that its outputs see: a line's values are read and computed once, and added to every sum
that sees them. Lanes are neighbours in memory, so every read is contiguous, and needs no staging:
the nearest cache holds what the threads of a block share. Tiles whose windows lie inside carry no
conditions. What is made of the sums follows before anything is stored.

Outputs past the end belong to a tile that begins earlier: it computes some again, and stores none
of those.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kernelwright.tools.codegen.cuda.families.window_walks import (
    OF_RATE,
    THREADS_NEEDED,
    read_instructions,
)
from kernelwright.tools.codegen.cuda.families.windows import channel_windows
from kernelwright.tools.codegen.cuda.families.windows.sums_code import SumsCode
from kernelwright.tools.codegen.cuda.printing.case import Case, first, powers
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    render,
)
from kernelwright.tools.codegen.ir import Emitted, Loop, Stmt, Strategy
from kernelwright.tools.codegen.ir.contraction import contraction_of
from kernelwright.tools.codegen.ir.kernel_family import Fit, LoopFamily
from kernelwright.tools.codegen.ir.roofline import statement_flops
from kernelwright.tools.codegen.ir.sliding import (
    MOST_OUTPUTS,
    Level,
    SlidingSums,
    sliding_sums,
)

WINDOW_SUMS = "window_sums"
NAMES = (WINDOW_SUMS, channel_windows.NAME)
TITLE = "Sums over windows of neighbouring outputs in a thread's registers"
# Words of sums and weights that a thread may hold, and those that leave room for many threads.
_MOST_WORDS = 128
_GOOD_WORDS = 64
# A tap is a test and a step of an unrolled loop.
_MOST_TAPS = 127


def sums_of(loop: Loop) -> SlidingSums | None:
    """The sums that the strategy takes; None for others and for products of matrices."""
    found = sliding_sums(loop)
    if found is None or found.tap.size > _MOST_TAPS or _words(found, 1) > _MOST_WORDS:
        return None
    product = contraction_of(loop)
    return None if product is not None and product.is_matrix_product else found


def fits(case: Case) -> Fit:
    """Whether the loop is such sums."""
    return Fit.BEST if sums_of(case.loop) is not None else Fit.NO


def fills(case: Case) -> bool:
    """Whether there are outputs for as many threads as the device needs; each sums alone."""
    return case.loop.rows >= _threads_needed(case)


def _threads_needed(case: Case) -> int:
    return case.multiprocessors * THREADS_NEEDED


def strategies(case: Case) -> list[Strategy]:
    """A line of outputs a thread, and a tile of channels where they lie together; by their time."""
    sums = _sums(case)
    found = [_in_lines(case, sums)]
    if channel_windows.takes(sums):
        found.append(channel_windows.strategy(case, sums))
    return sorted(found, key=lambda one: predicted(case, one))


def _in_lines(case: Case, sums: SlidingSums) -> Strategy:
    moved = sum(case.moved_bytes)
    by_memory = moved / (case.hardware.bandwidth_gb_s * 1e6)
    share = by_memory / max(by_memory, _busy_ms(case, sums))
    return Strategy(
        name=WINDOW_SUMS,
        title=TITLE,
        mechanism="A thread keeps all sums of several outputs in registers and goes through "
        "the lines under their windows: each line's values are read and computed once for "
        "every sum and every output that sees them; what is made of the sums follows at once.",
        reason="Windows over one input read the same elements: one after the other they move "
        "every input and every result through memory, and compute each value once a tap.",
        category="fusion",
        metric="fma pipe",
        memory="windows in registers",
        compute="sums together",
        parallel="outputs per thread",
        efficiency=round(0.85 * share, 4),
    )


def predicted(case: Case, strategy: Strategy) -> float:
    """Memory's time or the instructions', whichever is longer."""
    by_memory = sum(case.moved_bytes) / (case.hardware.bandwidth_gb_s * 1e6 * 0.85)
    launches = strategy.launches * case.hardware.launch_us / 1e3
    busy_ms = _busy_ms if strategy.name == WINDOW_SUMS else channel_windows.busy_ms
    return max(by_memory, busy_ms(case, _sums(case))) + launches


def _busy_ms(case: Case, sums: SlidingSums) -> float:
    """Time of instructions: some for each tap of an output, some for each line of a thread."""
    outputs = _outputs(case, sums)[0]
    # A product that only its sum needs is one instruction with it.
    pairs = max(_instructions(sums, Level.PAIR), len(sums.reductions))
    each = sums.tap.size * (outputs * pairs + _instructions(sums, Level.TAP))
    each += sums.lines(outputs) * _instructions(sums, Level.LINE)
    tiles = sums.loop.rows / outputs * prod(axis.size for axis in sums.columns)
    busy = min(1.0, sums.loop.rows / outputs / _threads_needed(case))
    return each * tiles / (case.hardware.fp32_tflops / 2 * 1e9 * OF_RATE * busy)


def _instructions(sums: SlidingSums, level: Level) -> float:
    """Of a level's statements; conditions cost nothing where windows lie inside."""
    of_level = (stmt for stmt in sums.under() if sums.level(stmt.name) is level)
    counted = [stmt for stmt in of_level if stmt.dtype.is_floating and stmt.op != "where"]
    return sum(
        _read_cost(sums, s) if s.op == "load" else (statement_flops(s) + 1) // 2 for s in counted
    )


def _read_cost(sums: SlidingSums, load: Stmt) -> float:
    """Instructions that a read stands for: more where lanes read far from each other."""
    assert load.access is not None
    steps = {stride.by: stride.step for stride in sums.where(load.access).steps}
    apart = abs(steps.get(sums.lane.name, 0)) * load.access.dtype.itemsize_bytes
    return read_instructions(apart)


def _sums(case: Case) -> SlidingSums:
    found = sums_of(case.loop)
    if found is None:
        raise ValueError(f"{case.loop.name}: no sums over windows that neighbours share")
    return found


def _words(sums: SlidingSums, outputs: int) -> int:
    """Registers of so many outputs: their sums, and the weights of a column."""
    wide = 2 if any(one.dtype.itemsize_bytes > 4 for one in sums.reductions) else 1
    return wide * (len(sums.reductions) * outputs + len(sums.kept) * sums.tap.size)


def _outputs(case: Case, sums: SlidingSums) -> list[int]:
    """How many outputs a thread may take, the best guess first."""
    sizes = powers(1, min(MOST_OUTPUTS, sums.output.size))
    fitting = [n for n in sizes if _words(sums, n) <= _MOST_WORDS]
    every = sums.loop.rows
    needed = case.multiprocessors * THREADS_NEEDED
    good = [n for n in fitting if _words(sums, n) <= _GOOD_WORDS and every >= n * needed]
    return first(max(good, default=1), fitting)


def emit(case: Case, name: str, prefix: str) -> Emitted:
    """Print a loop of sums over windows.

    Raises:
        ValueError: When the loop is none.
    """
    sums = _sums(case)
    if name == channel_windows.NAME:
        return channel_windows.emit(case, sums, prefix)
    code = SumsCode(sums)
    tunables = Tunables(prefix)
    tunables.add("THREADS", (128, 256, 64)).add("OUTPUTS", _outputs(case, sums))
    source = render(
        "window_sums",
        title=TITLE,
        prefix=tunables.prefix,
        name=prefix,
        tunables=tunables.text(),
        sums=sums,
        code=code,
    )
    others = prod(axis.size for axis in sums.walked if axis is not sums.output)
    tiles = f"{others} * ceil_div({sums.output.size}, {{OUTPUTS}})"
    grid = tunables.named(f"ceil_div({tiles}, {{THREADS}})")
    launch = Launch(f"{prefix}_sums", grid, tunables.named("{THREADS}"))
    text, plan = complete(source, buffer_arguments(case.nest), [launch])
    return Emitted(source=text, plan=plan)


@dataclass(frozen=True)
class WindowSumFamily(LoopFamily[Case]):
    """The family; its time is told by instructions, of which the roofline counts too many."""

    def predicted_ms(self, case: Case, strategy: Strategy, /) -> float:
        """What the instructions take."""
        return predicted(case, strategy)


WINDOW_SUM_FAMILY = WindowSumFamily(NAMES, fits, strategies, emit)
