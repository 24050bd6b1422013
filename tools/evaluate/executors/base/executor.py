"""The class through which everything is evaluated, so that where it happens can change.

A subclass of `Executor` must answer the abstract methods. All else is optional: every optional
method has a default that holds for an executor without that power, and `capabilities` says which
powers there are, so that nobody has to ask what class an executor is of.

`BatchRequest` is what one trip to a judge far away shall bring back. It says more than a list: what
to do next with what turned out well, so that screening, tuning and precise comparison take one
trip and not three.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

from pydantic import model_validator

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.messages import BackwardSeen, DispatchSeen, OutlineSeen
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import (
    Baselines,
    Candidate,
    Effort,
    Evaluation,
    Isolation,
    Phase,
    Profile,
    Refusal,
    Task,
    TracePolicy,
    Value,
)

# Ids become names of files on the far host.
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,80}")


class Variants(Value):
    """Other settings of the candidate `of`, worth a try only where that one is fast."""

    of: str
    candidates: tuple[Candidate, ...]


class BatchRequest(Value):
    """What one trip to a far device shall measure, in this order.

    Attributes:
        probe: Describe the device, audit the task, measure every baseline.
        screen: Screen each of these.
        variants: Screen those of the `tuned` fastest correct candidates of `screen`.
        tuned: How many candidates have their variants screened.
        finalists: Judge at most so many of all that was screened precisely, by the rule of
            `finalists.promising`; 0 for none.
        to_beat_ms: The screened time of the best candidate so far; None when there is none.
        precise: Judge each of these precisely, whatever they did before.
        certify: Certify these in order until one settles the rest (`finalists.settles`).
        screened_ms: Of each of those, the screened time, where there is one.
        rivals: How many of the first are certified even after one is decided.
        profiled: Ask the device's profilers about so many of the fastest of all that was judged;
            their counters come home with the results.
        profiling_s: The next of them is not begun after so many seconds of that.
    """

    probe: bool = False
    screen: tuple[Candidate, ...] = ()
    variants: tuple[Variants, ...] = ()
    tuned: int = 0
    finalists: int = 0
    to_beat_ms: float | None = None
    precise: tuple[Candidate, ...] = ()
    certify: tuple[Candidate, ...] = ()
    screened_ms: tuple[float | None, ...] = ()
    rivals: int = 1
    profiled: int = 0
    profiling_s: float = 0.0

    @model_validator(mode="after")
    def _names(self) -> "BatchRequest":
        if self.screened_ms and len(self.screened_ms) != len(self.certify):
            raise ValueError("a screened time, or none, for each candidate that is certified")
        for candidate in self.candidates():
            if not _PLAIN.fullmatch(candidate.id):
                raise ValueError(f"{candidate.id!r} is no candidate's id")
        return self

    def candidates(self) -> Iterator[Candidate]:
        """Every candidate that may be compiled for it; some come more than once."""
        yield from self.screen
        for group in self.variants:
            yield from group.candidates
        yield from self.precise
        yield from self.certify


class Capabilities(Value):
    """What an executor can do beyond what all of them can.

    Attributes:
        remote: The device is elsewhere and a trip to it is dear, so that much is asked for at once:
            `attach`, `check`, `fetch`, `known` and `audited` are used.
        reads_apart: `read` says what a file is without the device, `audit` asks the device later,
            and `warm` starts what both need.
        stands_ready: `stand_by` has processes ready for work that is known to come.
        foresees: `foresee` begins with what needs no device, such as compiling.
        metered: `spent` says where the time of a file went.
        watches: `dispatch` sees which kernels PyTorch's own forward runs.
        certifies: What it is asked to certify is certified, and not only looked at precisely.
    """

    remote: bool = False
    reads_apart: bool = False
    stands_ready: bool = False
    foresees: bool = False
    metered: bool = False
    watches: bool = False
    certifies: bool = True


def _unheard(words: str) -> None:
    """Where nobody listens."""


# Told every few seconds while a file is read that takes long: whether it computes, or waits.
HEARER: ContextVar[Callable[[str], None]] = ContextVar("hearer", default=_unheard)


class Executor(ABC):
    """Evaluates candidates against one task at a time.

    Failures of a candidate, of the user's module or of a compiler are values. An exception
    means that Kernelwright is broken, or `EnvironmentLacksError` that this machine cannot do it.
    A remote executor raises `AwaitingError` for what it does not know yet.
    """

    capabilities = Capabilities()

    @property
    @abstractmethod
    def isolation(self) -> Isolation:
        """How workers are kept apart; stands in every report."""

    @abstractmethod
    async def hardware(self) -> Hardware:
        """The device at hand, with measured ceilings (cached between processes)."""

    @abstractmethod
    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Turn a user's file into a task, in a worker; a Refusal says why not."""

    @abstractmethod
    async def baselines(self, task: Task, *, eager_only: bool = False) -> Baselines | Refusal:
        """Measure what PyTorch itself does; a Refusal when not even eager runs.

        With `eager_only` the slow ones (torch.compile) may be left for a later call. What was
        measured once is not measured again.
        """

    @abstractmethod
    async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
        """Compile, verify and time one candidate.

        `screen` verifies on the task's own and one other distribution and times briefly;
        `precise` adds interleaved comparisons against every baseline; `certify` adds all
        distributions, longer sampling and a fresh worker process.
        """

    @abstractmethod
    async def profile(self, task: Task, candidate: Candidate) -> Profile:
        """Measure where a correct candidate's call spends its time, and its hardware counters.

        What cannot be had here is said in the profile, with the cheapest remedy; never raises
        for a candidate's sake.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """End every process; nothing of them is left running."""

    # What follows are the optional powers, each with what holds where there is none.

    def remember(self, task: Task, baselines: Baselines) -> None:
        """Take baselines that an earlier session measured as known: they need not be measured."""
        return

    @property
    def rules(self) -> Rules | None:
        """Every default and limit that verdicts depend on; None where they are not known here."""
        return None

    def warm(self) -> None:
        """Make ready in the background for questions to come."""
        return

    async def read(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Turn a user's file into a task, and leave open whether that proves anything."""
        return await self.trace(path, policy)

    async def audit(self, task: Task) -> Task | Refusal:
        """Run the task on the device, and badge it where being right proves little."""
        return task

    def stand_by(self, workers: int, *, compiler: bool = True) -> None:
        """From now on let that many processes stand ready; they leave the device alone.

        `compiler` says whether torch.compile will be asked for.
        """
        return

    def foresee(self, candidates: Sequence[Candidate]) -> None:
        """These are likely to be evaluated soon."""
        return

    def spent(self, path: str) -> tuple[Phase, ...]:
        """The phases of a task's file since it was read; () for an unknown one."""
        return ()

    async def dispatch(self, task: Task) -> DispatchSeen:
        """What PyTorch runs for a task, and what judging it takes of memory."""
        return DispatchSeen(failure="this device is somewhere else")

    async def outline(self, task: Task) -> OutlineSeen:
        """The forward as PyTorch runs it, with the time of every operator."""
        return OutlineSeen(failure="this device is somewhere else")

    async def retrace(self, task: Task, policy: TracePolicy) -> Task | Refusal:
        """The text that a task was read from, read again with another policy."""
        return Refusal(sentence="Other sizes are not read where the device is somewhere else.")

    async def prove(self, task: Task, candidate: Candidate) -> Evaluation | None:
        """Whether a candidate is right, on every distribution, untimed; None where nobody can say.

        It is for checking a candidate at other sizes than those that it was certified at.
        """
        return None

    async def backward(self, task: Task) -> BackwardSeen:
        """The backward of a task's forward, as a task of its own."""
        return BackwardSeen(failure="this device is somewhere else")

    def compile_ahead(self, wanted: bool) -> None:
        """Whether torch.compile begins as soon as a file was read, or when it is asked for."""
        return

    def beside_eager_alone(self, wanted: bool) -> None:
        """Whether candidates are from now on compared with eager PyTorch and nothing else."""
        return

    def hurry(self, until_s: float | None) -> None:
        """Nothing that is certified from now on shall last beyond that; None lets it last.

        It is a moment on the clock of `time.monotonic`. What had no time is said to be missing.
        """
        return

    # What a remote device is asked with.

    def attach(self, run: str, folder: Path) -> None:
        """Say which run asks, and where what is sent and comes back may be kept."""
        return

    def audited(self, task: Task) -> Task:
        """The task with warnings that the far audit brought; asked after the baselines."""
        return task

    async def check(self, candidate: Candidate) -> Evaluation | None:
        """Why a candidate cannot be built, as far as that is seen without a trip."""
        return None

    async def fetch(self, task: Task, request: BatchRequest) -> None:
        """Make one trip for all of a request; its results are `known` from then on."""
        return

    def known(self, candidate: str, effort: Effort) -> Evaluation | None:
        """What earlier trips of the run brought."""
        return None
