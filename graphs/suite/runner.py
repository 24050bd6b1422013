"""Runs a suite: one task after another on one device, each at its own risk.

Every file ends with an outcome: what a task does to its worker costs that worker, and what it does
to us becomes an outcome too. All tasks share one executor, so that a worker is started, and the
device measured, once. While a task is searched on a GPU the next file is read beside it, since
reading needs only the CPU. What takes seconds once, the judge's worker and a search's imports, is
begun while the first is read.

Several processes may share the files of one suite, see `turns`. What a model's regions took is part
of its file's account.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kernelwright.agents.profiler.profiler import PlaybookProfiler
from kernelwright.graphs.regions.search import RegionsChoice, by_regions
from kernelwright.graphs.regions.turns import region_files
from kernelwright.graphs.search.context import Listener, MakeAgents
from kernelwright.graphs.search.options.run_terms import opened
from kernelwright.graphs.search.run import start_search
from kernelwright.graphs.search.session import import_beforehand
from kernelwright.graphs.suite.outcome import BESIDE, REGIONS, Against, Outcome, Terms
from kernelwright.graphs.suite.turns import InOrder, Shared, Turns
from kernelwright.profiles.load import Models, SearchProfile
from kernelwright.tools.archive import Archive, RunError, Standing, Target
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.base.kind import ExecutorChoice
from kernelwright.tools.evaluate.rules import AUTOTUNED, CERTIFY, Rules
from kernelwright.tools.profile import by_importance, measured_evidence
from kernelwright.tools.types import (
    Baselines,
    EnvironmentLacksError,
    Phase,
    Refusal,
    Task,
    TracePolicy,
    Verdict,
)
from kernelwright.tools.types.measurement import together
from kernelwright.tools.types.run import Summary

# What a task may take besides its search: reading, baselines and their compilers, certifying.
BESIDES_S = 420.0
# Of a search's seconds; each region that is searched takes some beside its own, to be read.
_LIMIT = {"off": 2.0, "auto": 3.0, "on": 3.0}


@dataclass(frozen=True)
class Ground:
    """Where a suite is run, and by whom.

    Attributes:
        target: Which kind of device.
        home: Where the runs are kept.
        models: Who thinks; the playbook by default.
        make_agents: Who thinks, instead of `models`.
        executor: Who judges; worker processes on this machine by default.
        besides_s: What a task may take besides its search.
        rules: The judge's figures where the executor is of our own; the defaults if None.
        ahead: Whether the next file is read, and processes start, beside the present search; by
            default where that disturbs no times, which is on a GPU.
        load_seconds: After how long a file is given up that neither computes nor reads.
        choice: What runs keep of their executor, where it is not of this machine.
        regions: Whether large models are searched region by region.
    """

    target: Target
    home: Path
    models: Models | None = None
    make_agents: MakeAgents | None = None
    executor: Executor | None = None
    besides_s: float = BESIDES_S
    rules: Rules | None = None
    ahead: bool | None = None
    load_seconds: float = 60.0
    choice: ExecutorChoice | None = None
    regions: RegionsChoice = "auto"


class OneFile:
    """One file on its way to an outcome."""

    def __init__(self, judge: Executor, path: Path, terms: Terms, ground: Ground) -> None:
        self._judge, self._path, self._terms, self._ground = judge, path, terms, ground
        self._task: Task | None = None
        self._began_s = time.monotonic()
        self._waited_s = 0.0
        self._regions: tuple[Path, ...] = ()

    async def run(
        self,
        reading: Awaitable[Task | Refusal],
        profile: SearchProfile | None,
        listener: Listener | None,
    ) -> Outcome:
        """Whatever happens, an outcome; only a machine that lacks something is raised."""
        longest_s = _LIMIT[self._ground.regions] * profile.seconds if profile else 0.0
        limit_s = self._ground.besides_s + longest_s
        try:
            async with asyncio.timeout(limit_s):
                read = await self._awaited(reading)
                return await self._see_through(read, profile, listener)
        except TimeoutError:
            return self._ended("timed_out", f"it was not done after {limit_s:.0f} s")
        except EnvironmentLacksError:
            raise
        except Exception as error:  # ours, and still only this task's
            return self._ended("failed", f"{type(error).__name__}: {error}".splitlines()[0])

    async def _awaited(self, reading: Awaitable[Task | Refusal]) -> Task | Refusal:
        """What was read, perhaps beside the file before."""
        start = time.monotonic()
        try:
            return await reading
        finally:
            self._waited_s = time.monotonic() - start

    async def _see_through(
        self,
        read: Task | Refusal,
        profile: SearchProfile | None,
        listener: Listener | None,
    ) -> Outcome:
        if isinstance(read, Task) and self._judge.capabilities.reads_apart:
            read = await self._judge.audit(read)
        if isinstance(read, Refusal):
            return self._ended("refused", read.sentence)
        self._task = read
        if profile is None:
            return self._measured(await self._judge.baselines(read))
        summary = await start_search(
            self._path,
            TracePolicy(load_seconds=self._ground.load_seconds),
            self._ground.target,
            profile,
            seed=self._terms.seed,
            home=self._ground.home,
            listener=listener,
            executor=self._judge,
            models=self._ground.models,
            make_agents=self._ground.make_agents,
            task=read,
            choice=self._ground.choice,
            prepare=by_regions(self._ground.regions),
            fresh=True,  # no file of a suite may profit from another's search
        )
        if isinstance(summary, Refusal):
            return self._ended("refused", summary.sentence)
        found = self._searched(summary)
        return await self._counted(found, summary) if found.terms.evidence == "counters" else found

    async def _counted(self, outcome: Outcome, summary: Summary) -> Outcome:
        """With the counters of the best candidate, measured now unless the search did."""
        if summary.best is None or self._task is None:
            return outcome
        try:
            archive = Archive.open(summary.run, self._ground.home)
        except RunError:
            return outcome
        try:
            candidate = archive.candidate(summary.best.candidate)
            known = archive.measured(candidate.id)
            if known is None:
                known = await self._judge.profile(self._task, candidate)
                archive.record_measured(known)
            evaluation = archive.evaluation(candidate.id)
        finally:
            archive.close()
        if evaluation is None:
            return outcome
        hardware, counted = await self._judge.hardware(), measured_evidence(known)
        reading = await PlaybookProfiler().profile(
            candidate, evaluation, self._task, hardware, measured=counted
        )
        bounds = tuple(item.words for item in by_importance(reading.symptoms))
        return outcome.model_copy(update={"counted": counted, "bounds": bounds})

    def _measured(self, found: Baselines | Refusal) -> Outcome:
        if isinstance(found, Refusal):
            return self._ended("refused", found.sentence)
        medians = tuple(
            (item.name, item.measurement.median_ms if item.measurement else None)
            for item in found.items
        )
        return self._ended("baselines").model_copy(update={"baselines_ms": medians})

    def _absent(self, summary: Summary, against: Sequence[Against]) -> tuple[str, ...]:
        """What a certified candidate should stand beside, and does not."""
        is_asked = self._terms.evidence in AUTOTUNED and bool(against)
        asked = CERTIFY.get(summary.hardware.kind, ()) if is_asked else ()
        return tuple(name for name in asked if name not in {item.baseline for item in against})

    def _searched(self, summary: Summary) -> Outcome:
        against: tuple[Against, ...] = ()
        rejected: tuple[str, ...] = ()
        kernel = ""
        with suppress(RunError):
            archive = Archive.open(summary.run, self._ground.home)
            try:
                standings = archive.standings()
                self._regions = region_files(archive)
            finally:
                archive.close()
            rejected = _rejected(standings)
            best = summary.best.candidate if summary.best else None
            standing = next((item for item in standings if item.candidate.id == best), None)
            if standing is not None:
                against = tuple(map(Against.of, standing.evaluation.comparisons))
                kernel = _sha256(standing.candidate.kernel + "\0" + standing.candidate.plan)
        return self._ended("searched").model_copy(
            update={
                # The account stands in the line itself; once is enough.
                "summary": summary.model_copy(update={"phases": ()}),
                "run": summary.run,
                "against": against,
                "absent": self._absent(summary, against),
                "rejected": rejected,
                "kernel_sha256": kernel,
                "baselines_ms": tuple(
                    (name, item.median_ms) for name, item in summary.baselines.items()
                ),
            }
        )

    def _ended(self, how: str, words: str = "") -> Outcome:
        return Outcome.model_validate(
            {
                "file": self._path.name,
                "sha256": source_sha256(self._path),
                "ended": how,
                "words": words,
                "terms": self._terms,
                "warnings": self._task.warnings if self._task else (),
                "badges": self._task.badges if self._task else (),
                "seconds": time.monotonic() - self._began_s,
                "phases": self._phases(),
            }
        )

    def _phases(self) -> tuple[Phase, ...]:
        """What the judge's account has of the file, and of its regions' files."""
        judge = self._judge
        if not judge.capabilities.metered:
            return ()
        spent = judge.spent(str(self._path))
        own = (part for phase in spent for part in _apart(phase, self._waited_s))
        regions = (phase for path in self._regions for phase in judge.spent(str(path)))
        return (*own, *together(_of_a_region(phase) for phase in regions))


def _of_a_region(phase: Phase) -> Phase:
    """A step of a region's search among those of its model: all of a part is one step."""
    beside = phase.part == BESIDE
    return phase if beside else phase.model_copy(update={"name": f"{REGIONS}: {phase.part}"})


def _apart(phase: Phase, waited_s: float) -> tuple[Phase, ...]:
    """A reading as what was waited for, and what was done beside the file before; others as is."""
    beside_s = phase.seconds - waited_s
    if phase.part != "read" or beside_s <= 0.0:
        return (phase,)
    beside = phase.model_copy(update={"name": f"{BESIDE}: read", "seconds": beside_s})
    return (beside, phase.model_copy(update={"seconds": waited_s, "cpu_s": 0.0}))


def _rejected(standings: Iterable[Standing]) -> tuple[str, ...]:
    """Verdicts that were not "correct", and what was right but less exact, each with a reason."""
    reasons: dict[str, str] = {}
    for item in standings:
        verdict, found = item.evaluation.verdict, item.evaluation.verification
        if verdict is not Verdict.CORRECT:
            reasons.setdefault(verdict.value, found.reason)
        elif found.apart:
            reasons.setdefault("less exact", found.apart)
    return tuple(f"{what}: {reason}" for what, reason in reasons.items())


def source_sha256(path: Path) -> str:
    """Names a file's content; "" for one that cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


Begun = Callable[[Path], Listener | None]


async def run_suite(
    files: Sequence[Path],
    profile: SearchProfile | None,
    terms: Terms,
    ground: Ground,
    *,
    begun: Begun = lambda path: None,
    marks: Path | None = None,
) -> AsyncIterator[Outcome]:
    """Search every file, one after the other.

    Args:
        files: The tasks.
        profile: How much each search may spend; None measures only baselines.
        terms: Stand in every outcome.
        ground: Where it is run, and by whom.
        begun: Told when a file's turn comes; gives who listens to its search.
        marks: Where the processes that share these files mark them; without it all are done here.

    Raises:
        EnvironmentLacksError: When this machine lacks what the target needs; else every failure
            is an outcome.
    """
    executor, target, rules = ground.executor, ground.target, ground.rules
    async with opened(executor, target, seed=terms.seed, rules=rules) as judge:
        ahead = await _ahead(judge, len(files), ground.ahead)
        turns: Turns = InOrder(files) if marks is None else Shared(files, marks)
        readings = _Readings(judge, TracePolicy(load_seconds=ground.load_seconds))
        if judge.capabilities.reads_apart:
            judge.warm()
        importing = asyncio.create_task(_import(ground, wanted=profile is not None))
        try:
            while (path := turns.begin()) is not None:
                one = OneFile(judge, path, terms, ground)
                reading = readings.of(path)
                if ahead and (coming := turns.ahead()) is not None:
                    readings.of(coming)
                yield await one.run(_ready(reading, importing), profile, begun(path))
        finally:
            importing.cancel()
            await asyncio.gather(importing, readings.aclose(), return_exceptions=True)


async def _ready(
    reading: "asyncio.Task[Task | Refusal]", importing: "asyncio.Task[None]"
) -> Task | Refusal:
    """What was read, once a search could begin with it."""
    read = await reading
    await asyncio.shield(importing)  # the next file waits for it too
    return read


async def _import(ground: Ground, *, wanted: bool) -> None:
    """Import what searches need where they are wanted, and not made of other agents."""
    if wanted and ground.make_agents is None:
        await asyncio.to_thread(import_beforehand, ground.target, ground.models)


async def _ahead(judge: Executor, files: int, wanted: bool | None) -> bool:
    """Whether work for the next files is done beside the present one; begins with it if so."""
    # On a CPU it would disturb the times.
    ahead = (await judge.hardware()).kind == "cuda" if wanted is None else wanted
    if ahead and judge.capabilities.stands_ready:
        # One reads the next file, one is the finalist's, and one may be lost.
        judge.stand_by(min(3, files + 1))
    return ahead


class _Readings:
    """Readings of files, each begun when it is first asked for."""

    def __init__(self, judge: Executor, policy: TracePolicy) -> None:
        self._judge, self._policy = judge, policy
        self._tasks: dict[Path, asyncio.Task[Task | Refusal]] = {}

    def of(self, path: Path) -> "asyncio.Task[Task | Refusal]":
        """The reading of a file."""
        if path not in self._tasks:
            self._tasks[path] = asyncio.create_task(_read(self._judge, path, self._policy))
        return self._tasks[path]

    async def aclose(self) -> None:
        """End what was begun and is not wanted any more."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def _read(judge: Executor, path: Path, policy: TracePolicy) -> Task | Refusal:
    if judge.capabilities.reads_apart:
        return await judge.read(path, policy)
    return await judge.trace(path, policy)
