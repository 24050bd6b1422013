"""Other ways to call the best plans of a search: inside torch.compile, or as a CUDA graph's replay.

They are candidates of their own, which the judge verifies and times like others. What decides
whether they are worth its time is what the host has to issue for one call, launches of ours and
operators of the library's: a call is bound by that where each of them takes little time. They have
their turn once, when the searching is over, as then the plan is known that they are made of; while
it goes on candidates are compared as they are called launch by launch.

A plan of hundreds of steps may have the least work for the device and be ranked last, as the host
issues them more slowly than that: the one that was expected to be the fastest of these is called as
a graph as well.

What a model's regions were put together to has its modes in the first round, and here those for
which there was no time then. Not covered: far devices, where each question is a trip; the searches
over regions; other plans that the search ranked behind its first few, which might be ahead in
another mode.
"""

import json
from collections.abc import Mapping, Sequence
from math import inf

from kernelwright.graphs.run_view.events import CandidateWritten
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.judging import Best, judge_in_time, screened_ms, settle
from kernelwright.graphs.search.options.run_terms import calls_otherwise, compositions_of
from kernelwright.tools.archive import Standing, ranked
from kernelwright.tools.candidates.plan import library_calls
from kernelwright.tools.languages import in_mode
from kernelwright.tools.types import (
    IN_MODE,
    Baseline,
    CallMode,
    Candidate,
    Evaluation,
    Task,
    TensorSpec,
    Verdict,
)

# Plans that are called otherwise: the fastest, and one that is about as fast.
_MOST, _NEAR = 2, 1.1

# Seconds for issuing one launch or operator, by the host: in a plan on two cores of a virtual
# machine a launch took 10 us at best and an operator 3. Beside an H200 a single call of ResNet18,
# of dozens, took 2.9 ms longer than its work, and one of 1_MLP, of a handful, 58 us (by host_share
# in benchmarks/results/h200/kernelbench_level3.jsonl).
_STEP_S = 15e-6
# A call whose steps take longer than this many times as long each has the host ahead of the device.
_BOUND = 4.0
# Or, where single calls were timed: what the host adds to one, of its work.
_ADDED = 0.5
# A replay copies arguments in and results out: with fewer steps than this beside those copies
# there is nothing to save.
_FEWEST_STEPS = 4
# torch.compile makes something of the library's operators around launches, and not of one.
_FEWEST_OPERATORS = 2
# It is asked at every look, screened, precise and certified, each time anew; all looks at one plan
# together may take this share of a search's time.
_LOOKS, _COMPILING_SHARE = 3, 0.25


def modes_of(task: Task, kind: str) -> tuple[CallMode, ...]:
    """In which modes plans for a task may be called on that kind of device, beside eagerly.

    What is traced in parts branches on values, which none of them can. One that draws random
    numbers would do so inside torch.compile in an order of its own.
    """
    if task.parts:
        return ()
    found: tuple[CallMode, ...] = ("compile",) if not task.draws_random else ()
    return (*found, "graph") if kind == "cuda" else found


def modes_to_try(
    task: Task,
    kind: str,
    candidate: Candidate,
    evaluation: Evaluation,
    *,
    compile_s: float | None,
    bandwidth_gb_s: float,
) -> tuple[CallMode, ...]:
    """In which modes a plan may well be faster than called eagerly; () where none pays.

    Args:
        task: what it computes.
        kind: of the device.
        candidate: called eagerly.
        evaluation: what the judge saw of it.
        compile_s: what compiling may take, three times what torch.compile takes for the module;
            None where there is no time for it, or it cannot be compiled.
        bandwidth_gb_s: the device's.
    """
    operators = len(library_calls(candidate.plan))
    steps = _steps(candidate, evaluation)
    median_ms = evaluation.median_ms
    if median_ms is None or steps < _FEWEST_STEPS or candidate.mode != "eager":
        return ()
    host_ms = 1e3 * _STEP_S * steps
    added_ms = evaluation.launch_ms or 0.0
    if median_ms > _BOUND * host_ms and added_ms < _ADDED * median_ms:
        return ()
    copying_ms = 2e-6 * _copied_bytes(task) / bandwidth_gb_s
    able = {
        "graph": copying_ms < host_ms and steps > 2 + len(task.outputs),
        "compile": operators >= _FEWEST_OPERATORS and compile_s is not None,
    }
    return tuple(mode for mode in modes_of(task, kind) if able[mode])


def _steps(candidate: Candidate, evaluation: Evaluation) -> int:
    """What the host issues for one call: launches, and operators of the library's."""
    launches = sum(shape.launches for shape in evaluation.launches)
    return len(library_calls(candidate.plan)) + launches


def _copied_bytes(task: Task) -> int:
    """What a replay copies: arguments in, results out."""
    given: Sequence[TensorSpec | None] = [spec.tensor for spec in task.inputs]
    return sum(spec.size_bytes for spec in (*given, *task.outputs) if spec is not None)


async def call_otherwise(context: SearchContext, best: Best, round: int) -> Best:
    """Judge the best plans in the modes that may pay; the best afterwards.

    A mode whose first look is no faster than the plan's own is not looked at again. None begins
    that would take the time in which the best is certified, but for those of what regions were put
    together to: what their searches cost is spent, and the mode may be what makes it pay.
    """
    archive = context.archive
    if not calls_otherwise(archive) or context.executor.capabilities.remote:
        return best
    composed = {item.candidate.id for item in compositions_of(archive).items}
    for candidate, mode in _chosen(context, round):
        made = in_mode(candidate, mode)
        if made.id not in composed and not context.has_time_to_certify(f"mode:{made.id}"):
            break
        if made.id not in {item.candidate.id for item in archive.candidates()}:
            _written(context, made, round)
        screened = await judge_in_time(context, made, "screen", round)
        if screened is None:
            break
        own_ms = screened_ms(context, candidate) if candidate.id != made.id else None
        if _is_ahead(screened, own_ms):
            precise = await judge_in_time(context, made, "precise", round)
            if precise is None:
                break
            best = settle(context, made, precise, best, round)
    return best


def _foremost(standings: Sequence[Standing]) -> list[Standing]:
    """The fastest plans that are called launch by launch, each once, by its best settings."""
    found: list[Standing] = []
    for item in ranked(standings):
        seen = {other.candidate.plan for other in found}
        if _is_plain(item.candidate) and item.candidate.plan not in seen:
            found.append(item)
    least_ms = found[0].evaluation.median_ms if found else None
    limit_ms = _NEAR * (least_ms or 0.0)
    return [item for item in found if (item.evaluation.median_ms or 0.0) <= limit_ms][:_MOST]


def held_by_the_host(
    standings: Sequence[Standing], predicted_ms: Mapping[str, float | None]
) -> list[Standing]:
    """The plan that might be the fastest but for the host, whose time it took; none or one.

    It was expected to take less than the fastest plan did, and was not seen to: the host issues
    what a call of it is made of in what it took.

    Args:
        standings: of the search.
        predicted_ms: what ideas were expected to take, by their ids.
    """
    foremost = _foremost(standings)
    plans = {item.candidate.plan for item in foremost}
    held = [
        (expected_ms, item)
        for item in ranked(standings)
        if _is_plain(item.candidate)
        and item.candidate.plan not in plans
        and (expected_ms := predicted_ms.get(item.candidate.idea))
        and expected_ms < (foremost[0].evaluation.median_ms or 0.0)
        and (item.evaluation.median_ms or inf)
        <= 1e3 * _STEP_S * _steps(item.candidate, item.evaluation)
    ]
    return [min(held, key=lambda pair: pair[0])[1]] if held else []


def _chosen(context: SearchContext, round: int) -> list[tuple[Candidate, CallMode]]:
    """Which plans in which modes; decided once, as times and what is left of time decide it."""
    standings = context.archive.standings()

    def modes(item: Standing, compile_s: float | None) -> list[tuple[str, CallMode]]:
        found = modes_to_try(
            context.task,
            context.hardware.kind,
            item.candidate,
            item.evaluation,
            compile_s=compile_s,
            bandwidth_gb_s=context.hardware.bandwidth_gb_s,
        )
        return [(item.candidate.id, mode) for mode in found]

    def now() -> str:
        expected = {idea.id: idea.predicted_ms for idea in context.archive.ideas()}
        held = held_by_the_host(standings, expected)
        found = [pair for item in _foremost(standings) for pair in modes(item, _compile_s(context))]
        found += [pair for item in held for pair in modes(item, None)]
        return json.dumps([*dict.fromkeys((*_left(context), *found))])

    decided: list[tuple[str, CallMode]] = json.loads(
        context.decide(f"modes:{round}:{context.laps}", now)
    )
    return [(context.archive.candidate(id), mode) for id, mode in decided]


def _left(context: SearchContext) -> list[tuple[str, CallMode]]:
    """Modes of what regions were put together to for which there was no time in their round.

    One that stands in no plain way is named itself; it waits for the first of those that do.
    """
    items, archive = compositions_of(context.archive).items, context.archive
    plain = {item.candidate.plan: item.candidate.id for item in items if _is_plain(item.candidate)}
    first = next(iter(plain.values()), "")
    return [
        (plain.get(item.candidate.plan, item.candidate.id), item.candidate.mode)
        for item in items
        if not _is_plain(item.candidate)
        and archive.evaluation(item.candidate.id) is None
        and _is_correct(archive.evaluation(plain.get(item.candidate.plan, first)))
        and (item.candidate.mode != "compile" or _compile_s(context) is not None)
    ]


def _is_plain(candidate: Candidate) -> bool:
    return candidate.mode == "eager"


def _is_correct(evaluation: Evaluation | None) -> bool:
    return evaluation is not None and evaluation.verdict is Verdict.CORRECT


def _compile_s(context: SearchContext) -> float | None:
    """What all looks at a plan inside torch.compile will take; None where that is too much."""
    known: Baseline | None = context.baselines.named("compile")
    if known is None or known.measurement is None:
        return None
    seconds = _LOOKS * known.setup_s
    if context.profile.seconds_hold == "everything":
        left_s = context.searching_ends_s - context.searched_s
        return seconds if seconds <= left_s else None
    return seconds if seconds <= _COMPILING_SHARE * context.profile.seconds else None


def _written(context: SearchContext, made: Candidate, round: int) -> None:
    made = made.model_copy(update={"note": f"called{IN_MODE[made.mode].replace(',', '')}"})
    context.archive.record_candidates([made], round, "tuner")
    event = CandidateWritten(round=round, candidate=made, by="tuner")
    context.emit(event, key=f"written:{made.id}")


def _is_ahead(screened: Evaluation, own_ms: float | None) -> bool:
    if not _is_correct(screened) or screened.median_ms is None:
        return False
    return own_ms is None or screened.median_ms < own_ms
