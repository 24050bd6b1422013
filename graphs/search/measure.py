"""Nodes in which the judge works: baselines, screening and tuning, certification and the report.

The beginning finds out what the search is about, and what PyTorch itself does. In each round all
candidates are screened, and the promising ones judged precisely and tuned. At the end finalists are
certified, and the run is summed up.
"""

import time
from collections.abc import Sequence

from langgraph.runtime import Runtime

from kernelwright.agents.coder.tuner import Tuning
from kernelwright.graphs.run_view.events import (
    BaselinesMeasured,
    CandidateWritten,
    Noted,
    RunFinished,
)
from kernelwright.graphs.run_view.events import seconds as duration
from kernelwright.graphs.run_view.failures import failure_lines
from kernelwright.graphs.run_view.figures import choose
from kernelwright.graphs.run_view.story import view_of
from kernelwright.graphs.search.context import AHEAD, SearchContext
from kernelwright.graphs.search.judging import (
    Best,
    judge,
    judge_in_time,
    patiently,
    promote,
    screen,
    screened_ms,
    settle,
)
from kernelwright.graphs.search.options.call_modes import call_otherwise
from kernelwright.graphs.search.options.experience import enough, leave_trail
from kernelwright.graphs.search.options.limits import certifying_left_s, latest_s, until_the_limit
from kernelwright.graphs.search.options.near import ended_as_near, ends_as_near
from kernelwright.graphs.search.options.remembering import is_settled, memories_of, put_into_library
from kernelwright.graphs.search.options.rounds import (
    put_off,
    rounds_to_come,
    screening_ends_s,
    trials_in,
)
from kernelwright.graphs.search.options.second_chances import second_chances
from kernelwright.graphs.search.pace import Took, remember, remember_profile
from kernelwright.graphs.search.remote_evaluation import certify_afar, evaluate_afar
from kernelwright.graphs.search.state import (
    SearchState,
    Update,
    in_order,
    time_of,
    tuning_of,
    without_success,
)
from kernelwright.graphs.search.summary import summarise
from kernelwright.tools.archive import Archive, Standing, ranked
from kernelwright.tools.archive.elites import YARDSTICK
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.recorded import SEARCHED_BY
from kernelwright.tools.evaluate.finalists import rivals, settles
from kernelwright.tools.types import Baselines, Candidate, Evaluation, Refusal, Verdict


async def intake(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Say what tracing found worth a warning."""
    for number, words in enumerate(runtime.context.task.warnings):
        runtime.context.emit(Noted(words=words), key=f"warning:{number}")
    for number, item in enumerate(memories_of(runtime.context.archive).items):
        words = f"{item.idea.title}, {item.idea.reason}"
        runtime.context.emit(Noted(words=words), key=f"library:{number}")
    for number, words in enumerate(memories_of(runtime.context.archive).notes):
        runtime.context.emit(Noted(words=words), key=f"library note:{number}")
    if runtime.context.executor.capabilities.metered:
        for number, words in enumerate(_promised(runtime.context)):
            runtime.context.emit(Noted(words=words), key=f"promise:{number}")
    return {"round": 0}


def _promised(context: SearchContext) -> list[str]:
    """What the whole will take, and whether that can be kept."""
    profile, pace = context.profile, context.pace
    told = pace.promise(profile).words
    late = ", which may end a quarter later" if profile.seconds_hold == "everything" else ""
    words = [f"a {profile.name} search: {told} to the end, certification included{late}"]
    certifying_s = context.certification_s
    if profile.seconds_hold == "everything" and context.reserve_s < certifying_s:
        words.append(
            f"certifying takes about {duration(certifying_s)} here, and nothing that is not "
            f"certified within {duration(latest_s(profile))} is called faster; about "
            f"{duration(2 * certifying_s)} would do"
        )
    return words


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
        measured = await until_the_limit(context, lambda: context.executor.baselines(context.task))
    if measured is None:
        words = f"PyTorch's own ways were not all made within {duration(context.profile.seconds)}"
        context.emit(Noted(words=words), key=f"late baselines:{context.laps}")
        context.compared(context.archive.spent_s() - before_s)
    if isinstance(measured, Baselines):
        _learn(context, measured, before_s, "baselines")


async def baselines_again(context: SearchContext) -> Baselines | Refusal:
    """PyTorch's own ways timed anew, after the search; those that it went by are kept beside."""
    if context.archive.term(SEARCHED_BY) is None:
        context.archive.record_term(SEARCHED_BY, context.baselines.model_dump_json())
    context.executor.remember(context.task, Baselines(items=()))
    return await context.executor.baselines(context.task)


def _learn(context: SearchContext, measured: Baselines, before_s: float, key: str) -> None:
    """Keep what was measured, and what of the run's time that took."""
    seconds = context.archive.spent_s() - before_s
    context.compared(seconds)
    context.learn(measured)
    context.emit(BaselinesMeasured(baselines=measured, seconds=seconds), key=key)


# Of the time that is left, this share may go into one round's tuning.
TUNING_SHARE = 0.4
# Screened beside the first one in any case where several are in flight: on tasks of gigabytes the
# first takes all the time of a short search, and a choice of one is none.
_SURE = 1


async def evaluate(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Judge what was written, the most promising first."""
    context, round = runtime.context, state["round"]
    if context.executor.capabilities.remote:
        return await evaluate_afar(state, context, context.executor)
    best = Best(state["best"], state["best_ms"])
    judged: list[Evaluation] = []
    sure, opening = 0, not best.id
    if opening:
        context.foresee(in_order(context, state["written"]))
        best, judged = await _first(context, state["written"], best, round)
        sure = _SURE if context.width > 1 else 0
    waiting = [*state["written"], *(put_off(context, round) if not state["attempt"] else ())]
    left = in_order(context, waiting, [item.candidate for item in judged])
    if opening and any(item.mode == "compile" for item in left):
        # What torch.compile built for the baseline it finds again inside of these.
        await complete(context)
    until_s = screening_ends_s(context, round)
    judged += await screen(context, left, round, sure=sure, until_s=until_s)
    if opening:
        # A screening needs eager alone; torch.compile may still be at work beside it. What is
        # known by now is not measured again.
        await complete(context)
    await context.look_at_the_floor(f"{round}:{state['attempt']}", round)
    best = await promote(context, judged, best, round)
    failed = without_success(context, state, judged)
    failed += second_chances(context, judged, context.measured_ms(best.id) if best.id else None)
    return {
        "written": None,
        "attempt": state["attempt"] + 1,
        "failed": failed,
        "best": best.id,
        "best_ms": best.ms,
    }


async def tune(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Explore the tunables of the best candidate, or of the best of this round."""
    context, round = runtime.context, state["round"]
    best = Best(state["best"], state["best_ms"])
    if not best.id or context.executor.capabilities.remote:
        return {}  # one trip of `evaluate` tunes as well
    if is_settled(context.archive, best.id):
        return {}  # the search that found it tuned it
    tuning = tuning_of(context, context.archive.candidate(best.id), round)
    until_s = context.share_of_time_s(min(TUNING_SHARE, 1 / rounds_to_come(context, round)))
    screened: list[Evaluation] = []
    trials = trials_in(context, round)
    if ends_as_near(context, best.id, round):
        trials = min(trials, AHEAD)
    while (left := trials - len(screened)) > 0:
        if enough(context, round, f"tune:{len(screened)}"):
            break
        batch = _settings_to_try(context, tuning, until_s, left)
        evaluations = await _try(context, batch, round)
        for evaluation in evaluations:
            settings = context.archive.candidate(evaluation.candidate).settings
            tuning.tell(settings, time_of(evaluation))
        screened += evaluations
        if not evaluations or len(evaluations) < len(batch):
            break
    best = await promote(context, screened, best, round)
    return {"best": best.id, "best_ms": best.ms}


async def _first(
    context: SearchContext, ids: list[str], best: Best, round: int
) -> tuple[Best, list[Evaluation]]:
    """Until there is a best candidate, screen one at a time; the first correct one is it for now.

    So a person sees a verified figure as early as can be, before torch.compile had its turn, and
    one candidate is judged even when the baselines took all the time there was. Each one that was
    refused tells which is the next.
    """
    judged: list[Evaluation] = []
    while not best.id:
        left = in_order(context, ids, [item.candidate for item in judged])
        if not left or (judged and _is_too_late(context, left[0])):
            break
        judged.append(await judge(context, left[0], "screen", round))
        best = settle(context, left[0], judged[-1], best, round)
    return best, judged


def _is_too_late(context: SearchContext, candidate: Candidate) -> bool:
    known = context.archive.evaluation(candidate.id, "screen")
    return known is None and context.is_out_of_time(f"first:{candidate.id}")


def _settings_to_try(
    context: SearchContext, tuning: Tuning, until_s: float, left: int
) -> list[Candidate]:
    """As many as are compiled side by side; what an earlier session measured costs no time."""
    batch: list[Candidate] = []
    for _ in range(min(AHEAD, left)):
        candidate = tuning.ask()
        if candidate is None:
            break
        known = context.archive.evaluation(candidate.id, "screen")
        if known is None and context.is_out_of_time(f"tuned:{candidate.id}", until_s):
            break
        batch.append(candidate)
    return batch


async def _try(context: SearchContext, batch: list[Candidate], round: int) -> list[Evaluation]:
    context.archive.record_candidates(batch, round, "tuner")
    for candidate in batch:
        event = CandidateWritten(round=round, candidate=candidate, by="tuner")
        context.emit(event, key=f"written:{candidate.id}")
    return await screen(context, batch, round)


_TERM, _FIRST = "certification", "first"


async def certify(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Certify finalists, the fastest first, until one is decided; its rivals in any case.

    One that is faster than every baseline ends it, and one that is clearly slower does too, as
    those behind it are slower still; where nothing could be distinguished, or its screened time had
    been far off, the next one has a try. Rivals are those that the precise look could not tell from
    the first: the summary then chooses among figures that were taken alike. A limit that a person
    set ends all of it, and what was not certified by then is not settled.
    """
    context, round = runtime.context, state["round"]
    await complete(context)
    best = await call_otherwise(context, Best(state["best"], state["best_ms"]), round)
    chosen = finalists(context.archive.standings(), context.profile.finalists)
    many = _rivals(context, chosen)
    if context.executor.capabilities.remote:
        await certify_afar(context, context.executor, [item.candidate for item in chosen], many)
    decided = stands = False
    for number, finalist in enumerate(chosen):
        if decided and number >= many and not _calls_otherwise(context, finalist):
            break
        if stands and not context.has_time_to_certify(finalist.candidate.id):
            words = "the time is over: the finalists behind the certified one are not certified"
            context.emit(Noted(round=round, words=words), key=f"late:{round}:{context.laps}")
            break
        before_s = context.archive.spent_s()
        evaluation = await _certified(context, finalist.candidate, round)
        if evaluation is None:
            break
        context.certifying_s += context.archive.spent_s() - before_s
        context.certified += 1
        if evaluation.verdict is not Verdict.CORRECT:
            words = (
                f"{finalist.candidate.id} did not hold in the certification "
                f"({evaluation.verification.reason}); the next finalist takes its place"
            )
            context.emit(Noted(round=round, words=words), key=f"fell:{finalist.candidate.id}")
        else:
            stands = True
            decided = decided or settles(evaluation, screened_ms(context, finalist.candidate))
    await context.look_at_the_floor(f"certified:{round}:{context.laps}", round)
    return {"best": best.id, "best_ms": best.ms}


async def _certified(context: SearchContext, candidate: Candidate, round: int) -> Evaluation | None:
    """A finalist's certification; None where a limit left no time for it, which is noted."""
    left_s = certifying_left_s(context)
    if left_s is not None:
        context.executor.hurry(time.monotonic() + left_s)
    try:
        found = await judge_in_time(context, candidate, "certify", round)
    finally:
        if left_s is not None:
            context.executor.hurry(None)
    if found is None:
        words = (
            f"the limit of {duration(context.profile.seconds)} is over before {candidate.id} was "
            f"certified; kernelwright measure {context.archive.id} certifies it"
        )
        context.emit(Noted(round=round, words=words), key=f"cut:{candidate.id}:{context.laps}")
    return found


async def report(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
    """Write the summary; where nothing is right, the first reason of each kind of failure too."""
    context = runtime.context
    summary = summarise(context, rounds=state["round"], stopped_because=state["why_stop"])
    context.archive.record_summary(summary)
    if summary.best is None:
        for number, words in enumerate(failure_lines(view_of(context.archive))):
            key = f"failure:{number}:{context.laps}"
            context.emit(Noted(round=state["round"], words=words), key=key)
    _remember(context)
    leave_trail(context)
    put_into_library(
        context.archive,
        context.hardware,
        choose(context.archive.standings()),
        floor_ms=context.floor_ms,
        certified=context.executor.capabilities.certifies,
        whole=not ended_as_near(context.archive),
    )
    event = RunFinished(round=state["round"], summary=summary)
    context.emit(event, key=f"finished:{state['round']}:{state['why_stop']}")
    return {}


def _remember(context: SearchContext) -> None:
    """Keep how long this search took here, for what is promised of the next one."""
    if profile_s := context.archive.profile_s():
        remember_profile(context.home, context.hardware, profile_s)
    if not context.executor.capabilities.metered or context.laps or not context.certifying_s:
        return
    profiling_s, whole_s = context.archive.profiling_s(), context.archive.spent_s()
    comparing_s = whole_s - profiling_s - context.searched_s
    took = Took(
        depth=context.profile.name,
        comparing_s=max(0.0, comparing_s),
        searching_s=max(0.0, context.searched_s - context.certifying_s),
        profiling_s=profiling_s,
        certifying_s=context.certifying_s,
        finalists=context.certified,
    )
    if context.profile.seconds_hold == "certification":
        remember(context.home, context.hardware, took)


def keep_rule(archive: Archive, judge: Executor) -> None:
    """Say whether this run certifies rivals too; those that were recorded before do not."""
    brief = judge.rules is not None and judge.rules.is_brief
    archive.record_term(_TERM, _FIRST if brief else "rivals")


def _rivals(context: SearchContext, chosen: Sequence[Standing]) -> int:
    if context.archive.term(_TERM) in (None, _FIRST):
        return 1
    return rivals([item.evaluation for item in chosen], YARDSTICK)


def finalists(standings: Sequence[Standing], count: int) -> tuple[Standing, ...]:
    """The fastest correct candidates that may still win.

    One that its precise comparison shows slower than every baseline has nothing to certify: its
    figures stand as they are.
    """
    able = [item for item in ranked(standings) if _may_win(item.evaluation)]
    plans = {item.candidate.plan for item in able[:count]}
    # Ways to call one plan differ less by device time than by what a single call takes.
    others = (item for item in able[count:] if item.candidate.plan in plans and _is_mode(item))
    return (*able[:count], *others)


def _is_mode(item: Standing) -> bool:
    return item.candidate.mode != "eager"


def _calls_otherwise(context: SearchContext, finalist: Standing) -> bool:
    """Whether what is certified is slower in single calls alone, and this is another way to call.

    Then the fastest by device time is not yet what may be claimed.
    """
    stands = choose(context.archive.standings())
    claim = stands.evaluation.claim if stands else None
    if stands is None or claim is None or claim.outcome != "slower alone":
        return False
    return finalist.candidate.mode != stands.candidate.mode


def _may_win(evaluation: Evaluation) -> bool:
    if not evaluation.comparisons:
        return True
    return any(comparison.ci95_high >= 1.0 for comparison in evaluation.comparisons)
