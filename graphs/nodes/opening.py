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
    """Time the module as it is; torch.compile takes long and has its turn in `complete`."""
    context = runtime.context
    with context.at_the_judge():
        measured = await context.executor.baselines(context.task, eager_only=True)
    if isinstance(measured, Refusal):
        return {"refusal": measured.model_dump_json(), "why_stop": measured.sentence}
    context.learn(measured)
    context.emit(BaselinesMeasured(baselines=measured), key="baselines:eager")
    return {}


async def complete(context: SearchContext) -> None:
    """Time the baselines that are still missing, so that precise comparisons can begin."""
    with context.at_the_judge():
        measured = await context.executor.baselines(context.task)
    if isinstance(measured, Baselines):
        context.learn(measured)
        context.emit(BaselinesMeasured(baselines=measured), key="baselines")
