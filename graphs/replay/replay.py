"""Runs a recorded search again without model, compiler or device, and compares the decisions.

The same graph and the same agents; answers of models, verdicts and times of the judge, and what the
clock or a person decided come from the record. What then differs was decided by our own code: that
is how tests and reports of faults work. What the profiler reads and the words of analyses are
compared apart: better readings are no fault. Not covered: prompts, which may be reworded.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from langgraph.checkpoint.memory import InMemorySaver

from kernelwright.agents.coder.model import CODER
from kernelwright.agents.llm.wrappers import ReplayingClient
from kernelwright.agents.roles.registry import AgentSet
from kernelwright.graphs.replay.decisions import CoderInTurn, Decision, decisions_of
from kernelwright.graphs.search.agent_set import agents_by, models_of, playbook_agents
from kernelwright.graphs.search.context import Circumstances, MakeAgents, SearchContext
from kernelwright.graphs.search.run_terms import PastDecisions, kept_choice
from kernelwright.graphs.search.session import WENT_ON, build_search, drive
from kernelwright.tools.archive import Archive, NotRecordedError, RunError, RunRecord
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.recorded import RecordedExecutor
from kernelwright.tools.types import Value

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
    recorded, replayed = decisions_of(past), decisions_of(present)
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
    for name, json in past.terms().items():
        if not name.startswith(EVOLVING):
            present.record_term(name, json)
    return present


def _context(past: Archive, present: Archive, make_agents: MakeAgents) -> SearchContext:
    from kernelwright.tools.tasks import floor_ms

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
    )


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
