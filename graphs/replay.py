"""Runs a recorded search again without model, compiler or device, and compares the decisions.

The same graph and the same agents; answers of models, verdicts and times of the judge, and what the
clock or a person decided come from the record. What then differs was decided by our own code: that
is how tests and reports of faults work.

A run's decisions are lines, each under a key of its own: everything that was thought, written,
concluded or chosen. Times of day, durations and what models cost are left out: they are no
decisions. What the profiler reads of a candidate and the words of analyses are compared apart:
better readings are no fault. Writers of one round take turns as they did in the recorded run, as
candidates are known by the order they were written in. Not covered: prompts, which may be reworded.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import get_args

from langgraph.checkpoint.memory import InMemorySaver

from kernelwright.agents.coder.coder import Coder, CoderAnswer, CoderRequest, Failure
from kernelwright.agents.coder.model import CODER
from kernelwright.agents.llm.wrappers import ReplayingClient
from kernelwright.agents.roles import AgentSet
from kernelwright.graphs.regions.search import PUT_OFF
from kernelwright.graphs.run_view.events import (
    EVENT,
    BestImproved,
    CandidateJudged,
    Event,
    IdeasProposed,
    Profiled,
    RoleAnswered,
    RoundFinished,
    RunFinished,
    StrategyEvolved,
)
from kernelwright.graphs.search.agent_set import agents_by, models_of, playbook_agents
from kernelwright.graphs.search.context import Circumstances, MakeAgents, SearchContext
from kernelwright.graphs.search.options.run_terms import (
    COMPOSED_TERM,
    PastDecisions,
    kept_choice,
)
from kernelwright.graphs.search.options.tool_book import PastBook
from kernelwright.graphs.search.session import WENT_ON, build_search, drive
from kernelwright.tools.archive import Archive, NotRecordedError, RunError, RunRecord
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.recorded import RecordedExecutor
from kernelwright.tools.types import Analysis, Candidate, Effort, Value

POLL_S = 0.002
# A writer that waits longer without anything being written is past a difference; it goes on.
STUCK_S = 2.0


class CoderInTurn:
    """Hands out a coder's candidates when everything written before them is there."""

    def __init__(self, inner: Coder, past: Archive, present: Archive) -> None:
        self._inner = inner
        self._present = present
        written = [item.candidate for item in past.candidates()]
        self._place = {item.id: number for number, item in enumerate(written)}
        self._idea = {item.id: item.idea for item in written}

    async def write(self, request: CoderRequest) -> CoderAnswer:
        """Candidates for an idea, in turn."""
        return await self._in_turn(await self._inner.write(request))

    async def repair(self, request: CoderRequest, failure: Failure) -> CoderAnswer:
        """A repair, in turn."""
        return await self._in_turn(await self._inner.repair(request, failure))

    async def _in_turn(self, answer: CoderAnswer) -> CoderAnswer:
        wanted = self._before(answer.candidates)
        there, since = -1, monotonic()
        while there < wanted and monotonic() - since < STUCK_S:
            count = len(self._present.candidates())
            if count != there:
                there, since = count, monotonic()
            if there < wanted:
                await asyncio.sleep(POLL_S)
        return answer

    def _before(self, candidates: tuple[Candidate, ...]) -> int:
        """How many candidates were there when these were written.

        One that a sibling had written too, and first, is waited for.
        """
        known = [item for item in candidates if item.id in self._place]
        mine = [self._place[item.id] for item in known if self._idea[item.id] == item.idea]
        others = [self._place[item.id] + 1 for item in known if self._idea[item.id] != item.idea]
        return max([*mine[:1], *others], default=0)


# In one round, what comes before what.
STAGES = (
    "ideas", "candidate", "verdict", "best", "profile", "ledger", "analysis", "words", "round",
    "strategy", "role",
)  # fmt: skip
# Of an analysis, what is put in words and what was read; the rest steers the next round.
ANALYSIS_WORDS = {"claims", "implies", "notes"}
PREDICTION_WORDS = {"words", "metric_from", "metric_measured"}
NOT_DECIDED = {"at", "elapsed_s"}
# What a session took, as opposed to what it concluded; and the baselines, which may have been
# measured again since.
SUMMARY_OMITS = {"run", "seconds", "phases", "tokens", "usd", "calls", "models", "export"}
SUMMARY_OMITS |= {"baselines"}
# What goes beside a search (regions, other sizes, a training step) is searches of its own.
SUMMARY_OMITS |= {"regions", "shapes", "training"}


class Decision(Value):
    """One decision: `text` is its canonical JSON; `reading` where nothing was decided by it."""

    key: str
    round: int
    text: str
    reading: bool = False

    @property
    def order(self) -> tuple[int, int]:
        """Where it stands in the run."""
        stage = self.key.partition(":")[0]
        return self.round, STAGES.index(stage) if stage in STAGES else len(STAGES)


def decisions_of(archive: Archive) -> tuple[Decision, ...]:
    """Every decision of a run, by round and stage."""
    found = [
        *_events(archive),
        *_candidates(archive),
        *_verdicts(archive),
        *(_decision(f"ledger:{entry.idea}", entry.round, entry) for entry in archive.ledger()),
        *(part for item in archive.analyses() for part in _analysis(item)),
        *(_decision(f"strategy:{item.id}", item.round, item) for item in archive.strategies()),
        *_summary(archive),
    ]
    return tuple(sorted(found, key=lambda decision: decision.order))


def measured_later(archive: Archive) -> frozenset[str]:
    """Keys of what was certified for the first time after the search had ended, and of its end.

    The search never decided on it, so that a replay cannot be held to it.
    """
    certified: set[str] = set()
    found: set[str] = set()
    ended = False
    for stored in archive.events():
        event: Event = EVENT.validate_json(stored.payload)
        match event:
            case RunFinished():
                ended = True
            case IdeasProposed():
                ended = False
            case CandidateJudged(effort="certify"):
                key = f"verdict:{event.evaluation.candidate}:certify"
                if ended and key not in certified:
                    found |= {key, "summary"}
                certified.add(key)
    return frozenset(found)


def _events(archive: Archive) -> Iterator[Decision]:
    improved = 0
    for stored in archive.events():
        event: Event = EVENT.validate_json(stored.payload)
        match event:
            case IdeasProposed():
                silent = event.model_copy(update={"reasoning": ""})
                yield _decision(f"ideas:{event.round}", event.round, silent)
                reasons = _decision(f"reasons:{event.round}", event.round, event)
                yield reasons.model_copy(update={"reading": True})
            case BestImproved():
                improved += 1
                yield _decision(f"best:{improved}", event.round, event)
            case Profiled():
                profile = _decision(f"profile:{event.candidate}", event.round, event)
                yield profile.model_copy(update={"reading": True})
            case RoleAnswered():
                yield _decision(f"role:{event.role}:{event.round}", event.round, event)
            case StrategyEvolved():
                key = f"strategy:round {event.round}:{event.version.role}:{event.version.id}"
                yield _decision(key, event.round, event)
            case RoundFinished():
                yield _decision(f"round:{event.round}", event.round, event)


def _candidates(archive: Archive) -> Iterator[Decision]:
    for number, written in enumerate(archive.candidates(), start=1):
        plain = written.model_copy(update={"number": number})
        yield _decision(f"candidate:{number}", written.round, plain)


def _verdicts(archive: Archive) -> Iterator[Decision]:
    for written in archive.candidates():
        for effort in get_args(Effort):
            found = archive.evaluation(written.candidate.id, effort)
            if found is not None:
                yield _decision(f"verdict:{found.candidate}:{effort}", written.round, found)


def _analysis(item: Analysis) -> Iterator[Decision]:
    """What an analysis prefers, avoids and predicts; and apart from it, how it is put."""
    whole = _decision(f"words:{item.round}", item.round, item)
    told = json.loads(whole.text)
    steers = {k: v for k, v in told.items() if k not in ANALYSIS_WORDS}
    steers["predictions"] = [
        {k: v for k, v in one.items() if k not in PREDICTION_WORDS} for one in told["predictions"]
    ]
    text = json.dumps(steers, sort_keys=True)
    yield Decision(key=f"analysis:{item.round}", round=item.round, text=text)
    yield whole.model_copy(update={"reading": True})


def _summary(archive: Archive) -> Iterator[Decision]:
    """How a finished run ended; it comes after all rounds."""
    record = archive.record()
    if record.status == "finished" and record.summary is not None:
        # The status says what these led to; older runs lack them.
        young: dict[str, str | None] = {"clock": "call"}
        young |= dict.fromkeys(("latency", "host_share", "roof_fraction"))
        young |= dict.fromkeys(("outcome", "timed", "claim", "baseline", "roof"), "")
        best = record.summary.best and record.summary.best.model_copy(update=young)
        status = record.summary.status
        looked = record.summary.best.timed if record.summary.best else ""
        if status == "not_settled" and looked not in ("", "certified"):
            status = "no_improvement"  # as earlier versions called what was not certified
        summary = record.summary.model_copy(update={"best": best, "status": status})
        yield _decision("summary", summary.rounds + 1, summary, SUMMARY_OMITS)


def _decision(key: str, round: int, value: Value, omits: set[str] = NOT_DECIDED) -> Decision:
    told = {k: v for k, v in json.loads(value.model_dump_json()).items() if k not in omits}
    return Decision(key=key, round=round, text=json.dumps(told, sort_keys=True))


# Terms that a search changes on its way; a replay changes them itself.
EVOLVING = "strategy:"


class Difference(Value):
    """The first decision that a replay did not make as the run did; "" where one made none."""

    key: str
    recorded: str
    replayed: str


class Replay(Value):
    """What came of a replay.

    Attributes:
        run: The recorded run.
        same: How many decisions were the same.
        difference: The first one that was not.
        same_readings: How many readings (profiles, and the words of analyses) were the same.
        readings: Those that were not; no fault while `difference` is None.
        ended: What the record did not hold, where the run itself never finished; else "".
        reworded: Questions to models that are asked in other words now.
    """

    run: str
    same: int
    difference: Difference | None = None
    same_readings: int = 0
    readings: tuple[Difference, ...] = ()
    ended: str = ""
    reworded: tuple[str, ...] = ()


async def replay(
    run: str | Path, *, home: Path | None = None, make_agents: MakeAgents | None = None
) -> Replay:
    """Replay a run; nothing is written but a temporary folder.

    Args:
        run: Its id, the beginning of it, or its folder, which may come from another machine.
        home: Where runs live; the user's data folder by default.
        make_agents: Who thought in it, where that was neither the playbook nor recorded models.

    Raises:
        RunError: When there is no such run, or it cannot be replayed.
    """
    past = Archive.open(run, home)
    try:
        _check(past)
        with tempfile.TemporaryDirectory(prefix="kernelwright-replay-") as folder:
            present = _begun(past, Path(folder))
            try:
                return await _replayed(past, present, make_agents)
            finally:
                present.close()
    finally:
        past.close()


async def _replayed(past: Archive, present: Archive, make_agents: MakeAgents | None) -> Replay:
    client = ReplayingClient(past.calls())
    chosen = make_agents or (agents_by(client) if models_of(past) is not None else playbook_agents)
    context = _context(past, present, _in_turn(chosen, past))
    lacking = ""
    try:
        await _run(context, laps=sum(key == WENT_ON for key, _ in past.decisions()))
    except NotRecordedError as error:
        lacking = str(error)
    later = measured_later(past)
    recorded, replayed = (
        [item for item in decisions_of(archive) if item.key not in later]
        for archive in (past, present)
    )
    finished = past.record().status == "finished"
    same, difference = compare(_decided(recorded), _decided(replayed), whole=finished)
    same_readings, readings = compare_readings(recorded, replayed)
    if finished and lacking and difference is None:
        difference = Difference(key=lacking, recorded="", replayed="was asked for")
    return Replay(
        run=past.id,
        same=same,
        difference=difference,
        same_readings=same_readings,
        readings=readings,
        ended="" if finished else lacking,
        reworded=tuple(dict.fromkeys(client.reworded)),
    )


def compare(
    recorded: Sequence[Decision], replayed: Sequence[Decision], *, whole: bool
) -> tuple[int, Difference | None]:
    """How many decisions are the same, and the first that is not.

    Of a run that did not finish, its last round may hold decisions that led nowhere, and the
    replay comes no further than the record: there only what both decided is compared.
    """
    then = {decision.key: decision for decision in recorded}
    now = {decision.key: decision for decision in replayed}
    last = max((item.round for item in recorded if item.key.startswith("round:")), default=0)
    same = 0
    for decision in sorted({**now, **then}.values(), key=lambda item: item.order):
        left, right = then.get(decision.key), now.get(decision.key)
        if left is not None and right is not None and left.text == right.text:
            same += 1
        elif whole or decision.round <= last or (left is not None and right is not None):
            texts = (item.text if item else "" for item in (left, right))
            return same, Difference(key=decision.key, recorded=next(texts), replayed=next(texts))
    return same, None


def compare_readings(
    recorded: Sequence[Decision], replayed: Sequence[Decision]
) -> tuple[int, tuple[Difference, ...]]:
    """How many readings that both runs have are the same, and every one that is not."""
    now = {decision.key: decision.text for decision in replayed if decision.reading}
    both = [item for item in recorded if item.reading and item.key in now]
    differ = tuple(
        Difference(key=item.key, recorded=item.text, replayed=now[item.key])
        for item in both
        if item.text != now[item.key]
    )
    return len(both) - len(differ), differ


def _decided(found: Sequence[Decision]) -> list[Decision]:
    return [item for item in found if not item.reading]


async def _run(context: SearchContext, laps: int) -> None:
    """The search, and as often as it went on after its end."""
    graph = build_search(InMemorySaver(), context.steps)
    for _ in range(laps + 1):
        await drive(graph, context)


def _begun(past: Archive, home: Path) -> Archive:
    """A run under the same terms, in which nothing has happened."""
    record = past.record()
    present = Archive.create(
        home,
        record.task,
        policy=record.policy,
        profile=record.profile,
        hardware=record.hardware,
        target=record.target,
        seed=record.seed,
    )
    for name, value in past.terms().items():
        if not name.startswith(EVOLVING):
            present.record_term(name, value)
    return present


def _context(past: Archive, present: Archive, make_agents: MakeAgents) -> SearchContext:
    from kernelwright.tools.hardware import floor_ms

    record = past.record()
    task = record.task
    return SearchContext(
        archive=present,
        executor=_executor(past, present),
        make_agents=make_agents,
        task=task,
        hardware=record.hardware,
        profile=record.profile,
        floor_ms=floor_ms(task.bytes_moved, task.flops, record.hardware),
        seed=record.seed,
        decisions=PastDecisions({k: v for k, v in past.decisions() if k != WENT_ON}),
        book=PastBook(past, present),
        prepare=PutOff() if _waited_for_regions(past) else None,
    )


class PutOff:
    """Regions that the recorded search had put off when it ended: they have no turn here either."""

    choice = "auto"

    async def __call__(self, context: SearchContext, round: int, *, now: bool = False) -> None:
        """Leave them."""


def _waited_for_regions(past: Archive) -> bool:
    return past.event(PUT_OFF) is not None and past.term(COMPOSED_TERM) is None


def _executor(past: Archive, present: Archive) -> Executor:
    kept = kept_choice(past)
    return RecordedExecutor(past, present, remote=kept is not None and kept.remote)


def _in_turn(make_agents: MakeAgents, past: Archive) -> Callable[[Circumstances], AgentSet]:
    def make(around: Circumstances) -> AgentSet:
        agents = make_agents(around)
        return agents.replaced(CODER, CoderInTurn(agents.coder, past, around.archive))

    return make


def _check(past: Archive) -> None:
    record: RunRecord = past.record()
    if record.status == "finished" and record.summary is None:
        raise RunError(f"run {past.id} cannot be replayed: its module does not run")
    if past.ideas() and not past.decisions():
        raise RunError(f"run {past.id} cannot be replayed: it was recorded before replays were")
