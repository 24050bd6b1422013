"""The one door to evaluation, so that where it happens can change.

`local` evaluates in worker processes on this machine; other executors (batch files for a GPU
host without a network, a cluster) can take its place without the graph noticing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from profiles.load import Hardware
from tools.nouns import (
    Baselines,
    Candidate,
    Evaluation,
    Isolation,
    Phase,
    Profile,
    Refusal,
    Task,
    TracePolicy,
    WallKind,
)
from tools.nouns.isolation import UNBUILT_WORDS

if TYPE_CHECKING:
    from tools.evaluate.errand import Errand
    from tools.evaluate.messages import DispatchSeen
    from tools.evaluate.rules import Rules

Effort = Literal["screen", "precise", "certify"]


class Executor(Protocol):
    """Evaluates candidates against one task at a time.

    Failures of a candidate, of the user's module or of a compiler are values. An exception
    means that Kernelwright is broken, or `EnvironmentLacksError` that this machine cannot do it.
    """

    @property
    def isolation(self) -> Isolation:
        """How workers are kept apart; stands in every report."""
        ...

    @property
    def together(self) -> bool:
        """Whether a trip to the judge is dear, so that much should be asked for at once."""
        ...

    async def hardware(self) -> Hardware:
        """The device at hand, with measured ceilings (cached between processes)."""
        ...

    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Turn a user's file into a task, in a worker; a Refusal says why not."""
        ...

    async def baselines(self, task: Task, *, eager_only: bool = False) -> Baselines | Refusal:
        """Measure what PyTorch itself does; a Refusal when not even eager runs.

        With `eager_only` the slow ones (torch.compile) may be left for a later call. What was
        measured once is not measured again.
        """
        ...

    def remember(self, task: Task, baselines: Baselines) -> None:
        """Take baselines that an earlier session measured as known: they are not measured again."""
        ...

    async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
        """Compile, verify and time one candidate.

        `screen` verifies on the task's own and one other distribution and times briefly;
        `precise` adds interleaved comparisons against every baseline; `certify` adds all
        distributions, longer sampling and a fresh worker process.
        """
        ...

    async def profile(self, task: Task, candidate: Candidate) -> Profile:
        """Measure where a correct candidate's call spends its time, and its hardware counters.

        What cannot be had here is said in the profile, with the cheapest remedy; never raises
        for a candidate's sake.
        """
        ...

    async def aclose(self) -> None:
        """End every process; nothing of them is left running."""
        ...


@runtime_checkable
class PatientExecutor(Executor, Protocol):
    """An executor that can say what a file is before the device has time to run it."""

    def warm(self) -> None:
        """Make ready in the background for questions to come."""
        ...

    async def read(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Turn a user's file into a task, and leave open whether that proves anything."""
        ...

    async def audit(self, task: Task) -> Task | Refusal:
        """Run the task on the device, and badge it where being right proves little."""
        ...


# The isolation of what `FarExecutor.check` refuses: nothing of the candidate ran.
UNBUILT = Isolation(kind=WallKind.NOT_RUN, words=UNBUILT_WORDS)


@runtime_checkable
class StandingExecutor(Protocol):
    """An executor that can have processes stand ready for work that is known to come."""

    def stand_by(self, workers: int) -> None:
        """From now on let that many stand ready; they leave the device alone until asked."""
        ...


@runtime_checkable
class ForeseeingExecutor(Protocol):
    """An executor that can begin with what needs no device."""

    def foresee(self, candidates: Sequence[Candidate]) -> None:
        """These are likely to be evaluated soon."""
        ...


@runtime_checkable
class RuledExecutor(Protocol):
    """An executor whose judge's figures are known here."""

    @property
    def rules(self) -> "Rules":
        """Every default and limit that verdicts depend on."""
        ...


@runtime_checkable
class MeteredExecutor(Protocol):
    """An executor that keeps account of where its time goes."""

    def spent(self, path: str) -> tuple[Phase, ...]:
        """The phases of a task's file since it was read; () for an unknown one."""
        ...


@runtime_checkable
class WatchingExecutor(Protocol):
    """An executor that can say which kernels PyTorch's own forward really runs."""

    async def dispatch(self, task: Task) -> "DispatchSeen":
        """What PyTorch runs for a task, and what judging it takes of memory."""
        ...


@runtime_checkable
class FarExecutor(Executor, Protocol):
    """An executor whose device is elsewhere, so that `together` is true.

    What it does not know yet it raises `tools.awaiting.AwaitingError` for.
    """

    def attach(self, run: str, folder: Path) -> None:
        """Say which run asks, and where what it sends and gets may be kept."""
        ...

    def audited(self, task: Task) -> Task:
        """The task with warnings that the far audit brought; asked after the baselines."""
        ...

    async def check(self, candidate: Candidate) -> Evaluation | None:
        """Why a candidate cannot be built, as far as that is seen without a trip."""
        ...

    async def fetch(self, task: Task, errand: "Errand") -> None:
        """Make one trip for all of an errand; its results are `known` from then on."""
        ...

    def known(self, candidate: str, effort: Effort) -> Evaluation | None:
        """What earlier trips of the run brought."""
        ...
