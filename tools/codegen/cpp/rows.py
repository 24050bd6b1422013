"""The families of pointwise loops and of rows in parallel, each cut evenly over threads.

In a pointwise loop every element is on its own, so the iteration space is cut. With rows in
parallel every thread takes whole rows and walks each as often as it must.
"""

from __future__ import annotations

from kernelwright.tools.codegen.cpp.analysis import dominant, sorted_axes
from kernelwright.tools.codegen.cpp.frame import Frame
from kernelwright.tools.codegen.cpp.strategies import (
    FLAT,
    ROWS,
    ROWS_KEPT,
    Case,
    emitted,
    row_family,
    walking,
)
from kernelwright.tools.codegen.cpp.sweep import Knobs, SweepPrinter, kept_bytes, kept_values
from kernelwright.tools.codegen.cpp.sweep_plan import SweepPlan, plan_sweeps
from kernelwright.tools.codegen.cpp.templates import render
from kernelwright.tools.codegen.ir import Emitted, Loop, Strategy
from kernelwright.tools.codegen.ir.kernel_family import Fit, LoopFamily


def flattened(loop: Loop) -> Loop:
    """The loop with all its axes walked, in the order of its first store's memory."""
    if loop.inner:
        raise ValueError(f"{loop.name}: a loop that reduces is not pointwise")
    along = dominant(loop, [store.access for store in loop.stores])
    return loop.model_copy(update={"outer": (), "inner": sorted_axes(loop.outer, along)})


def flat_kernel(frame: Frame, knobs: Knobs) -> str:
    """A kernel for a `flattened` loop."""
    facts = frame.facts
    unit = frame.row_unit({})
    body = [unit.define(name) for name in frame.row_values(0)]
    body += [unit.write(store) for store in frame.row_stores(0)]
    units = "1"
    for plan in plan_sweeps(facts, keeping=False):
        printer = SweepPrinter(plan, frame.names, {}, knobs, frozenset())
        units = printer.units
        loops = printer.ranged()
        body += [*printer.declarations(), *loops]
    return render(
        "flat",
        frame=frame,
        body=body,
        units=units,
        parallel=frame.loop.columns >= 1 << 14,
        stream=knobs.stream,
        parts=knobs.parts,
    )


def _fit(case: Case) -> Fit:
    return Fit.NO if case.loop.inner else Fit.BEST


def _emit(case: Case, name: str, prefix: str) -> Emitted:
    frame = Frame(flattened(case.loop), prefix)
    return emitted(frame, flat_kernel(frame, case.knobs(frame, case.loop.rows)))


FLAT_FAMILY = LoopFamily((FLAT.name,), _fit, lambda case: [FLAT], _emit)


# A thread's row buffers must leave room in its second-level cache, and fit its stack.
MOST_KEPT_BYTES = 512 * 1024


def rows_kernel(frame: Frame, knobs: Knobs, *, keeping: bool) -> str:
    """A kernel that gives each thread whole rows.

    Args:
        frame: The loop.
        knobs: Tunables.
        keeping: Whether values that a later sweep needs are kept in a row buffer; else they are
            computed again from memory.

    Raises:
        ValueError: When the buffers would be too large, or there is nothing to keep.
    """
    plans = plan_sweeps(frame.facts, keeping=keeping)
    kept = kept_values(plans)
    if keeping and not kept:
        raise ValueError(f"{frame.loop.name}: no value is worth keeping for a later sweep")
    if kept_bytes(frame.facts, kept, frame.loop.columns) > MOST_KEPT_BYTES:
        raise ValueError(f"{frame.loop.name}: a row is too long to keep")
    return render(
        "rows",
        frame=frame,
        body=_row(frame, plans, knobs, kept),
        rows=frame.loop.rows,
        parallel=frame.loop.rows > 1 and frame.loop.rows * frame.loop.columns >= 1 << 14,
        stream=knobs.stream,
        parts=knobs.parts,
    )


def _row(
    frame: Frame, plans: tuple[SweepPlan, ...], knobs: Knobs, kept: frozenset[str]
) -> list[str]:
    outer = frame.coordinates(frame.loop.outer)
    unit = frame.row_unit(outer)
    lines = frame.decoded(frame.loop.outer, "row")
    for name in sorted(kept):
        type_, buffer = frame.facts.type_of(name), frame.names("kept", name, "_kept")
        lines.append(f"alignas(64) {type_} {buffer}[{frame.loop.columns}];")
    lines += [unit.define(name) for name in frame.row_values(0)]
    lines += [unit.write(store) for store in frame.row_stores(0)]
    for plan in plans:
        printer = SweepPrinter(plan, frame.names, outer, knobs, kept)
        loops = printer.nested()
        lines += [*printer.declarations(), *loops]
        for name, text in printer.results():
            type_ = frame.facts.type_of(name)
            lines.append(f"const {type_} {unit.value(name)} = {text};")
        lines += [unit.define(name) for name in frame.row_values(plan.number)]
        lines += [unit.write(store) for store in frame.row_stores(plan.number)]
    return lines


def _strategies(case: Case) -> list[Strategy]:
    return [ROWS_KEPT, walking(ROWS, case.walks)]


def _emit_rows(case: Case, name: str, prefix: str) -> Emitted:
    frame = Frame(case.loop, prefix)
    knobs = case.knobs(frame, case.loop.columns)
    return emitted(frame, rows_kernel(frame, knobs, keeping=name == ROWS_KEPT.name))


ROW_FAMILY = row_family(
    (ROWS_KEPT.name, ROWS.name), lambda fits: fits.rows, _strategies, _emit_rows
)
