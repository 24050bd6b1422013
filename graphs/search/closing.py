"""The end of a search: finalists are certified, and the run is summed up."""

from collections.abc import Sequence

from langgraph.runtime import Runtime

from kernelwright.graphs.run_view.events import Noted, RunFinished
from kernelwright.graphs.search.afar import certify_afar
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.judging import judge, screened_ms
from kernelwright.graphs.search.opening import complete
from kernelwright.graphs.search.state import SearchState, Update
from kernelwright.graphs.search.summary import summarise
from kernelwright.tools.archive import Archive, Standing, ranked
from kernelwright.tools.archive.ranking import YARDSTICK
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.selection import rivals, settles
from kernelwright.tools.types import Evaluation, Verdict

_TERM, _FIRST = "certification", "first"


async def certify(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Certify finalists, the fastest first, until one is decided; its rivals in any case.

    One that is faster than every baseline ends it, and one that is clearly slower does too, as
    those behind it are slower still; where nothing could be distinguished, or its screened time had
    been far off, the next one has a try. Rivals are those that the precise look could not tell from
    the first: the summary then chooses among figures that were taken alike.
    """
    context, round = runtime.context, state["round"]
    await complete(context)
    chosen = finalists(context.archive.standings(), context.profile.finalists)
    many = _rivals(context, chosen)
    if context.executor.capabilities.remote:
        await certify_afar(context, context.executor, [item.candidate for item in chosen], many)
    decided = False
    for number, finalist in enumerate(chosen):
        if decided and number >= many:
            break
        evaluation = await judge(context, finalist.candidate, "certify", round)
        if evaluation.verdict is not Verdict.CORRECT:
            words = (
                f"{finalist.candidate.id} did not hold in the certification "
                f"({evaluation.verification.reason}); the next finalist takes its place"
            )
            context.emit(Noted(round=round, words=words), key=f"fell:{finalist.candidate.id}")
        else:
            decided = decided or settles(evaluation, screened_ms(context, finalist.candidate))
    return {}


async def report(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Write the summary."""
    context = runtime.context
    summary = summarise(context, rounds=state["round"], stopped_because=state["why_stop"])
    context.archive.record_summary(summary)
    event = RunFinished(round=state["round"], summary=summary)
    context.emit(event, key=f"finished:{state['round']}:{state['why_stop']}")
    return {}


def keep_rule(archive: Archive, judge: Executor) -> None:
    """Say whether this run certifies rivals too; those that were recorded before do not."""
    timing = judge.rules is not None and judge.rules.evidence == "timing"
    archive.record_term(_TERM, _FIRST if timing else "rivals")


def _rivals(context: SearchContext, chosen: Sequence[Standing]) -> int:
    if context.archive.term(_TERM) in (None, _FIRST):
        return 1
    return rivals([item.evaluation for item in chosen], YARDSTICK)


def finalists(standings: Sequence[Standing], count: int) -> tuple[Standing, ...]:
    """The fastest correct candidates that may still win.

    One that its precise comparison shows slower than every baseline has nothing to certify: its
    figures stand as they are.
    """
    return tuple(item for item in ranked(standings) if _may_win(item.evaluation))[:count]


def _may_win(evaluation: Evaluation) -> bool:
    if not evaluation.comparisons:
        return True
    return any(comparison.ci95_high >= 1.0 for comparison in evaluation.comparisons)
