"""The beginning of a search: what it is about, and what PyTorch itself does."""

from langgraph.runtime import Runtime

from graphs.context import SearchContext
from graphs.events import BaselinesMeasured, Noted
from graphs.state import SearchState, Update
from tools.nouns import Baselines, Refusal


async def intake(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Say what tracing found worth a warning."""
    for number, words in enumerate(runtime.context.task.warnings):
        runtime.context.emit(Noted(words=words), key=f"warning:{number}")
    return {"round": 0}


async def baseline(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Measure the baselines once in a run's life."""
    context = runtime.context
    measured: Baselines | Refusal | None = context.archive.record().baselines
    if measured is None:
        measured = await context.executor.baselines(context.task)
    if isinstance(measured, Refusal):
        return {"refusal": measured.model_dump_json(), "why_stop": measured.sentence}
    context.archive.record_baselines(measured)
    context.emit(BaselinesMeasured(baselines=measured), key="baselines")
    return {}
