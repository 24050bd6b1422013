"""The far host's side: does what a bundle asks, on the device at hand.

Every outcome is kept at once, and what is there is not done again, so this may be killed at any
time and started anew. A job that fails costs that job only.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from math import inf

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.batch.bundle import (
    PROBE,
    Bundle,
    BundleError,
    Done,
    Probed,
    job_name,
    profile_name,
)
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.finalists import fastest, promising, settles
from kernelwright.tools.evaluate.profiling.local import not_asked
from kernelwright.tools.languages import compile_candidate
from kernelwright.tools.types import (
    Baselines,
    Candidate,
    Effort,
    EnvironmentLacksError,
    Evaluation,
    Profile,
    Refusal,
    Task,
    Verdict,
    Verification,
)

Say = Callable[[str], None]


async def work_bundle(bundle: Bundle, executor: LocalExecutor, say: Say) -> Done:
    """Fill in the results of a bundle.

    Args:
        bundle: What to do.
        executor: Of the device here; it serves one bundle after another.
        say: Called with a line of progress now and then.

    Raises:
        BundleError: When the bundle was made for another device.
        EnvironmentLacksError: When this machine lacks what the bundle needs.
    """
    if (done := bundle.done) is not None:
        say("done before")
        return done
    return await _Work(bundle, executor, say).all()


class _Work:
    """One bundle being worked on."""

    def __init__(self, bundle: Bundle, executor: LocalExecutor, say: Say) -> None:
        self._bundle = bundle
        self._executor = executor
        self._say = say
        self._jobs: list[str] = []
        self._candidates = {item.id: item for item in bundle.manifest.errand.candidates()}

    async def all(self) -> Done:
        start = time.perf_counter()
        manifest = self._bundle.manifest
        hardware = await self._executor.hardware()
        _check(self._bundle, hardware)
        self._executor.reseed(manifest.seed)
        if manifest.baselines is not None:
            self._executor.remember(manifest.task, manifest.baselines)
        await self._compile_ahead(hardware)
        if manifest.errand.probe:
            await self._probe(manifest.task, hardware)
        await self._candidates_of_request()
        seconds = time.perf_counter() - start
        return self._bundle.finish(hardware.name, seconds, self._jobs)

    async def _candidates_of_request(self) -> None:
        request = self._bundle.manifest.errand
        screened = [await self._judge(item.id, "screen") for item in request.screen]
        tuned = {item.candidate for item in fastest(screened)[: request.tuned]}
        variants = [group for group in request.variants if group.of in tuned]
        ids = [item.id for group in variants for item in group.candidates]
        screened += [await self._judge(id, "screen") for id in ids]
        for evaluation in promising(screened, request.to_beat_ms, request.finalists):
            await self._judge(evaluation.candidate, "precise")
        for candidate in request.precise:
            await self._judge(candidate.id, "precise")
        await self._profile_the_fastest()
        decided = False
        screened_ms = request.screened_ms or (None,) * len(request.certify)
        for number, (candidate, ms) in enumerate(zip(request.certify, screened_ms, strict=True)):
            if decided and number >= request.rivals:
                break
            certified = await self._judge(candidate.id, "certify")
            decided = decided or settles(certified, ms)

    async def _profile_the_fastest(self) -> None:
        """Ask the profilers about the fastest that are right, while they have seconds left."""
        request, spent_s = self._bundle.manifest.errand, 0.0
        every: tuple[Effort, ...] = ("screen", "precise")
        known = [
            self._bundle.get(job_name(id, e), Evaluation) for id in self._candidates for e in every
        ]
        ranked: dict[str, None] = {}
        for evaluation in sorted(filter(None, known), key=lambda item: item.median_ms or inf):
            if evaluation.verdict is Verdict.CORRECT and evaluation.median_ms is not None:
                ranked.setdefault(evaluation.candidate)
        for id in list(ranked)[: request.profiled]:
            if spent_s >= request.profiling_s:
                break
            spent_s += (await self._profile(id)).seconds

    async def _profile(self, id: str) -> Profile:
        job = profile_name(id)
        self._jobs.append(job)
        known = self._bundle.get(job, Profile)
        if known is not None:
            return known
        candidate = self._candidates[id]
        try:
            found = await self._executor.profile(self._bundle.manifest.task, candidate)
        except EnvironmentLacksError:
            raise
        except Exception as error:
            why = f"the profiler itself failed: {type(error).__name__}"
            found = not_asked(candidate, why)
        self._bundle.put(job, found)
        counted = f"{len(found.counters)} counted launches" if found.counters else "no counters"
        self._say(f"profile {id}: {counted}")
        return found

    async def _judge(self, id: str, effort: Effort) -> Evaluation:
        job, task = job_name(id, effort), self._bundle.manifest.task
        if job not in self._jobs:
            self._jobs.append(job)
        known = self._bundle.get(job, Evaluation)
        if known is not None:
            return known
        try:
            found = await self._executor.evaluate(task, self._candidates[id], effort)
        except EnvironmentLacksError:
            raise
        except Exception as error:
            found = self._not_judged(id, error)
        self._bundle.put(job, found)
        taken = f", {found.median_ms:.4g} ms" if found.median_ms is not None else ""
        self._say(f"{effort} {id}: {found.verdict.value}{taken}")
        return found

    def _not_judged(self, id: str, error: Exception) -> Evaluation:
        words = f"not judged, as the judge itself failed: {type(error).__name__}: {error}"
        reason = words.splitlines()[0][:500]
        verification = Verification(
            verdict=Verdict.CRASHED, reason=reason, isolation=self._executor.isolation
        )
        return Evaluation(candidate=id, verification=verification)

    async def _probe(self, task: Task, hardware: Hardware) -> None:
        self._jobs.append(PROBE)
        known = self._bundle.get(PROBE, Probed)
        if known is not None:
            if known.baselines is not None:
                self._executor.remember(task, known.baselines)
            return
        found = await self._probed(task, hardware)
        self._bundle.put(PROBE, found)
        for item in found.baselines.items if found.baselines else ():
            taken = f"{item.measurement.median_ms:.4g} ms" if item.measurement else item.failure
            self._say(f"{item.name}: {taken}")

    async def _probed(self, task: Task, hardware: Hardware) -> Probed:
        audited = await self._executor.audit(task)
        if isinstance(audited, Refusal):
            return Probed(hardware=hardware, refusal=audited)
        new = audited.warnings[len(task.warnings) :]
        measured = await self._executor.baselines(task)
        if isinstance(measured, Baselines):
            return Probed(hardware=hardware, warnings=new, baselines=measured)
        return Probed(hardware=hardware, warnings=new, refusal=measured)

    async def _compile_ahead(self, hardware: Hardware) -> None:
        """Compile everything before anything is timed, on all cores; the cache keeps it."""
        await asyncio.gather(*(self._compile(item, hardware) for item in self._unjudged()))

    def _unjudged(self) -> Iterable[Candidate]:
        for id, candidate in self._candidates.items():
            if self._bundle.get(job_name(id, "screen"), Evaluation) is None:
                yield candidate

    async def _compile(self, candidate: Candidate, hardware: Hardware) -> None:
        limit_s = self._executor.rules.compile_s
        # A failure is found again, and kept, when the candidate's turn comes.
        await compile_candidate(candidate, architecture=hardware.architecture, timeout_s=limit_s)


def _check(bundle: Bundle, hardware: Hardware) -> None:
    manifest = bundle.manifest
    if hardware.kind != manifest.target:
        raise BundleError(f"{bundle.folder} is for {manifest.target}, but this is {hardware.name}")
    if manifest.device not in ("", hardware.name):
        raise BundleError(
            f"run {manifest.run} is measured on {manifest.device}, but this is {hardware.name}; "
            "times of two devices do not compare"
        )
