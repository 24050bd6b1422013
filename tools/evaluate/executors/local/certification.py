"""Judges one candidate by this machine's workers, a finalist as closely as can be; and profiles it.

A finalist has a process of its own, which no other candidate ever saw; what is too good to be
believed has two. After that come other shapes, over which its worker may be lost, and a sanitizer.
`Profiles` tells where a candidate's call spends its time, and reads hardware counters where they
can be read.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from kernelwright.tools.evaluate.executors.local.baselines import KnownBaselines
from kernelwright.tools.evaluate.executors.local.builder import Builder
from kernelwright.tools.evaluate.executors.local.workshop import (
    Workshop,
    expect,
    readable,
    task_key,
)
from kernelwright.tools.evaluate.finalists import cautious, suspicious
from kernelwright.tools.evaluate.messages import (
    LAUNCHES,
    HoldoutRequest,
    Judged,
    JudgeRequest,
    LaunchesRecorded,
    ProfileRequest,
    RecordRequest,
    Reply,
    ShapesTried,
)
from kernelwright.tools.evaluate.profiling.local import Standby, not_profiled, profile_here
from kernelwright.tools.evaluate.profiling.sanitizers import sanitized, sanitized_here, taken
from kernelwright.tools.evaluate.rules import CERTIFY, Defence, fresh_seed
from kernelwright.tools.evaluate.sandbox.ending import Ended
from kernelwright.tools.evaluate.sandbox.keeper import Keeper
from kernelwright.tools.evaluate.sandbox.worker import accompanied, evaluation_of, isolated
from kernelwright.tools.languages import Built, CompileFailure, compile_candidate, language_of
from kernelwright.tools.types import Candidate, Effort, Evaluation, Phase, Profile, Task, Verdict


class Profiles:
    """Profiles candidates, in a worker beside the judge's where a profiler would slow that down."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        aside = shop.scratch / "aside"
        self._aside = Keeper(aside, shop.rules, shop.device, shop.lease)
        self._counter = Standby(shop.scratch / "profiles")

    def prepare(self, task: Task) -> None:
        """Start in the background what will profile a candidate of this task, if anybody asks.

        That is what counts hardware events, and at first the worker that records times. Not on a
        CPU, whose times a start would disturb, nor where many share a device.
        """
        shop = self._shop
        if shop.device == "cuda" and shop.alone and shop.rules.evidence == "full":
            self._counter.prepare(task, self._shop.rules)
            if not self._aside.questions:
                self._aside.prepare(compiler=False)

    async def of(self, task: Task, candidate: Candidate) -> Profile:
        """Everything that can be measured of a candidate here."""
        shop = self._shop
        hardware = await shop.hardware()
        built = await compile_candidate(
            candidate, architecture=hardware.architecture, timeout_s=shop.rules.compile_s
        )
        if isinstance(built, CompileFailure):
            return not_profiled(candidate, built)
        request = ProfileRequest(
            task=task,
            hardware=hardware,
            rules=shop.rules,
            candidate=candidate,
            built=built,
            seed=fresh_seed(shop.seed, task.digest, candidate.id, "profile"),
        )
        start = time.perf_counter()
        code = await language_of(candidate).inspect(candidate, hardware.architecture)
        reading_s = time.perf_counter() - start
        async with shop.undisturbed():
            found = await profile_here(request, shop.keeper, self._aside, self._counter)
        shop.keeper.stands_beside(self._aside)  # whose worker stays, and is nobody's company
        self.prepare(task)
        seconds = found.seconds + reading_s
        shop.note(task.path, Phase(name="profile: all", seconds=seconds))
        return found.model_copy(update={"code": code, "seconds": seconds})

    async def aclose(self) -> None:
        """End the worker beside the judge's, and what stands ready."""
        await asyncio.gather(self._aside.aclose(), self._counter.aclose())


_LEFT_OUT = (
    "memory errors and races: the sanitizer was left out",
    "a process that no other candidate was in: it was judged where it was screened",
)


def _without(found: Evaluation, *missing: str) -> Evaluation:
    """The same, which says what else was not looked at; of what is wrong nobody asks."""
    if found.verdict is not Verdict.CORRECT:
        return found
    checked = found.verification
    told = (*checked.not_verified, *missing)
    return found.model_copy(
        update={"verification": checked.model_copy(update={"not_verified": told})}
    )


# What is looked at behind a finalist's comparisons has this share of the time, and no more than so
# many seconds: on two cores other loads, other shapes and the sanitizer took 3 to 5 s.
_BEHIND_SHARE, _BEHIND_S = 0.3, 5.0
_NO_SHAPES = "other shapes: there was no time left for them"
_NO_SANITIZER = "memory errors and races: there was no time left for the sanitizer"
Look = Callable[[JudgeRequest, Evaluation], Awaitable[Evaluation]]


class Certification:
    """Judges compiled candidates, finalists closely; keeps the best time of every task.

    Attributes:
        until_s: When a finalist's certification is to end, on the clock of `time.monotonic`; None
            where it may last.
    """

    def __init__(self, shop: Workshop, baselines: KnownBaselines, builder: Builder) -> None:
        self.until_s: float | None = None
        self._shop = shop
        self._builder = builder
        self._baselines = baselines
        self._best_ms: dict[str, float] = {}

    async def judged(
        self, task: Task, candidate: Candidate, built: Built, effort: Effort
    ) -> Evaluation:
        """Verify and time a candidate."""
        # Inside torch.compile most of a candidate is what the baseline is made of.
        compiles = effort != "screen" or candidate.mode == "compile"
        request = JudgeRequest(
            task=task,
            hardware=await self._shop.hardware(),
            rules=self._shop.rules,
            candidate=candidate,
            built=built,
            effort=effort,
            seed=self._shop.fresh_seed(task, candidate.id),
            baselines=self._baselines.of(task),
            compare_to=self._baselines.to_compare(task, effort, candidate.mode),
            best_ms=self._best_ms.get(task_key(task)),
            compiled=self._builder.lying(task) if compiles else (),
            until_s=self._compared_until_s() if effort == "certify" else None,
        )
        async with self._shop.undisturbed():
            ask = self._certified if effort == "certify" else self._climb
            evaluation = await ask(request)
            screen = evaluation.screen
            raised = await self._shop.near_the_floor(task, screen.median_ms if screen else None)
            if raised and evaluation.verdict is Verdict.BELOW_FLOOR:
                # The floor was too high, and the verdict false: by the one that was found now.
                higher = await self._shop.hardware()
                evaluation = await ask(request.model_copy(update={"hardware": higher}))
        self._note_best(task, evaluation)
        return evaluation

    async def proved(self, task: Task, candidate: Candidate, built: Built) -> Evaluation:
        """Verify a candidate as closely as a finalist, and time nothing."""
        request = JudgeRequest(
            task=task,
            hardware=await self._shop.hardware(),
            rules=self._shop.rules,
            candidate=candidate,
            built=built,
            effort="certify",
            seed=self._shop.fresh_seed(task, candidate.id),
            timed=False,
        )
        async with self._shop.undisturbed():
            return await self._climb(request)

    async def _certified(self, request: JudgeRequest) -> Evaluation:
        if self._shop.rules.evidence == "library":
            # A grid of products has no seconds for a process of its own for each.
            return self._without_failures(
                request.task, _without(await self._climb(request), *_LEFT_OUT)
            )
        evaluation = await self._fresh(request)
        if suspicious(evaluation, self._shop.rules):
            # Once more in another fresh process on other values; the worse one counts.
            seed = self._shop.fresh_seed(request.task, request.candidate.id)
            again = request.model_copy(update={"seed": seed})
            evaluation = cautious(evaluation, await self._fresh(again))
        evaluation = self._without_failures(request.task, evaluation, request.compare_to)
        evaluation = await self._in_time(self._hold_out, request, evaluation, _NO_SHAPES)
        return await self._in_time(self._sanitize, request, evaluation, _NO_SANITIZER)

    def _compared_until_s(self) -> float | None:
        """When comparisons are to end, so that what comes behind them has its time too."""
        if self.until_s is None:
            return None
        left_s = self.until_s - time.monotonic()
        return self.until_s - min(_BEHIND_S, _BEHIND_SHARE * left_s)

    async def _in_time(
        self, look: Look, request: JudgeRequest, found: Evaluation, missing: str
    ) -> Evaluation:
        """What comes of one more look at a finalist; what is missing where there was no time."""
        if self.until_s is None:
            return await look(request, found)
        ending = asyncio.timeout(self.until_s - time.monotonic())
        try:
            async with ending:
                return await look(request, found)
        except TimeoutError:
            if not ending.expired():
                raise
            return _without(found, missing)

    def _without_failures(
        self, task: Task, found: Evaluation, asked: Sequence[str] = ()
    ) -> Evaluation:
        """A finalist that is ahead of all that was timed is not ahead of what could not be."""
        beside = {item.baseline for item in found.comparisons}
        absent = {*asked} & {*CERTIFY[self._shop.device]} - beside
        late = (f"faster than {name}, which was not made in time" for name in absent)
        missing = (*self._baselines.failures(task), *late)
        if found.verdict is not Verdict.CORRECT or not missing:
            return found
        checked = found.verification
        told = tuple(dict.fromkeys((*checked.not_verified, *missing)))
        return found.model_copy(
            update={"verification": checked.model_copy(update={"not_verified": told})}
        )

    async def _fresh(self, request: JudgeRequest) -> Evaluation:
        with self._shop.noting(request.task.path, "worker: end"):
            await self._shop.keeper.renew()
        return await self._climb(request)

    async def _climb(self, request: JudgeRequest) -> Evaluation:
        """One trip up the ladder; a worker that is lost on the way is explained."""
        shop = self._shop
        reads = (*readable(request.task), request.built.artifact.parents[1])
        while True:
            reply = await shop.ask(request.task, request, shop.rules.reference_s, reads)
            if isinstance(reply, Reply):
                evaluation = expect(reply, Judged).evaluation
                evaluation = accompanied(evaluation, shop.keeper.company())
                return isolated(evaluation, shop.isolation)
            baseline = reply.stage.baseline if reply.stage else ""
            if baseline in request.compare_to:
                # Not the candidate's fault: go on without that baseline.
                self._baselines.give_up(request.task, baseline)
                left = tuple(name for name in request.compare_to if name != baseline)
                request = request.model_copy(update={"compare_to": left})
            elif reply.how != "exited" or shop.keeper.questions <= 1:
                return evaluation_of(request, reply, shop.isolation)
            # An older worker may have died of what an earlier candidate did to its memory.

    async def _hold_out(self, request: JudgeRequest, found: Evaluation) -> Evaluation:
        """Try a correct candidate on other shapes; its worker may be lost over it."""
        rules = self._shop.rules
        if found.verdict is not Verdict.CORRECT or not rules.has(Defence.HOLDOUT_SHAPES):
            return found
        asked = HoldoutRequest(
            task=request.task,
            hardware=request.hardware,
            rules=request.rules,
            candidate=request.candidate,
            built=request.built,
            seed=request.seed,
        )
        reply = await self._shop.ask(request.task, asked, rules.reference_s)
        if isinstance(reply, Ended):
            when = f", while {reply.stage.words}" if reply.stage else ""
            words = f"this shape only: on another one it {reply.words}{when}"
        else:
            words = expect(reply, ShapesTried).words
        checked = found.verification.model_copy(update={"shapes": words})
        return found.model_copy(update={"verification": checked})

    async def _sanitize(self, request: JudgeRequest, found: Evaluation) -> Evaluation:
        """What a sanitizer says of a finalist: the GPU's, or the C++ compiler's own."""
        shop = self._shop
        if found.verdict is not Verdict.CORRECT or not shop.rules.has(Defence.SANITIZER):
            return found
        if shop.rules.is_brief:
            checked = found.verification
            missing = (*checked.not_verified, "memory errors and races: the sanitizer was left out")
            if others := self._baselines.left_out(request.task):
                missing += (f"faster than {' or '.join(others)}: left out as a baseline",)
            left_out = checked.model_copy(update={"not_verified": missing})
            return found.model_copy(update={"verification": left_out})
        with shop.noting(request.task.path, "certify: sanitizer"):
            folder = shop.scratch / "sanitize"
            if request.hardware.kind == "cuda":
                return await sanitized(request, found, folder)
            return await sanitized_here(request, found, folder, self.record)

    async def record(self, request: RecordRequest, place: Path) -> str:
        """Move the launches of one call of a C++ candidate to a place; why not, or ""."""
        shop, task = self._shop, request.task
        reply = await shop.ask(task, request, shop.rules.reference_s, readable(task))
        if isinstance(reply, Ended):
            return f"the process {reply.words}"
        told = expect(reply, LaunchesRecorded)
        folder = shop.keeper.scratch
        return told.problem or taken(folder / LAUNCHES if folder else None, place)

    def _note_best(self, task: Task, evaluation: Evaluation) -> None:
        if evaluation.verification.apart:
            return  # what computes in less sets no mark for the others
        if evaluation.verdict == "correct" and (taken := evaluation.median_ms) is not None:
            key = task_key(task)
            self._best_ms[key] = min(taken, self._best_ms.get(key, taken))
