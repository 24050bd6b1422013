"""One session of a run: the graph from where it stands to its end, or to whoever ends it.

Whatever ends a session, the archive holds the best so far and the checkpoints beside it say where
to go on: a stop and a crash differ only in that a stop also writes a summary. A session that has
to wait longer for somebody outside than its patience lasts ends too, with the status "waiting".

What a search imports when it first needs it can be imported beforehand, where nobody waits. Not
here: torch's compilers and whatever else only workers import (`tools.evaluate.worker`).
"""

import asyncio
from contextlib import suppress
from importlib import import_module
from typing import Literal

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.errors import GraphDrained
from langsmith import tracing_context

from kernelwright.graphs.run_view.events import Awaited, RunFinished, RunStarted
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.graph import SearchGraph, build_search
from kernelwright.graphs.search.judging import comparable_ms
from kernelwright.graphs.search.state import START_STATE, SearchState
from kernelwright.graphs.search.summary import summarise
from kernelwright.profiles.models import Models
from kernelwright.tools.archive import Target, warm_up
from kernelwright.tools.types import Refusal
from kernelwright.tools.types.run import Summary
from kernelwright.tools.types.value import AwaitingError


def import_beforehand(target: Target, models: Models | None = None) -> None:
    """Import what the first searches need; takes seconds the first time, and no time after."""
    warm_up()
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
    context.emit(_started(context, resumed=resumed))
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


def _started(context: SearchContext, *, resumed: bool) -> RunStarted:
    return RunStarted(
        run=context.archive.id,
        task=context.task.name,
        hardware=context.hardware.name,
        floor_ms=context.floor_ms,
        bytes_moved=context.task.bytes_moved,
        flops=context.task.flops,
        warnings=context.task.warnings,
        isolation=context.executor.isolation,
        resumed=resumed,
    )


def _config(context: SearchContext) -> RunnableConfig:
    return {
        "configurable": {"thread_id": context.archive.id},
        "recursion_limit": STEPS_PER_ROUND * (context.profile.rounds + 1),
    }
