"""The search as a person's tools see it: start one, resume one, measure its result again."""

import asyncio
from math import inf
from pathlib import Path

from kernelwright.agents.llm.endpoint import OnPiece
from kernelwright.agents.roles.composed import Compositions
from kernelwright.agents.shared.facts import Start
from kernelwright.graphs.run_view.events import (
    BaselinesMeasured,
    CandidateJudged,
    Noted,
    RunFinished,
)
from kernelwright.graphs.run_view.figures import choose
from kernelwright.graphs.run_view.story import keep_rules, rules_of
from kernelwright.graphs.search.agent_set import agents_for, keep_models, models_of
from kernelwright.graphs.search.context import Listener, MakeAgents, Prepare, SearchContext
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.measure import baselines_again, keep_rule
from kernelwright.graphs.search.options.experience import keep_experience, keep_turn
from kernelwright.graphs.search.options.remembering import keep_fresh, keep_memories
from kernelwright.graphs.search.options.run_terms import (
    attach,
    choice_of,
    keep_call_modes,
    keep_composed,
    keep_counters,
    keep_distinct,
    keep_held_profiling,
    keep_manner,
    keep_prepare,
    keep_roles,
    keep_start,
    keep_tuner,
    launched,
    opened,
    refusal,
)
from kernelwright.graphs.search.options.second_chances import keep_second_chances
from kernelwright.graphs.search.options.shapes import owes_sizes, with_shapes
from kernelwright.graphs.search.options.tool_book import keep_tools
from kernelwright.graphs.search.session import WENT_ON, run_session, started
from kernelwright.graphs.search.summary import summarise
from kernelwright.profiles.load import Hardware, Models, SearchProfile
from kernelwright.tools.archive import (
    Archive,
    RunError,
    RunRecord,
    Standing,
    Target,
    default_home,
)
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.base.kind import ExecutorChoice
from kernelwright.tools.evaluate.rules import Depth, Rules
from kernelwright.tools.types import Refusal, Task, TracePolicy
from kernelwright.tools.types.run import Summary


async def start_search(
    path: Path,
    policy: TracePolicy,
    target: Target,
    profile: SearchProfile,
    *,
    seed: int = 0,
    home: Path | None = None,
    listener: Listener | None = None,
    control: Control | None = None,
    executor: Executor | None = None,
    models: Models | None = None,
    make_agents: MakeAgents | None = None,
    patience_s: float = inf,
    choice: ExecutorChoice | None = None,
    start: Start | None = None,
    task: Task | None = None,
    overhear: OnPiece | None = None,
    prepare: Prepare | None = None,
    fresh: bool = False,
    modes: bool = True,
    a_turn: bool = False,
    evidence: Depth = "full",
) -> Summary | Refusal:
    """Search for a faster implementation of a user's file.

    Args:
        path: The file.
        policy: How it becomes a task.
        target: Which kind of device.
        profile: How much may be spent.
        seed: Of everything that is drawn by chance.
        home: Where runs live; the user's data folder by default.
        listener: Called with every event after it was kept. What it raises ends the search.
        control: The handle by which to stop, pause or steer this session.
        executor: Who evaluates; worker processes on this machine by default.
        models: Language models that think, with the playbook behind them; kept with the run.
        make_agents: Who thinks, instead of `models`; without either it is the playbook.
        patience_s: How long to wait for a person's answer, or a far host's results, before the
            session ends with the status "waiting"; without end by default.
        choice: Which executor is made where none is given; this machine's by default.
        start: A kernel of the person's to begin with.
        task: What the file was read as already, by an executor of the same device.
        overhear: Called with what models say while they say it; nothing of that is kept.
        prepare: Done before the first plan, as `graphs.regions` does with a large model.
        fresh: Begin with nothing out of the user's library of kernels.
        modes: Whether the best plans may be called otherwise than launch by launch.
        a_turn: Whether this is a region's turn, of which later searches learn nothing.
        evidence: What certifying adds, where an executor is made here.

    Returns:
        The summary, or why the file cannot be a task.

    Raises:
        EnvironmentLacksError: When this machine lacks what the target needs.
        asyncio.CancelledError: When the caller was cancelled; the run can be resumed.
    """
    rules = Rules.of(evidence).within(profile.seconds)
    async with opened(executor, target, choice, seed, rules) as judge:
        read = await _read(judge, path, policy, task)
        if isinstance(read, Refusal):
            return read
        hardware = await judge.hardware()
        if unusable := refusal(start, hardware):
            return unusable
        begun = launched(start, read, has_model=bool(models or make_agents))
        if isinstance(begun, Refusal):
            return begun
        start = begun
        archive = Archive.create(
            home or default_home(),
            read,
            policy=policy,
            profile=profile,
            hardware=hardware,
            target=target,
            seed=seed,
        )
        keep_manner(archive)
        try:
            archive.claim()
            attach(judge, archive, choice)
            keep_models(archive, models)
            keep_start(archive, start)
            if a_turn:
                keep_turn(archive)
            if fresh:
                keep_fresh(archive)
            elif start is None:
                keep_memories(archive, read, hardware, profile)
                if not a_turn:
                    keep_experience(archive)
            keep_roles(archive)
            keep_tools(archive)
            keep_tuner(archive)
            keep_distinct(archive)
            keep_counters(archive)
            if profile.seconds_hold == "everything":
                keep_held_profiling(archive)
            keep_second_chances(archive)
            if modes and judge.capabilities.certifies:
                keep_call_modes(archive)
            keep_rule(archive, judge)
            keep_rules(archive, judge)
            if prepare is None:
                keep_composed(archive, Compositions())  # nor will a resume search its regions
            else:
                keep_prepare(archive, prepare.choice)
            agents = make_agents or agents_for(models)
            context = _context(archive, judge, agents, listener, control, patience_s, overhear)
            context.prepare = prepare
            return await with_shapes(context, await run_session(context, resumed=False))
        finally:
            archive.close()


async def resume_search(
    run: str | Path,
    *,
    home: Path | None = None,
    rounds: int | None = None,
    seconds: float | None = None,
    listener: Listener | None = None,
    control: Control | None = None,
    executor: Executor | None = None,
    tokens: int | None = None,
    usd: float | None = None,
    models: Models | None = None,
    make_agents: MakeAgents | None = None,
    patience_s: float = inf,
    overhear: OnPiece | None = None,
    prepare: Prepare | None = None,
) -> Summary | Refusal:
    """Go on with a run that was stopped or killed; nothing is measured twice.

    A run that is finished is answered with its summary, unless `rounds`, `seconds`, `tokens` or
    `usd` (totals, earlier sessions included) give it more to spend, or other sizes were asked for
    and cut off. The models that it was begun with go on thinking, unless others are given.

    Raises:
        RunError: When the run is unknown, corrupt, busy, or was measured on another device.
        EnvironmentLacksError: When this machine lacks what the target needs.
    """
    archive = Archive.open(run, home)
    try:
        record = archive.record()
        kept = record.profile
        more = kept.limited(rounds=rounds, seconds=seconds, tokens=tokens, usd=usd)
        same = more.model_copy(update={"seconds_hold": kept.seconds_hold}) == kept
        ended = record.summary if record.status == "finished" and same else None
        if ended is not None and not owes_sizes(archive):
            return ended
        if record.status == "finished" and record.summary is None:
            raise RunError(f"run {record.id} cannot go on: its module does not run")
        archive.claim()
        archive.set_profile(more)
        choice = choice_of(archive, record)
        known = rules_of(archive)
        rules = Rules.of(known.evidence if known else "full").within(more.seconds)
        async with opened(executor, record.target, choice, record.seed, rules) as judge:
            attach(judge, archive, choice)
            hardware = await judge.hardware()
            _check_device(record, hardware)
            keep_models(archive, models)
            agents = make_agents or agents_for(models or models_of(archive))
            context = _context(archive, judge, agents, listener, control, patience_s, overhear)
            context.prepare = prepare
            if ended is not None:
                return await _other_sizes(context, ended)
            return await with_shapes(context, await run_session(context, resumed=True))
    finally:
        archive.close()


async def _other_sizes(context: SearchContext, ended: Summary) -> Summary | Refusal:
    """A search that has its result goes on with the sizes that it was cut off at."""
    if known := context.archive.record().baselines:
        context.learn(known)
        context.executor.remember(context.task, known)
    context.emit(started(context, resumed=True))
    found = await with_shapes(context, ended)
    if isinstance(found, Summary):
        context.emit(RunFinished(round=found.rounds, summary=found))
    return found


async def measure_again(
    run: str | Path,
    *,
    home: Path | None = None,
    listener: Listener | None = None,
    control: Control | None = None,
    executor: Executor | None = None,
) -> Summary | Refusal:
    """Certify a finished run's result anew; the new figures are the run's from then on.

    For a result that settled nothing, as on a busy machine. PyTorch's own ways are timed anew as
    well, and so is the noise: those of a busy hour would keep a quiet one from settling anything.
    Where somebody ends it, the result stands as it was.

    Raises:
        RunError: When the run is unknown, corrupt, busy, has no result, or was measured on another
            device.
        EnvironmentLacksError: When this machine lacks what the target needs.
    """
    archive = Archive.open(run, home)
    try:
        record = archive.record()
        winner = choose(archive.standings())
        if record.summary is None or record.baselines is None or winner is None:
            raise RunError(f"run {record.id} has no result to measure again; resume it first")
        archive.claim()
        choice = choice_of(archive, record)
        async with opened(executor, record.target, choice, record.seed) as judge:
            if judge.capabilities.remote:
                raise RunError(
                    f"run {record.id} was measured on another host; its export's verify.py "
                    "measures it again there"
                )
            attach(judge, archive, choice)
            _check_device(record, await judge.hardware())
            context = _context(archive, judge, agents_for(None), listener, control, inf, None)
            context.emit(started(context, resumed=True))
            context.emit(Noted(words=f"PyTorch's own ways and v{winner.number} are measured again"))
            return await _until_ended(context, record.summary, winner)
    finally:
        archive.close()


async def _until_ended(
    context: SearchContext, known: Summary, winner: Standing
) -> Summary | Refusal:
    """What came of measuring again; what was known where somebody ended it."""
    measuring = asyncio.create_task(_measured_again(context, known, winner))
    context.control.watch(measuring)
    try:
        return await measuring
    except asyncio.CancelledError:
        if not context.control.stopped_because:
            raise
    context.emit(Noted(words="that was ended: the result stands as it was"))
    context.emit(RunFinished(round=known.rounds, summary=known))
    return known


async def _measured_again(
    context: SearchContext, known: Summary, winner: Standing
) -> Summary | Refusal:
    archive, rounds = context.archive, known.rounds
    before_s = archive.spent_s()
    baselines = await baselines_again(context)
    if isinstance(baselines, Refusal):
        return baselines
    comparing_s = archive.spent_s() - before_s
    found = await context.executor.evaluate(context.task, winner.candidate, "certify")
    context.learn(baselines)
    context.emit(BaselinesMeasured(baselines=baselines, seconds=comparing_s))
    archive.replace_evaluation(found, "certify", rounds)
    context.emit(CandidateJudged(evaluation=found, effort="certify", round=rounds))
    summary = summarise(context, rounds=rounds, stopped_because=known.stopped_because)
    archive.record_summary(summary)
    context.emit(RunFinished(round=rounds, summary=summary))
    return summary


async def _read(
    judge: Executor, path: Path, policy: TracePolicy, task: Task | None
) -> Task | Refusal:
    return await judge.trace(path, policy) if task is None else task


def _context(
    archive: Archive,
    executor: Executor,
    make_agents: MakeAgents,
    listener: Listener | None,
    control: Control | None,
    patience_s: float,
    overhear: OnPiece | None,
) -> SearchContext:
    from kernelwright.tools.hardware import floor_ms

    record = archive.record()
    task, hardware = record.task, record.hardware
    return SearchContext(
        archive=archive,
        executor=executor,
        make_agents=make_agents,
        task=task,
        hardware=hardware,
        profile=record.profile,
        floor_ms=floor_ms(task.bytes_moved, task.flops, hardware),
        seed=record.seed,
        listener=listener,
        control=control or Control(),
        patience_s=patience_s,
        laps=sum(key == WENT_ON for key, _ in archive.decisions()),
        overhear=overhear,
    )


def _check_device(record: RunRecord, hardware: Hardware) -> None:
    if hardware.name != record.hardware.name:
        raise RunError(
            f"run {record.id} was measured on {record.hardware.name}, but this is "
            f"{hardware.name}; times of two devices do not compare"
        )
