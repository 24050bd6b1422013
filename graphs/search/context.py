"""What nodes use and checkpoints do not hold: archive, executor, agents, control, listener."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Literal, Protocol

from kernelwright.agents.llm.client import TokenBudget
from kernelwright.agents.llm.endpoint import OnPiece
from kernelwright.agents.llm.tool_loop import ToolBook
from kernelwright.agents.role import Role, StepRole
from kernelwright.agents.roles import ROLES, AgentSet
from kernelwright.agents.shared.facts import Steering
from kernelwright.agents.toolbox.workbench import Workbench
from kernelwright.graphs.run_view.events import Event, FloorRevised
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.options.remembering import begun_with
from kernelwright.graphs.search.options.run_terms import (
    COMPOSED_TERM,
    Decisions,
    KeptDecisions,
    calls_otherwise,
    compositions_of,
    roles_of,
)
from kernelwright.graphs.search.options.tool_book import EventBook, has_tools
from kernelwright.graphs.search.pace import (
    PRECISE_SHARE,
    Pace,
    larger_build_s,
    larger_looks_s,
    larger_reading_s,
    looking_s,
    measuring_baselines_s,
    pace_of,
)
from kernelwright.graphs.search.told import ReadingsTold
from kernelwright.profiles.load import Hardware, SearchProfile
from kernelwright.tools.archive import Archive
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.types import Baselines, Candidate, Task

Listener = Callable[[Event], None]
Emit = Callable[[Event], None]

# So many candidates are compiled side by side.
AHEAD = 4


@dataclass(frozen=True)
class Circumstances:
    """What the agents of `roles` are made for; `emit` keeps and shows what they want told at once.

    `patience_s` is how long to wait for somebody outside before the run pauses; who waits does so
    inside `archive.waiting()`, so that the time is not counted as spent. `overhear` is given what
    models say while they say it; nothing of that is kept. `budget` is what models may cost. Tools
    of roles work with `bench`, None where they have none, and their calls are kept in `book`.
    `left_s` says how many seconds a question may still take, None for as long as it takes.
    """

    task: Task
    hardware: Hardware
    profile: SearchProfile
    archive: Archive
    emit: Emit
    patience_s: float = inf
    overhear: OnPiece | None = None
    roles: tuple[Role[object], ...] = tuple(ROLES)
    budget: TokenBudget = field(default_factory=TokenBudget)
    bench: Workbench | None = None
    book: ToolBook | None = None
    left_s: Callable[[], float | None] = lambda: None


MakeAgents = Callable[[Circumstances], AgentSet]


class Prepare(Protocol):
    """Something to be done before a round's plan, as searching a model's regions is.

    `choice` is what the person asked for in a word; it is kept with the run, for its resume.
    """

    @property
    def choice(self) -> str:
        """The word."""
        ...

    async def __call__(self, context: "SearchContext", round: int, *, now: bool = False) -> None:
        """Do it before that round, or leave it for a later one; `now` where none would follow."""
        ...


@dataclass
class SearchContext:
    """One session of one search. Times in milliseconds unless named otherwise.

    `laps` counts how often the search went on after it had finished. `book` holds what the tools of
    roles found; by default it is the run's own events. `prepare` is done between the baselines and
    a plan.
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
    book: ToolBook | None = None
    prepare: "Prepare | None" = None
    roles: tuple[Role[object], ...] = field(init=False)
    agents: AgentSet = field(init=False)
    budget: TokenBudget = field(init=False)
    pace: Pace = field(init=False)
    certifying_s: float = 0.0
    certified: int = 0
    # What of each idea stands in the ledger already, see `graphs.search.learn`.
    entered: dict[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    _made: AgentSet = field(init=False)
    _baselines: Baselines | None = None
    _profiling_s: float | None = None
    _comparing_s: float | None = None
    _making_s: float = 0.0

    @cached_property
    def told(self) -> ReadingsTold:
        """What the profiler read and said so far."""
        return ReadingsTold(self.archive)

    def __post_init__(self) -> None:
        """Make the agents, which may speak through this context from then on."""
        self.decisions = self.decisions or KeptDecisions(self.archive)
        self.pace = pace_of(self.home, self.hardware)
        self.roles = roles_of(self.archive)
        self.budget = TokenBudget(self.profile.tokens, self.profile.usd, self.archive.calls())
        self._make_agents()
        self.control.attend(self)

    def allow(self, profile: SearchProfile) -> None:
        """Go on with more, or less, to spend."""
        self.archive.set_profile(profile)
        self.profile = profile
        self.budget.tokens, self.budget.usd = profile.tokens, profile.usd

    def settle(self, hardware: Hardware, task: Task) -> None:
        """Go on with what a far host said of its device and the task; agents are made anew."""
        if (hardware, task) == (self.hardware, self.task):
            return
        from kernelwright.tools.hardware import floor_ms

        self.archive.settle(hardware, task)
        self.hardware, self.task = hardware, task
        self.floor_ms = floor_ms(task.bytes_moved, task.flops, hardware)
        self._make_agents()

    async def look_at_the_floor(self, key: str, round: int) -> None:
        """Go on with ceilings that were measured again meanwhile, decided once under that key."""
        if self.executor.capabilities.remote:
            return
        found = await self.executor.hardware()
        kept = self.decide(f"ceilings:{key}", found.model_dump_json)
        hardware, before_ms = Hardware.model_validate_json(kept), self.floor_ms
        same = (hardware.bandwidth_gb_s, hardware.confirmed)
        if same == (self.hardware.bandwidth_gb_s, self.hardware.confirmed):
            return
        from kernelwright.tools.hardware import floor_ms, floor_words

        self.hardware = hardware
        self.floor_ms = floor_ms(self.task.bytes_moved, self.task.flops, hardware)
        self._make_agents()
        event = FloorRevised(
            round=round,
            floor_ms=self.floor_ms,
            floor_how=floor_words(hardware),
            before_ms=before_ms,
        )
        self.emit(event, key=f"floor:{key}")

    def awaits_regions(self, round: int) -> bool:
        """Whether what becomes of a large model's regions was not decided in that round yet."""
        if self.archive.term(COMPOSED_TERM) is None:
            return self.prepare is not None
        return compositions_of(self.archive).round > round

    async def prepared(self, round: int, *, now: bool = False) -> None:
        """Search the regions of a large model before that round, where they have their turn."""
        if self.prepare is not None and self.archive.term(COMPOSED_TERM) is None:
            await self.prepare(self, round, now=now)
            # The same agents, which only begin otherwise: of a large model making them takes long.
            self.agents = begun_with(self.archive, self._made)

    def _make_agents(self) -> None:
        """Make them for the device as it is known; of a large model that takes its time.

        A model of a hundred layers is lowered in as many seconds as a short search has: they are
        not the search's.
        """
        before_s = self.archive.spent_s()
        around = Circumstances(
            self.task,
            self.hardware,
            self.profile,
            self.archive,
            self.emit,
            self.patience_s,
            self.overhear,
            self.roles,
            self.budget,
            self._bench(),
            self.book or EventBook(self.archive, self.emit),
            lambda: self.left_s,
        )
        made = self.make_agents(around)
        self._made = made.without(self.profile.without, self.seed, self.roles)
        self.agents = begun_with(self.archive, self._made)
        self._making_s += self.archive.spent_s() - before_s

    def _bench(self) -> Workbench | None:
        """What tools of roles work with, where this run gives its roles any."""
        if not has_tools(self.archive) or "tools" in self.profile.without:
            return None
        from kernelwright.graphs.search.judging import measured  # which works on this context

        return Workbench(
            task=self.task,
            hardware=self.hardware,
            floor_ms=self.floor_ms,
            archive=self.archive,
            executor=self.executor,
            measure=lambda candidate: measured(self, candidate, foremost=False),
            home=self.home,
        )

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
        end_s = self.searching_ends_s if until_s is None else until_s
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

    def decided(self, key: str) -> str | None:
        """What was decided under that key; None where nothing was."""
        return self.decisions.known(key) if self.decisions is not None else None

    @property
    def left_s(self) -> float | None:
        """Seconds until the limit that a person set, 0 or less behind it; None without one."""
        if self.profile.seconds_hold != "everything" or self.executor.capabilities.remote:
            return None
        return self.profile.seconds - self.archive.spent_s()

    @property
    def searched_s(self) -> float:
        """Seconds of the budget that are spent; of it are not those of baselines and profilers.

        Nor those in which this session's agents were made.
        """
        known = self._baselines.items if self._baselines else ()
        if self._profiling_s is None:
            self._profiling_s = self.archive.profiling_s()
        if self._comparing_s is None:
            self._comparing_s = measuring_baselines_s(self.archive)
        # Runs of earlier versions kept only what building baselines took.
        comparing_s = max(self._comparing_s, sum(item.setup_s for item in known))
        beside_s = comparing_s + self._profiling_s + self._making_s
        return self.archive.spent_s() - beside_s

    @property
    def searching_ends_s(self) -> float:
        """When the searching is to stop, in seconds of searching: certifying has its time then.

        Where a person said how long the whole may take, baselines and profilers count as well.
        """
        seconds = self.profile.seconds
        whole = self.profile.seconds_hold == "everything"
        beside_s = self.archive.spent_s() - self.searched_s if whole else 0.0
        return seconds - beside_s - self.reserve_s

    @property
    def precise_looks_end_s(self) -> float:
        """When the last precise look may begin: one that is late would take of a limit's rest.

        A finalist needs none, as its certification is one and more.
        """
        look_s = 0.0 if self.left_s is None else PRECISE_SHARE * self.certification_s
        return self.searching_ends_s - look_s

    @property
    def certification_s(self) -> float:
        """What certifying one finalist will take here.

        In a process of its own the model is read once more and torch.compile builds it. Those of a
        small module are in what earlier searches took; of a large one's, which may take most of the
        certification, half of what is beyond is added. A build is expected by the graph's size
        until it was a baseline. What verifying and comparing take is known by the screenings.
        """
        known = self.baselines.named("compile") if self._baselines else None
        built_s = known.setup_s if known is not None else None
        nodes = len(self.task.graph.nodes)
        build_s = larger_build_s(self.hardware.kind, nodes, built_s)
        reading_s = larger_reading_s(self.executor.spent(self.task.path))
        beside = len(self._baselines.items) if self._baselines else 1
        looks_s = larger_looks_s(self.archive.screenings(), beside)
        return self.pace.certifying_s() + (build_s + reading_s) / 2 + looks_s

    @property
    def reserve_s(self) -> float:
        """What of this search's time stays for its certification, and for a look at other modes."""
        looks_s = looking_s(self.profile.seconds) if calls_otherwise(self.archive) else 0.0
        return self.pace.reserve_s(self.profile, self.certification_s + looks_s)

    def has_time_to_certify(self, what: str) -> bool:
        """Whether one more finalist can be certified in time; decided once."""
        ends_s = self.searching_ends_s + self.reserve_s
        alone = self.profile.seconds_hold == "searching"
        in_time = alone or self.searched_s + self.certification_s <= ends_s
        return self.decide(f"certify:{what}:{self.laps}", lambda: str(in_time)) == str(True)

    @property
    def home(self) -> Path:
        """The folder of all runs and of what is remembered of devices."""
        return self.archive.folder.parent.parent

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
        left_s = max(0.0, self.searching_ends_s - self.searched_s)
        return self.searched_s + share * left_s

    def at_the_judge(self) -> AbstractContextManager[None]:
        """Around every question to the executor: a far judge's queue is not the search's time."""
        return self.archive.waiting() if self.executor.capabilities.remote else nullcontext()

    def steers(self, part: Literal["contrast", "archive"]) -> bool:
        """Whether that part has a say in what is tried; with a model it has unless switched off."""
        if part in self.profile.without:
            return False
        return self.agents.strategist is not None or part in self.profile.rules_steer_by

    @property
    def islands(self) -> int:
        """How many populations there are; without an archive of elites there is nothing to part."""
        return self.profile.islands if self.steers("archive") else 1

    @property
    def width(self) -> int:
        """How many candidates may be in flight: on a CPU compiling would disturb the timing."""
        return AHEAD if self.hardware.kind == "cuda" else 1

    def foresee(self, candidates: Sequence[Candidate]) -> None:
        """Let the first of these be compiled side by side, before one of them is asked about."""
        if self.executor.capabilities.foresees:
            judged = self.archive.evaluation
            self.executor.foresee([i for i in candidates[:AHEAD] if judged(i.id, "screen") is None])
