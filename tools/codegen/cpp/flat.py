"""Pointwise loops: every element on its own, so the iteration space is cut evenly over threads."""

from __future__ import annotations

from kernelwright.tools.codegen.cpp.case import Case, emitted
from kernelwright.tools.codegen.cpp.frame import Frame
from kernelwright.tools.codegen.cpp.geometry import dominant, sorted_axes
from kernelwright.tools.codegen.cpp.strategies import FLAT
from kernelwright.tools.codegen.cpp.sweep import Knobs, SweepPrinter
from kernelwright.tools.codegen.cpp.sweep_plan import plan_sweeps
from kernelwright.tools.codegen.cpp.templates import render
from kernelwright.tools.codegen.ir import Emitted, Loop
from kernelwright.tools.codegen.ir.family import Fit
from kernelwright.tools.codegen.ir.loops_emit import LoopFamily


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
