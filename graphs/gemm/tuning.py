"""One shape: its candidates screened within a budget, the fastest certified beside the library.

What is judged and how is the executor's; here is only in which order, and when to stop. A first
list comes from the cost model and from shapes that were measured before, then the fastest so far is
varied in one setting at a time. A candidate that certifying refuses makes room for the next one.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import islice

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.gemm.candidates import ProductKernels, Proposal
from kernelwright.tools.gemm.choice import nearest
from kernelwright.tools.gemm.problem import task_of
from kernelwright.tools.gemm.record import GemmRecord, ModelView, Terms, Tried
from kernelwright.tools.gemm.shapes import GemmShape
from kernelwright.tools.types import Baselines, Evaluation, Refusal, Task, Value, Verdict

# Neighbours whose settings are tried; compiled ahead of those that are being judged; certified.
_NEIGHBOURS, _AHEAD, _CERTIFIED = 2, 4, 2
# The share of a shape's seconds after which no further candidate is screened.
_SCREENING_SHARE = 0.55


class Budget(Value):
    """What a shape may cost: candidates that are screened, and about so many seconds."""

    candidates: int = 12
    seconds: float = 10.0


class Prepared(Value):
    """A shape's task and what to try first, made without the device."""

    shape: GemmShape
    task: Task
    model: ModelView | None
    first: tuple[Proposal, ...]


def prepare(
    shape: GemmShape, terms: Terms, hardware: Hardware, known: Sequence[GemmRecord]
) -> Prepared:
    """Read the task and write its first candidates.

    Args:
        shape: What is multiplied.
        terms: In which arithmetic.
        hardware: For which device.
        known: Shapes that were measured.
    """
    task = task_of(shape, terms.arithmetic)
    kernels = ProductKernels(task.graph, hardware)
    model = _model_of(kernels)
    best = [record.best for record in nearest(shape, model, known)[:_NEIGHBOURS]]
    settings = [(one.strategy, one.settings) for one in best if one is not None]
    return Prepared(shape=shape, task=task, model=model, first=tuple(kernels.first(settings)))


def _model_of(kernels: ProductKernels) -> ModelView | None:
    for strategy in kernels.strategies[:1]:
        tiles = kernels.tiles(strategy)
        return ModelView(
            strategy=strategy.name,
            tile=tiles[0] if tiles else 0,
            predicted_ms=kernels.predicted_ms(strategy),
        )
    return None


class Tuning:
    """One shape on its way to a record.

    Args:
        judge: Who judges.
        prepared: The shape.
        terms: Stand in the record.
        budget: What it may cost.
    """

    def __init__(self, judge: Executor, prepared: Prepared, terms: Terms, budget: Budget) -> None:
        self._judge, self._prepared, self._budget = judge, prepared, budget
        self._terms = terms
        self._task, self._start_s = prepared.task, time.monotonic()
        self._tried: list[Tried] = []
        self._right: list[tuple[float, Proposal]] = []
        self._baselines: Baselines | None = None

    async def run(self) -> GemmRecord:
        """Judge what the budget allows; whatever becomes of it is a record."""
        hardware = await self._judge.hardware()
        baselines = await self._judge.baselines(self._task)
        if isinstance(baselines, Refusal):
            return self._ended("failed", baselines.sentence, hardware)
        self._baselines = baselines
        await self._screen(self._prepared.first)
        if self._right:
            kernels = await asyncio.to_thread(ProductKernels, self._task.graph, hardware)
            await self._vary(kernels)
        return await self._certified(hardware)

    async def _screen(self, proposals: Sequence[Proposal]) -> None:
        for proposal in proposals:
            if not self._goes_on():
                return
            await self._look(proposal)

    async def _vary(self, kernels: ProductKernels) -> None:
        """Change one setting of the fastest at a time, from the new fastest once there is one."""
        varied = ""
        while self._goes_on() and varied != (best := self._fastest()).candidate.id:
            varied = best.candidate.id
            known = {(one.strategy, one.settings) for one in self._tried}
            near = (
                one for one in kernels.around(best) if (one.strategy, one.settings) not in known
            )
            while self._goes_on() and self._fastest() is best:
                if not (some := await asyncio.to_thread(_some, near)):
                    break
                self._foresee(some)
                await self._screen(some)

    async def _look(self, proposal: Proposal) -> None:
        found = await self._judge.evaluate(self._task, proposal.candidate, "screen")
        took_ms = found.median_ms if found.verdict is Verdict.CORRECT else None
        self._tried.append(
            Tried(
                strategy=proposal.strategy,
                settings=proposal.settings,
                verdict=found.verdict,
                reason="" if took_ms is not None else found.verification.reason[:300],
                ms=took_ms,
            )
        )
        if took_ms is not None and not found.verification.apart:
            self._right.append((took_ms, proposal))
            self._right.sort(key=lambda pair: pair[0])

    async def _certified(self, hardware: Hardware) -> GemmRecord:
        words = "no kernel takes this product" if not self._tried else ""
        for _, proposal in self._right[:_CERTIFIED]:
            found = await self._judge.evaluate(self._task, proposal.candidate, "certify")
            if found.verdict is Verdict.CORRECT:
                return self._ended("measured", "", hardware, proposal, found)
            words = f"{proposal.words}: {found.verdict.value}: {found.verification.reason}"
        words = words or f"{self._tried[0].verdict.value}: {self._tried[0].reason}"
        return self._ended("none_correct", words[:400], hardware)

    def _ended(
        self,
        ended: str,
        words: str,
        hardware: Hardware,
        best: Proposal | None = None,
        evaluation: Evaluation | None = None,
    ) -> GemmRecord:
        return GemmRecord.model_validate(
            {
                "shape": self._prepared.shape,
                "terms": self._terms,
                "ended": ended,
                "words": words,
                "task": self._task,
                "hardware": hardware,
                "baselines": self._baselines,
                "model": self._prepared.model,
                "best": best,
                "evaluation": evaluation,
                "tried": tuple(self._tried),
                "seconds": time.monotonic() - self._start_s,
            }
        )

    def _fastest(self) -> Proposal:
        return self._right[0][1]

    def _goes_on(self) -> bool:
        spent_s = time.monotonic() - self._start_s
        enough = len(self._tried) >= self._budget.candidates
        late = bool(self._right) and spent_s > _SCREENING_SHARE * self._budget.seconds
        return not enough and not late

    def _foresee(self, proposals: Sequence[Proposal]) -> None:
        self._judge.foresee([one.candidate for one in proposals])


def _some(proposals: Iterator[Proposal]) -> list[Proposal]:
    """The next few, so that they are compiled side by side."""
    return list(islice(proposals, _AHEAD))
