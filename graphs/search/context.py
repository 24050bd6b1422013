"""What nodes use and checkpoints do not hold: archive, executor, agents, control, listener.

Control is how somebody outside reaches into a running search: stop, pause, steering. All of it may
be called from any code on the search's event loop. A stop ends the step that is running and loses
nothing, as every step can be repeated from the archive; a pause waits for the end of the step.

Which roles a run has is kept with its terms, so that a resume and a replay have the same. A run
without that term has the search's own roles only: it was begun before there were others.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from math import inf

from langgraph.runtime import RunControl

from kernelwright.agents.llm.endpoint import OnPiece
from kernelwright.agents.role import Role, StepRole
from kernelwright.agents.roles.registry import ROLES, AgentSet
from kernelwright.agents.shared.facts import Steering
from kernelwright.graphs.run_view.events import EVENT, BaselinesMeasured, Event
from kernelwright.graphs.search.run_terms import Decisions, KeptDecisions, starting_from
from kernelwright.profiles.load import Hardware, SearchProfile
from kernelwright.tools.archive import Archive, RunError
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.types import Baselines, Task


class Control:
    """The handle of one running search; make a new one for every session."""

    def __init__(self) -> None:
        self.run_control = RunControl()
        self.steering = Steering()
        self.stopped_because = ""
        self._task: asyncio.Task[None] | None = None

    def watch(self, task: asyncio.Task[None]) -> None:
        """Take charge of the task that runs the graph."""
        self._task = task
        if self.stopped_because:
            task.cancel()

    def stop(self, why: str = "you asked") -> None:
        """End the search now, with the best so far; it can be resumed."""
        self.stopped_because = self.stopped_because or why
        if self._task is not None:
            self._task.cancel()

    def pause(self, why: str = "paused") -> None:
        """End the search at the next step's end; it can be resumed."""
        self.stopped_because = self.stopped_because or why
        self.run_control.request_drain(why)

    def steer(self, steering: Steering) -> None:
        """Replace the steering; the planner reads it at its next turn."""
        self.steering = steering


_TERM = "roles"


def keep_roles(archive: Archive) -> None:
    """Let the roles that have a step of their own now be those of a new run."""
    if names := [role.name for role in ROLES.steps]:
        archive.record_term(_TERM, json.dumps(names))


def roles_of(archive: Archive) -> tuple[Role[object], ...]:
    """The roles of this run.

    Raises:
        RunError: When the run has a role that is not known here.
    """
    kept = archive.term(_TERM)
    named: list[str] = json.loads(kept) if kept else []
    if unknown := [name for name in named if name not in ROLES.names]:
        raise RunError(f"run {archive.id} has a role {unknown[0]!r}, which is not known here")
    return tuple(role for role in ROLES if not isinstance(role, StepRole) or role.name in named)


Listener = Callable[[Event], None]
Emit = Callable[[Event], None]

# This share of the time stays for the certification of the finalists.
RESERVED = 0.2


@dataclass(frozen=True)
class Circumstances:
    """What the agents of `roles` are made for; `emit` keeps and shows what they want told at once.

    `patience_s` is how long to wait for somebody outside before the run pauses; who waits does so
    inside `archive.waiting()`, so that the time is not counted as spent. `overhear` is given what
    models say while they say it; nothing of that is kept.
    """

    task: Task
    hardware: Hardware
    profile: SearchProfile
    archive: Archive
    emit: Emit
    patience_s: float = inf
    overhear: OnPiece | None = None
    roles: tuple[Role[object], ...] = tuple(ROLES)


MakeAgents = Callable[[Circumstances], AgentSet]


@dataclass
class SearchContext:
    """One session of one search. Times in milliseconds unless named otherwise.

    `laps` counts how often the search went on after it had finished.
    """

    archive: Archive
    executor: Executor
    make_agents: MakeAgents
    task: Task
    hardware: Hardware
    profile: SearchProfile
    floor_ms: float
    seed: int = 0
    listener: Listener | None = None
    control: Control = field(default_factory=Control)
    patience_s: float = inf
    decisions: Decisions | None = None
    laps: int = 0
    overhear: OnPiece | None = None
    roles: tuple[Role[object], ...] = field(init=False)
    agents: AgentSet = field(init=False)
    # What of each idea stands in the ledger already, see `graphs.search.learn`.
    entered: dict[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    _baselines: Baselines | None = None
    _profiling_s: float | None = None
    _comparing_s: float | None = None

    def __post_init__(self) -> None:
        """Make the agents, which may speak through this context from then on."""
        self.decisions = self.decisions or KeptDecisions(self.archive)
        self.roles = roles_of(self.archive)
        self._make_agents()

    def settle(self, hardware: Hardware, task: Task) -> None:
        """Go on with what a far host said of its device and the task; agents are made anew."""
        if (hardware, task) == (self.hardware, self.task):
            return
        from kernelwright.tools.tasks import floor_ms

        self.archive.settle(hardware, task)
        self.hardware, self.task = hardware, task
        self.floor_ms = floor_ms(task.bytes_moved, task.flops, hardware)
        self._make_agents()

    def _make_agents(self) -> None:
        around = Circumstances(
            self.task,
            self.hardware,
            self.profile,
            self.archive,
            self.emit,
            self.patience_s,
            self.overhear,
            self.roles,
        )
        agents = self.make_agents(around).without(self.profile.without, self.seed, self.roles)
        self.agents = starting_from(self.archive, agents)

    @property
    def steps(self) -> tuple[StepRole, ...]:
        """The roles that have a step of their own in this search."""
        roles = (role for role in self.roles if isinstance(role, StepRole))
        return tuple(role for role in roles if role.part not in self.profile.without)

    def emit(self, event: Event, key: str | None = None) -> None:
        """Keep an event, then show it; one whose key is known already is neither."""
        stored = self.archive.append_event(
            event.kind, event.round, event.model_dump_json(), key=key
        )
        if stored is not None and self.listener is not None:
            self.listener(event)

    def learn(self, baselines: Baselines) -> None:
        """Keep what PyTorch itself does, as far as it is known now."""
        self.archive.record_baselines(baselines)
        self._baselines = baselines

    @property
    def baselines(self) -> Baselines:
        """What PyTorch itself does; the baseline node has recorded eager at least."""
        self._baselines = self._baselines or self.archive.record().baselines
        if self._baselines is None:
            raise RuntimeError(f"run {self.archive.id} has no baselines yet")
        return self._baselines

    @property
    def best_baseline_ms(self) -> float:
        """The time to beat."""
        measured = self.baselines.best.measurement
        return measured.median_ms if measured else 0.0

    def measured_ms(self, candidate: str) -> float | None:
        """The most trusted time of a candidate; None when there is none of that id."""
        evaluation = self.archive.evaluation(candidate)
        return evaluation.median_ms if evaluation else None

    def is_out_of_time(self, what: str, until_s: float | None = None) -> bool:
        """Whether there is no time left for that, as the rest belongs to the certification.

        Decided once: what was begun is done even if a crash comes in between.

        Args:
            what: What it would be for, unique in the run.
            until_s: When its time is over on the run's clock, if before the search's own.
        """
        end_s = self.profile.seconds * (1.0 - RESERVED) if until_s is None else until_s
        return self.decide(f"time:{what}", lambda: str(self.searched_s >= end_s)) == str(True)

    def steering_for(self, what: str) -> Steering:
        """The person's steering, as it stood when that was first asked for in this lap."""
        key = f"wishes:{what}:{self.laps}"
        kept = self.decide(key, lambda: self.control.steering.model_dump_json())
        return Steering.model_validate_json(kept)

    def rounds_allowed(self, round: int) -> int:
        """The budget of rounds as it stood when that round ended; a resume may have raised it."""
        return int(self.decide(f"rounds:{round}", lambda: str(self.profile.rounds)))

    def seconds_allowed(self, round: int) -> float:
        """The budget of seconds as it stood when that round ended."""
        return float(self.decide(f"seconds:{round}", lambda: repr(self.profile.seconds)))

    def decide(self, key: str, now: Callable[[], str]) -> str:
        """What depends on more than the archive: decided once under that key, and kept."""
        if self.decisions is None:
            raise RuntimeError("a context has decisions as soon as it is made")
        return self.decisions.once(key, now)

    @property
    def searched_s(self) -> float:
        """Seconds of the budget that are spent; baselines' and profilers' are not of it."""
        known = self._baselines.items if self._baselines else ()
        if self._profiling_s is None:
            self._profiling_s = self.archive.profiling_s()
        if self._comparing_s is None:
            self._comparing_s = measuring_baselines_s(self.archive)
        # Runs of earlier versions kept only what building baselines took.
        comparing_s = max(self._comparing_s, sum(item.setup_s for item in known))
        return self.archive.spent_s() - comparing_s - self._profiling_s

    def compared(self, seconds: float) -> None:
        """Count what measuring PyTorch's own ways took, of the run's time."""
        if self._comparing_s is not None:
            self._comparing_s += seconds

    def profiled(self, seconds: float) -> None:
        """Count what profilers took; they have a budget of their own."""
        if self._profiling_s is not None:
            self._profiling_s += seconds

    def share_of_time_s(self, share: float) -> float:
        """When, on the run's clock, that share of the time left for searching will be over."""
        left_s = max(0.0, self.profile.seconds * (1.0 - RESERVED) - self.searched_s)
        return self.searched_s + share * left_s

    def at_the_judge(self) -> AbstractContextManager[None]:
        """Around every question to the executor: a far judge's queue is not the search's time."""
        return self.archive.waiting() if self.executor.capabilities.remote else nullcontext()

    @property
    def islands(self) -> int:
        """How many populations there are; without an archive of elites there is nothing to part."""
        return 1 if "archive" in self.profile.without else self.profile.islands

    @property
    def width(self) -> int:
        """How many candidates may be in flight: on a CPU compiling would disturb the timing."""
        return 4 if self.hardware.kind == "cuda" else 1


def measuring_baselines_s(archive: Archive) -> float:
    """Seconds that measuring PyTorch's own ways took in this run so far."""
    events = (EVENT.validate_json(item.payload) for item in archive.events())
    return sum(event.seconds for event in events if isinstance(event, BaselinesMeasured))
