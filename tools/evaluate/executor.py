"""The one door to evaluation, so that where it happens can change.

`local` evaluates in worker processes on this machine; other executors (batch files for a GPU
host without a network, a cluster) can take its place without the graph noticing.
"""

from pathlib import Path
from typing import Literal, Protocol

from profiles.load import Hardware
from tools.nouns import Baselines, Candidate, Evaluation, Refusal, Task, TracePolicy

Effort = Literal["screen", "precise", "certify"]


class Executor(Protocol):
    """Evaluates candidates against one task at a time.

    Failures of a candidate, of the user's module or of a compiler are values. An exception
    means that Kernelwright is broken, or `EnvironmentLacksError` that this machine cannot do it.
    """

    @property
    def isolation(self) -> str:
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

    async def aclose(self) -> None:
        """End every process; nothing of them is left running."""
        ...


class EnvironmentLacksError(Exception):
    """This machine lacks something needed; the message names the command that would fix it."""
