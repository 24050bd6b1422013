"""One session of one search, as its server sees it."""

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

from kernelwright.graphs.run_view.speech import Speeches
from kernelwright.graphs.search.control import Control
from kernelwright.tools.types import Refusal
from kernelwright.tools.types.run import Summary

State = Literal["starting", "running", "pausing", "stopping", "ended"]


@dataclass(eq=False)
class Life:
    """A search that runs.

    `named` has the id of the run as soon as there is one, "" where it ended before that; `done`
    comes at the end of the session. `outcome` is what came of it, `problem` what went wrong.
    `session` is its task; `speeches` are what models are saying right now.
    """

    person: str
    run: str = ""
    state: State = "starting"
    control: Control = field(default_factory=Control)
    outcome: Summary | Refusal | None = None
    problem: str = ""
    session: Future[None] | None = None
    speeches: Speeches = field(default_factory=Speeches)
    named: Future[str] = field(default_factory=Future)
    done: Future[None] = field(default_factory=Future)

    @property
    def goes_on(self) -> bool:
        """Whether the session has not ended yet."""
        return self.state != "ended"

    def name(self, run: str) -> None:
        """Say which run it is, the first time; "" where there never was one."""
        if not self.named.done():
            self.named.set_result(run)
