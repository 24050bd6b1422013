"""A judge of products without a device: times are a formula of the shape and of a tile."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelwright.graphs.gemm.runner import Grid, measure_grid
from kernelwright.graphs.gemm.tuning import Budget
from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.rules import FAST, WIDER
from kernelwright.tools.gemm.problem import Arithmetic
from kernelwright.tools.gemm.record import GemmRecord, Terms
from kernelwright.tools.gemm.shapes import shapes_of
from kernelwright.tools.types import (
    Baseline,
    Baselines,
    Candidate,
    Comparison,
    Conditions,
    DType,
    Effort,
    Evaluation,
    Measurement,
    Profile,
    Refusal,
    Task,
    TracePolicy,
    Verdict,
    Verification,
)
from kernelwright.tools.types.measurement import ModeTiming, Paired
from kernelwright.tools.types.verdict import OWN_NOT_FINITE

CONDITIONS = Conditions(device="formula", l2_flushed=True, input_sets=1)
H200 = hardware_profile("H200").model_copy(update={"measured": True})
TERMS = Terms(
    arithmetic=Arithmetic(), seed=0, device=H200.name, kernelwright="1", torch="2", figures="f"
)


def measured(ms: float) -> Measurement:
    return Measurement(median_ms=ms, p10_ms=ms, p90_ms=ms, samples_ms=(ms,), conditions=CONDITIONS)


def compared(name: str, theirs: float, ours: float, latency: float | None = None) -> Comparison:
    ratio = theirs / ours
    alone = Paired(
        candidate_ms=ours, baseline_ms=theirs, ratio=latency or 1.0, pairs=20,
        ci95_low=0.99 * (latency or 1.0), ci95_high=1.01 * (latency or 1.0),
    )  # fmt: skip
    return Comparison(
        baseline=name, candidate_ms=ours, baseline_ms=theirs, ratio=ratio,
        ci95_low=0.99 * ratio, ci95_high=1.01 * ratio, pairs=20, candidate_samples_ms=(ours,),
        baseline_samples_ms=(theirs,), conditions=CONDITIONS, clock="device",
        latency=alone if latency else None,
    )  # fmt: skip


@dataclass
class FormulaJudge(Executor):
    """The library takes a time by operations; ours gain on it below 5e9 of them, and lose above.

    Tiles of 64 columns are a twentieth faster than others. `wrong` says who fails at which effort.
    """

    lacks_binding: bool = False
    wrong: Callable[[Candidate, Effort], Verdict | None] = lambda candidate, effort: None
    latency: float | None = None
    wider: float = 1.0  # times what the library takes, with sums in float32
    fast: float = 1.0  # the same with fast sums
    asked: list[tuple[str, Effort]] = field(default_factory=list)
    breaks_at: str = ""
    isolation: str = "formula"

    async def hardware(self) -> Hardware:
        return H200

    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        raise NotImplementedError

    async def profile(self, task: Task, candidate: Candidate) -> Profile:
        raise NotImplementedError

    async def aclose(self) -> None:
        """Nothing runs."""

    async def baselines(self, task: Task, *, eager_only: bool = False) -> Baselines | Refusal:
        if self.breaks_at == task.name:
            raise RuntimeError("the formula broke")
        library = self._library_ms(task)
        times = {"eager": 1.1 * library, "cublaslt": 1.05 * library, "cublaslt-autotuned": library}
        if task.graph.sums is not DType.FLOAT32:
            times |= dict.fromkeys(WIDER, self.wider * library)
        if task.inputs[0].tensor is not None and task.inputs[0].tensor.dtype.itemsize_bytes == 1:
            times[FAST] = self.fast * library
        items = [
            Baseline(name=name, failure="the binding is missing")
            if self.lacks_binding and name != "eager"
            else Baseline(name=name, measurement=measured(ms))
            for name, ms in times.items()
        ]
        return Baselines(items=tuple(items))

    async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
        await asyncio.sleep(0)
        self.asked.append((task.name, effort))
        if verdict := self.wrong(candidate, effort):
            found = Verification(verdict=verdict, reason="the formula says so")
            return Evaluation(candidate=candidate.id, verification=found)
        ours = self.cost(task, candidate)
        known = await self.baselines(task)
        assert isinstance(known, Baselines)
        timed = [
            (item.name, item.measurement.median_ms) for item in known.items if item.measurement
        ]
        beside = tuple(compared(name, ms, ours, self.latency) for name, ms in timed)
        served = ModeTiming(mode="server", comparison=compared(timed[-1][0], timed[-1][1], ours))
        return Evaluation(
            candidate=candidate.id,
            verification=Verification(
                verdict=Verdict.CORRECT,
                reason="",
                error_ratio=1.0,
                not_verified=(f"large: {OWN_NOT_FINITE}", "another thing"),
            ),
            screen=measured(ours),
            comparisons=beside if effort == "certify" else (),
            modes=(served,) if effort == "certify" else (),
        )

    def cost(self, task: Task, candidate: Candidate) -> float:
        tile = next(one.value for one in candidate.settings if one.name.endswith("TILE"))
        gain = 0.95 if tile % 1000 == 64 else 1.0
        return gain * self._library_ms(task) * (task.flops / 5e9) ** 0.1

    def _library_ms(self, task: Task) -> float:
        return 0.005 + task.flops / 6e11


async def measure(judge: Executor, words: str, **changes: object) -> list[GemmRecord]:
    shapes = shapes_of(words, ("nt",))
    grid = Grid(shapes=shapes, terms=TERMS, budget=Budget(candidates=5, seconds=60.0))
    return [one async for one in measure_grid(judge, Grid(**(vars(grid) | changes)))]


@pytest.fixture(scope="session")
def formula() -> SimpleNamespace:
    """The judge's class, a grid measured by one, and the terms of its records."""
    return SimpleNamespace(judge=FormulaJudge, measure=measure, terms=TERMS)


@pytest.fixture(scope="session")
def records() -> tuple[GemmRecord, ...]:
    """Four shapes: three that are ours, and a large one that the library keeps."""
    return tuple(asyncio.run(measure(FormulaJudge(), "64,2048x2048x256,2048")))
