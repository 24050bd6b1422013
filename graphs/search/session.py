"""The search as a graph, and one session of it: from where a run stands to its end or a stop.

intake -> baseline -> plan -> [write x N] -> evaluate -> tune -> profile -> critique -> select, and
from there by evolve to the next plan, or to certify and report. Ideas whose candidates all failed
go back from evaluate to their writers, a bounded number of times. Roles with a step of their own
are asked before plan, or after profile, critique or select, as each of them says.

Whatever ends a session, the archive holds the best so far and the checkpoints beside it say where
to go on: a stop and a crash differ only in that a stop also writes a summary. A session that has
to wait longer for somebody outside than its patience lasts ends too, with the status "waiting".

What a search imports when it first needs it can be imported beforehand, where nobody waits. Not
here: torch's compilers and whatever else only workers import (`tools.evaluate.worker`).
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from typing import Literal

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import GraphDrained
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import RetryPolicy, Send
from langsmith import tracing_context

from kernelwright.agents.role import Place, StepRole
from kernelwright.graphs.run_view.events import Awaited, RunFinished, RunStarted
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.judging import comparable_ms
from kernelwright.graphs.search.learn import critique, evolve, profile, select
from kernelwright.graphs.search.measure import baseline, certify, evaluate, intake, report, tune
from kernelwright.graphs.search.plan_and_write import plan, step_of, write
from kernelwright.graphs.search.state import START_STATE, SearchState, Work
from kernelwright.graphs.search.summary import summarise
from kernelwright.profiles.load import Models
from kernelwright.tools.archive import Target
from kernelwright.tools.evaluate.sandbox.worker import WorkerBrokenError
from kernelwright.tools.hardware import floor_words
from kernelwright.tools.types import Refusal
from kernelwright.tools.types.run import Summary
from kernelwright.tools.types.value import AwaitingError

# A machine short of memory may refuse a worker now and grant it in a moment. A step that is taken
# again finds what it had measured in the archive.
AGAIN = RetryPolicy(initial_interval=2.0, max_attempts=3, retry_on=WorkerBrokenError)

Builder = StateGraph[SearchState, SearchContext, SearchState, SearchState]
SearchGraph = CompiledStateGraph[SearchState, SearchContext, SearchState, SearchState]


def build_search(
    checkpointer: BaseCheckpointSaver[str] | None = None, roles: Sequence[StepRole] = ()
) -> SearchGraph:
    """The graph, ready to run, with a step for each of these roles."""
    graph = StateGraph(SearchState, context_schema=SearchContext)
    graph.add_node("intake", intake)
    graph.add_node("baseline", baseline, retry_policy=AGAIN)
    graph.add_node("plan", plan)
    graph.add_node("write", write, input_schema=Work)
    graph.add_node("evaluate", evaluate, retry_policy=AGAIN)
    graph.add_node("tune", tune, retry_policy=AGAIN)
    graph.add_node("profile", profile)
    graph.add_node("critique", critique)
    graph.add_node("select", select)
    graph.add_node("evolve", evolve)
    graph.add_node("certify", certify, retry_policy=AGAIN)
    graph.add_node("report", report)
    for role in roles:
        graph.add_node(role.name, step_of(role))
    planning = _chain(graph, "before_plan", roles, "plan")
    graph.add_edge(START, "intake")
    graph.add_edge("intake", "baseline")
    graph.add_conditional_edges("baseline", after_baseline, {"plan": planning, END: END})
    graph.add_conditional_edges("plan", fan_out, ["write", "certify"])
    graph.add_edge("write", "evaluate")
    graph.add_conditional_edges("evaluate", after_evaluate, ["write", "tune"])
    graph.add_edge("tune", "profile")
    graph.add_edge("profile", _chain(graph, "after_profile", roles, "critique"))
    graph.add_edge("critique", _chain(graph, "after_critique", roles, "select"))
    graph.add_conditional_edges(_last(graph, "select", "after_select", roles), after_select)
    graph.add_edge("evolve", planning)
    graph.add_edge("certify", "report")
    graph.add_edge("report", END)
    return graph.compile(checkpointer=checkpointer)


def _chain(graph: Builder, place: Place, roles: Sequence[StepRole], then: str) -> str:
    """Where that place begins: its first role, whose like follow it up to the step after them."""
    names = [role.name for role in roles if role.place == place]
    for name, after in pairwise([*names, then]):
        graph.add_edge(name, after)
    return names[0] if names else then


def _last(graph: Builder, begin: str, place: Place, roles: Sequence[StepRole]) -> str:
    """Where that place ends, which begins behind a step: its last role, or that step itself."""
    names = [begin, *(role.name for role in roles if role.place == place)]
    for name, after in pairwise(names):
        graph.add_edge(name, after)
    return names[-1]


def after_baseline(state: SearchState) -> Literal["plan", "__end__"]:
    """A task whose reference does not run is not searched."""
    return "__end__" if state["refusal"] else "plan"


def fan_out(state: SearchState, runtime: Runtime[SearchContext]) -> list[Send] | Literal["certify"]:
    """One writer for each idea of this round, and for each repair that the last one owes."""
    if state["why_stop"] or not state["ideas"]:
        return "certify"
    owed = (runtime.context.archive.candidate(id) for id in state.get("owed", []))
    repairs = [_send(state, candidate.idea, candidate.id) for candidate in owed]
    return [*(_send(state, idea, "") for idea in state["ideas"]), *repairs]


def after_evaluate(
    state: SearchState, runtime: Runtime[SearchContext]
) -> list[Send] | Literal["tune"]:
    """Failed ideas go back to their writers while there are attempts left."""
    context = runtime.context
    if not state["failed"] or state["attempt"] > context.profile.repairs:
        return "tune"
    if context.is_out_of_time(f"repairs:{state['round']}:{state['attempt']}"):
        return "tune"
    failed = (context.archive.candidate(id) for id in state["failed"])
    return [_send(state, candidate.idea, candidate.id) for candidate in failed]


def after_select(state: SearchState) -> Literal["evolve", "certify"]:
    """Another round, for which prompts may evolve, or the end."""
    return "certify" if state["why_stop"] else "evolve"


def _send(state: SearchState, idea: str, failed: str) -> Send:
    work = Work(
        round=state["round"],
        idea=idea,
        failed=failed,
        best=state["best"],
        parents=state["parents"],
    )
    return Send("write", work)


def import_beforehand(target: Target, models: Models | None = None) -> None:
    """Import what the first searches need; takes seconds the first time, and no time after."""
    for name in needed(target, models):
        import_module(name)


def needed(target: Target, models: Models | None) -> tuple[str, ...]:
    """The modules that searches import late."""
    emitters = {"cpu": ("cpp",), "cuda": ("cuda",)}.get(target, ("cpp", "cuda"))
    names = [
        "kernelwright.tools.codegen.library.kernel_library",
        *(f"kernelwright.tools.codegen.{name}" for name in emitters),
    ]
    names += (
        ["kernelwright.agents.llm.chat_model", "langchain_openai"] if models is not None else []
    )
    return ("kernelwright.tools.evaluate.executors.local.executor", *names)


CHECKPOINTS = "checkpoints.db"
# The decision to go on after a finished search; it can be made several times.
WENT_ON = "went on"
# Steps of one round with repairs, generously; a routing error ends here and not after hours.
STEPS_PER_ROUND = 32
# A person may allow more rounds while a session runs.
SPARE_ROUNDS = 100


async def run_session(context: SearchContext, *, resumed: bool) -> Summary | Refusal:
    """Run the graph until it ends or somebody ends it.

    Returns:
        The summary, or why the task was refused once it was looked at.

    Raises:
        asyncio.CancelledError: When the caller was cancelled, after what there is was summed up.
    """
    context.archive.set_status("running")
    if known := context.archive.record().baselines:
        context.learn(known)
        context.executor.remember(context.task, known)
    context.emit(started(context, resumed=resumed))
    checkpoints = context.archive.folder / CHECKPOINTS
    async with AsyncSqliteSaver.from_conn_string(str(checkpoints)) as saver:
        graph = build_search(saver, context.steps)
        driving = asyncio.create_task(drive(graph, context))
        context.control.watch(driving)
        try:
            await driving
        except (asyncio.CancelledError, GraphDrained):
            return await _stopped(graph, context)
        except AwaitingError as awaited:
            return await _waiting(graph, context, awaited)
        except Exception as error:
            await _failed(graph, context, error)
            raise
        state = (await graph.aget_state(_config(context))).values
    if state.get("refusal"):
        context.archive.set_status("finished")
        return Refusal.model_validate_json(state["refusal"])
    summary = context.archive.record().summary
    if summary is None:
        raise RuntimeError(f"run {context.archive.id} ended without a summary")
    return summary


async def drive(graph: SearchGraph, context: SearchContext) -> None:
    """Run it from the beginning, from the last checkpoint, or on from where it had finished."""
    config = _config(context)
    snapshot = await graph.aget_state(config)
    payload: SearchState | None = None if snapshot.values else START_STATE
    # Tasks, and not `next`: that leaves out those which had ended when the step was interrupted.
    if snapshot.values and not snapshot.tasks:
        config = await graph.aupdate_state(config, _going_on(context), as_node="select")
        config["recursion_limit"] = _config(context)["recursion_limit"]
        context.archive.record_decision(WENT_ON, str(snapshot.values["round"]))
        context.laps += 1
    with tracing_context(enabled=False):  # nothing goes to a tracing service
        await graph.ainvoke(
            payload,
            config,
            context=context,
            durability="sync",
            control=context.control.run_control,
        )


def _going_on(context: SearchContext) -> SearchState:
    """A finished search's state made ready for more; its best may have failed certification."""
    best = context.archive.best()
    return {
        "why_stop": "",
        "stale_rounds": 0,
        "best": best.candidate.id if best else "",
        "best_ms": comparable_ms(context, best.evaluation) if best else None,
    }


async def _stopped(graph: SearchGraph, context: SearchContext) -> Summary:
    """Sum up what there is; a caller's own cancellation goes on after that."""
    asked = context.control.stopped_because
    summary = await _so_far(graph, context, asked or "cancelled", "stopped")
    context.emit(RunFinished(round=summary.rounds, summary=summary))
    if not asked:
        raise asyncio.CancelledError
    return summary


async def _waiting(graph: SearchGraph, context: SearchContext, awaited: AwaitingError) -> Summary:
    """Sum up what there is, and say who has to do what before the run can go on."""
    summary = await _so_far(graph, context, awaited.words, "waiting")
    paths = tuple(str(path) for path in awaited.paths)
    context.emit(Awaited(round=summary.rounds, words=awaited.words, paths=paths))
    return summary


async def _failed(graph: SearchGraph, context: SearchContext, error: Exception) -> None:
    """Sum up what there is, although we are broken; the listener may be what broke."""
    words = f"{type(error).__name__}: {error}".splitlines()[0]
    summary = await _so_far(graph, context, words, "failed")
    with suppress(Exception):
        context.emit(RunFinished(round=summary.rounds, summary=summary))


async def _so_far(
    graph: SearchGraph,
    context: SearchContext,
    why: str,
    status: Literal["stopped", "waiting", "failed"],
) -> Summary:
    state = (await graph.aget_state(_config(context))).values
    rounds = state.get("round", 0)
    summary = summarise(context, rounds=rounds, stopped_because=why, ended=status)
    context.archive.record_summary(summary, "stopped")
    return summary


def started(context: SearchContext, *, resumed: bool) -> RunStarted:
    """What is told at the begin of a session."""
    return RunStarted(
        run=context.archive.id,
        task=context.task.name,
        hardware=context.hardware.name,
        floor_ms=context.floor_ms,
        floor_how=floor_words(context.hardware),
        bytes_moved=context.task.bytes_moved,
        flops=context.task.flops,
        warnings=context.task.warnings,
        isolation=context.executor.isolation,
        resumed=resumed,
    )


def _config(context: SearchContext) -> RunnableConfig:
    return {
        "configurable": {"thread_id": context.archive.id},
        "recursion_limit": STEPS_PER_ROUND * (context.profile.rounds + SPARE_ROUNDS),
    }
