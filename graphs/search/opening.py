"""The beginning of a search: what it is about, and what PyTorch itself does."""

from langgraph.runtime import Runtime

from kernelwright.graphs.run_view.events import BaselinesMeasured, Noted
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.state import SearchState, Update
from kernelwright.graphs.search.waiting import patiently
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.types import Baselines, Refusal


async def intake(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Say what tracing found worth a warning."""
    for number, words in enumerate(runtime.context.task.warnings):
        runtime.context.emit(Noted(words=words), key=f"warning:{number}")
    return {"round": 0}


async def baseline(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Time the module as it is; torch.compile takes long and has its turn in `complete`."""
    context, executor = runtime.context, runtime.context.executor
    before_s = context.archive.spent_s()
    measured = await patiently(context, lambda: executor.baselines(context.task, eager_only=True))
    if isinstance(measured, Refusal):
        return {"refusal": measured.model_dump_json(), "why_stop": measured.sentence}
    if executor.capabilities.remote:
        await _meet(context, executor)
    _learn(context, measured, before_s, "baselines:eager")
    return {}


async def _meet(context: SearchContext, far: Executor) -> None:
    """Take note of the far device, of which only a data sheet was known before."""
    known = context.task.warnings
    context.settle(await far.hardware(), far.audited(context.task))
    for number, words in enumerate(context.task.warnings[len(known) :], start=len(known)):
        context.emit(Noted(words=words), key=f"warning:{number}")
    device = context.hardware
    context.emit(Noted(words=f"the device is {device.name} ({device.source})"), key="device")


async def complete(context: SearchContext) -> None:
    """Time the baselines that are still missing, so that precise comparisons can begin."""
    before_s = context.archive.spent_s()
    with context.at_the_judge():
        measured = await context.executor.baselines(context.task)
    if isinstance(measured, Baselines):
        _learn(context, measured, before_s, "baselines")


def _learn(context: SearchContext, measured: Baselines, before_s: float, key: str) -> None:
    """Keep what was measured, and what of the run's time that took."""
    seconds = context.archive.spent_s() - before_s
    context.compared(seconds)
    context.learn(measured)
    context.emit(BaselinesMeasured(baselines=measured, seconds=seconds), key=key)
