"""What windows under a reduction cost: instructions, in every walk over a row that computes them.

A row that reduces what windows make of it (a norm behind a depthwise convolution, its own norm and
activation before it) computes each tap anew in each walk, for each of its positions: reads from the
nearest cache, positions in 64 bits, conditions, and what is made of an element before it is
weighed. What the first walk keeps is computed once. Bytes say nothing of that.

The figures are those of MobileNetV1's norms on an H200 (model_kernels_convolutions.jsonl; nine taps
in float32): where neighbours read neighbours, 169, 169, 47, 22 and 15 us were measured, and are
predicted within a quarter. Where windows move by two they were 36, 16, 8 and 7 us, and predictions
are up to 1.8 times that; windows over windows (`one_pass`) take up to 2.3 times what is
predicted, for reasons that are not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.printing.case import REGISTERS, Case
from kernelwright.tools.codegen.cuda.printing.schedule import Kept, Pass, uses
from kernelwright.tools.codegen.ir import Access, Stmt, Strategy
from kernelwright.tools.codegen.ir.kernel_family import LoopFamily
from kernelwright.tools.codegen.ir.loops import axis_names, statements_behind, varies_along
from kernelwright.tools.codegen.ir.roofline import statement_flops
from kernelwright.tools.types import DType

# The share of the instructions' rate, instructions that a read from the nearest cache stands for,
# and those for each line of it that a warp's read touches (one at a time for four schedulers).
OF_RATE, READ = 0.6, 5
A_LINE, LINE_BYTES, LANES = 4 * OF_RATE, 128, 32
# Threads that a multiprocessor needs to issue at that rate.
THREADS_NEEDED = 512
# Positions are computed in 64 bits: instructions of an addition or comparison, and of a product,
# which each step of an address by a computed position is too.
_WIDE, _WIDE_PRODUCT = 2, 4
# Registers of a thread: what it has for itself, and for each position that it holds, beside what is
# kept: an argument of the reduction and a value under way where windows are computed again, less
# where the argument itself is kept, more where vectors wait to be read (sm_90a: 224, 184, 128, 128,
# 72, 64, 48, 44 and 40 in MobileNetV1's kernels).
_OWN_WORDS, _AGAIN_WORDS, _ONCE_WORDS, _STREAMED_WORDS = 32, 2.0, 0.5, 4.75
_MOST_WORDS = 255


def lines_touched(bytes_apart: int) -> int:
    """Lines of the nearest cache that a warp's read touches, its lanes so many bytes apart."""
    return min(LANES, -(-LANES * abs(bytes_apart) // LINE_BYTES))


def read_instructions(bytes_apart: int) -> float:
    """Instructions that a read by lanes so many bytes apart stands for."""
    return max(READ, lines_touched(bytes_apart) * A_LINE)


@dataclass(frozen=True)
class Held:
    """What a strategy keeps of the first walk, and how much of a row a thread has at a time.

    `positions` are those that a thread of `threads` a block holds; none where that is not known,
    and threads are taken to fill a multiprocessor. `blocks` are those of the whole launch.
    """

    kept: tuple[Kept, ...] = ()
    positions: int = 0
    threads: int = 0
    blocks: int = 0


def nothing_held(case: Case, name: str) -> Held:
    """Of a strategy that computes windows in every walk."""
    return Held()


@dataclass(frozen=True)
class ReducingFamily(LoopFamily[Case]):
    """A family that reduces; windows under a reduction are bound by instructions, not by bytes."""

    held: Callable[[Case, str], Held] = nothing_held
    along_rows: bool = True

    def predicted_ms(self, case: Case, strategy: Strategy, /) -> float:
        """The roofline's time, or that of the windows' instructions."""
        by_bytes = super().predicted_ms(case, strategy)
        levels = case.loop.levels()
        if not reads_again(stmt for stmt in case.loop.body if levels[stmt.name] == "element"):
            return by_bytes
        held = self.held(case, strategy.name.removesuffix(f"_{strategy.rewrite}"))
        launches = strategy.launches * case.hardware.launch_us / 1e3
        return max(by_bytes, windows_ms(case, held, along_rows=self.along_rows) + launches)


def reads_again(stmts: Iterable[Stmt]) -> bool:
    """Whether some tensor is read at several places."""
    read = [stmt.access.buffer for stmt in stmts if stmt.op == "load" and stmt.access is not None]
    return len(read) > len(set(read))


def windows_ms(case: Case, held: Held, *, along_rows: bool) -> float:
    """The time of all walks' instructions."""
    costs = _Costs(case, held, along_rows=along_rows)
    each = sum(costs.of_pass(one) for one in case.schedule.passes)
    rate = case.hardware.fp32_tflops / 2 * 1e9 * OF_RATE
    return case.loop.rows * case.loop.columns * each / (rate * _busy(case, held))


def evaluated(case: Case, one: Pass, kept: Sequence[Kept]) -> tuple[Stmt, ...]:
    """The statements that a walk computes: after the first nothing behind what is kept."""
    known = {value.stmt.name for value in kept} if one.number > 1 else set()
    by_name = {stmt.name: stmt for stmt in one.element}
    nest, wanted = case.nest, [stmt.args[0] for stmt in one.reductions]
    for at in one.stores:
        wanted += [nest.loop.stores[at].value, *(name for name, _ in nest.targets[at].gathers)]

    def reads(stmt: Stmt) -> list[str]:
        return [name for name in uses(stmt, nest) if name in by_name]

    found = statements_behind(
        [name for name in wanted if name in by_name],
        by_name,
        reads,
        opened=lambda stmt: stmt.name not in known,
    )
    return tuple(stmt for stmt in one.element if stmt.name in found - known)


class _Costs:
    """Instructions of statements where threads lie along rows, or across them."""

    def __init__(self, case: Case, held: Held, *, along_rows: bool):
        self._case, self._held = case, held
        self._varies = varies_along(case.loop)
        self._axes = axis_names(case.loop)
        lanes = case.loop.inner if along_rows else case.loop.outer
        self._lane = lanes[-1].name if lanes else ""
        vectors = case.along_rows if along_rows else case.along_columns
        self._width = vectors.widths[0]

    def of_pass(self, one: Pass) -> float:
        """Of one position of a row in one walk."""
        return sum(self._of(stmt) for stmt in evaluated(self._case, one, self._held.kept))

    def _of(self, stmt: Stmt) -> float:
        if stmt.op in ("const", "index"):
            return 0.0
        if stmt.op == "load" and stmt.access is not None:
            return self._of_read(stmt.access) + len(stmt.args)
        if stmt.dtype is DType.INT64:
            return _WIDE_PRODUCT if stmt.op == "mul" else _WIDE
        return max(1, (statement_flops(stmt) + 1) // 2)

    def _of_read(self, access: Access) -> float:
        apart, computed = 0, 0
        for stride in access.strides:
            is_axis = stride.by in self._axes
            computed += not is_axis
            varies = {stride.by} if is_axis else self._varies[stride.by]
            if varies == {self._lane}:
                apart += stride.step
        read = read_instructions(apart * self._width * access.dtype.itemsize_bytes)
        return read + _WIDE_PRODUCT * computed


def _busy(case: Case, held: Held) -> float:
    """The share of the threads needed that registers and the launch leave a multiprocessor."""
    if not held.positions:
        return 1.0
    words = sum((one.bytes_each + 3) // 4 for one in held.kept)
    beside = _STREAMED_WORDS
    if held.kept:
        later = case.schedule.passes[1:]
        windows = any(reads_again(evaluated(case, one, held.kept)) for one in later)
        beside = _AGAIN_WORDS if windows else _ONCE_WORDS
    registers = min(_MOST_WORDS, _OWN_WORDS + held.positions * (words + beside))
    resident = max(1, int(REGISTERS / (registers * held.threads)))
    launched = held.blocks / case.multiprocessors
    return min(1.0, min(resident, launched) * held.threads / THREADS_NEEDED)
