"""Searches one file of a suite, and always ends with an outcome.

What a task does to its worker costs that worker; what it does to us becomes an outcome too.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kernelwright.graphs.search.context import Listener, MakeAgents
from kernelwright.graphs.search.run import start_search
from kernelwright.graphs.suite.outcome import BESIDE, Against, Outcome, Terms
from kernelwright.profiles.load import SearchProfile
from kernelwright.profiles.models import Models
from kernelwright.tools.archive import Archive, RunError, Standing, Target
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import (
    Baselines,
    EnvironmentLacksError,
    Phase,
    Refusal,
    Task,
    TracePolicy,
    Verdict,
)
from kernelwright.tools.types.run import Summary

# What a task may take besides its search: reading, baselines and their compilers, certifying.
BESIDES_S = 420.0


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
    """

    target: Target
    home: Path
    models: Models | None = None
    make_agents: MakeAgents | None = None
    executor: Executor | None = None
    besides_s: float = BESIDES_S
    rules: Rules | None = None
    ahead: bool | None = None


class OneFile:
    """One file on its way to an outcome."""

    def __init__(self, judge: Executor, path: Path, terms: Terms, ground: Ground) -> None:
        self._judge, self._path, self._terms, self._ground = judge, path, terms, ground
        self._task: Task | None = None
        self._began_s = time.monotonic()
        self._waited_s = 0.0

    async def run(
        self,
        reading: Awaitable[Task | Refusal],
        profile: SearchProfile | None,
        listener: Listener | None,
    ) -> Outcome:
        """Whatever happens, an outcome; only a machine that lacks something is raised."""
        limit_s = self._ground.besides_s + (2 * profile.seconds if profile else 0.0)
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
            TracePolicy(),
            self._ground.target,
            profile,
            seed=self._terms.seed,
            home=self._ground.home,
            listener=listener,
            executor=self._judge,
            models=self._ground.models,
            make_agents=self._ground.make_agents,
            task=read,
        )
        if isinstance(summary, Refusal):
            return self._ended("refused", summary.sentence)
        return self._searched(summary)

    def _measured(self, found: Baselines | Refusal) -> Outcome:
        if isinstance(found, Refusal):
            return self._ended("refused", found.sentence)
        medians = tuple(
            (item.name, item.measurement.median_ms if item.measurement else None)
            for item in found.items
        )
        return self._ended("baselines").model_copy(update={"baselines_ms": medians})

    def _searched(self, summary: Summary) -> Outcome:
        against: tuple[Against, ...] = ()
        rejected: tuple[str, ...] = ()
        kernel = ""
        with suppress(RunError):
            archive = Archive.open(summary.run, self._ground.home)
            try:
                standings = archive.standings()
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
        """What the judge's account has of the file."""
        judge = self._judge
        spent = judge.spent(str(self._path)) if judge.capabilities.metered else ()
        return tuple(part for phase in spent for part in _apart(phase, self._waited_s))


def _apart(phase: Phase, waited_s: float) -> tuple[Phase, ...]:
    """A reading as what was waited for, and what was done beside the file before; others as is."""
    beside_s = phase.seconds - waited_s
    if phase.part != "read" or beside_s <= 0.0:
        return (phase,)
    beside = phase.model_copy(update={"name": f"{BESIDE}: read", "seconds": beside_s})
    return (beside, phase.model_copy(update={"seconds": waited_s, "cpu_s": 0.0}))


def _rejected(standings: Iterable[Standing]) -> tuple[str, ...]:
    """Verdicts that were not "correct", with the first reason of each."""
    reasons: dict[Verdict, str] = {}
    for item in standings:
        if item.evaluation.verdict is not Verdict.CORRECT:
            reasons.setdefault(item.evaluation.verdict, item.evaluation.verification.reason)
    return tuple(f"{verdict.value}: {reason}" for verdict, reason in reasons.items())


def source_sha256(path: Path) -> str:
    """Names a file's content; "" for one that cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
