"""Searches a large model's regions, and puts together what was found.

A model is searched as one first: that has its first figure after seconds, where regions need
minutes to come to the same kernels, and its regions have their turn where that is not clearly
faster than PyTorch. Where a person asks for regions they come first, and so they do for a model
that is traced in parts, which cannot be searched as one.

The seconds are planned first, and said (`budget`). Each class of equal regions then has its turn
(`turns`), and what became certainly faster than eager is put together into candidates for the whole
model (`composing`), which its own search judges, certifies and exports as it does any other. Where
nothing became faster, or the seconds are too few, the model is searched as one; of one in parts
regions are searched however few the seconds are.
"""

from dataclasses import dataclass
from typing import Literal

from kernelwright.agents.roles.composed import Compositions
from kernelwright.graphs.regions.budget import Costs, Given, RegionBudget, planned
from kernelwright.graphs.regions.composing import compositions
from kernelwright.graphs.regions.listing import Listed, is_large, listed
from kernelwright.graphs.regions.results import all_shown, result_shown
from kernelwright.graphs.regions.turns import Turns
from kernelwright.graphs.run_view.events import Noted, RegionSearched, RegionsFound
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.options.call_modes import modes_of
from kernelwright.graphs.search.options.run_terms import keep_composed, prepare_of
from kernelwright.tools.types.value import Value

RegionsChoice = Literal["auto", "on", "off"]

# Terms of the run: an outline is long, and is not read with every decision.
_LISTED, _PLAN = "regions:listed", "regions:plan"
_SHOWN = "regions"
# The event by which they wait for the model's search as one.
PUT_OFF = "regions:later"
# A model that is searched as one and so many times as fast as the best of PyTorch's own ways is
# not searched region by region unless asked: on H200s those that hold were 2.9 to 3.3 times as fast
# after 40 s, which regions came to after 140 (benchmarks/results/h200/real_models.md).
HOLDS = 1.1


class RegionsPlan(Value):
    """When regions end on the clock of a search, as it was planned for a search of `seconds`."""

    seconds: float
    ends_s: float


@dataclass(frozen=True)
class RegionSearch:
    """Searches the regions of a model before its first plan, or before a later one.

    Attributes:
        choice: `on` or `auto`; a run goes on as it was begun, whatever its resume says.
    """

    choice: str = "auto"

    async def __call__(self, context: SearchContext, round: int, *, now: bool = False) -> None:
        """Search them where they are asked for or may pay, and say what is done instead."""
        asked = (prepare_of(context.archive) or self.choice) == "on"
        if not asked and not may_pay(context):
            keep_composed(context.archive, Compositions())
            return
        if asked or context.task.parts:
            await search_regions(context, round, asked=asked)
            return
        if round == 1 and not now:
            words = f"region by region where that is not {HOLDS:g} times as fast as PyTorch"
            context.emit(Noted(words=f"the model is searched as one, and {words}"), key=PUT_OFF)
            return
        if (lead := _lead(context)) >= HOLDS:
            _leave(
                context,
                round,
                f"that is {lead:.2f} times as fast as the best of PyTorch's own ways",
            )
            return
        await search_regions(context, round, asked=False)


def by_regions(choice: RegionsChoice) -> RegionSearch | None:
    """What to do before the first plan: nothing, or to search the regions of a large model.

    Args:
        choice: where there is time, never, or where `may_pay` and then the budget say so.
    """
    return None if choice == "off" else RegionSearch(choice)


def _lead(context: SearchContext) -> float:
    """How many times as fast as the best baseline the best candidate is; 0 where none is right."""
    best = context.archive.best()
    if best is None or not best.evaluation.median_ms:
        return 0.0
    hardest = best.evaluation.hardest
    return hardest.ratio if hardest else context.best_baseline_ms / best.evaluation.median_ms


def may_pay(context: SearchContext) -> bool:
    """Whether the regions of a model are planned for without being asked; the same on all devices.

    Where it has several operators of the library's. A model that is traced in parts is searched in
    no other way.
    """
    if context.task.parts:
        return True
    return is_large(context.task) and not context.executor.capabilities.remote


async def search_regions(context: SearchContext, round: int = 1, *, asked: bool = True) -> None:
    """Search the regions of the context's task, and keep what they were put together to.

    Args:
        context: of the model's search.
        round: of that search, whose plan comes next.
        asked: whether the person wants it; else it is left where it would bring too little.
    """
    found = _known(context)
    if found is None:
        first = _budget(context, None, asked=asked)
        if first.why_not:
            _leave(context, round, first.why_not)
            return
        _say(context, first, "regions:first plan")
        found = await _measured(context)
    _show(context, found)
    if found.regions is None or found.outline is None or not found.regions.classes:
        _leave(context, round, found.failure or "nothing stands between operators of the library's")
        return
    budget = _budget(context, found, asked=asked)
    # A session that goes on has had its plan, and the seconds that were begun with are spent.
    if budget.why_not and context.archive.term(_PLAN) is None:
        _leave(context, round, budget.why_not)
        return
    _say(context, budget, "regions:plan")
    regions_s = _ends_s(context, budget) - context.searched_s
    results = await Turns(context, found, _costs(context, found), regions_s).results()
    parts = tuple((item, results[item.name]) for item in found.regions.classes)
    given = compositions(context, found, parts, round)
    used = {at for item in given.items for at in item.candidate.parents}
    for item, result in parts:
        if result.candidate is not None and result.candidate.id in used:
            shown = result_shown(item, result, in_use=True)
            context.emit(RegionSearched(region=shown), key=f"region:{item.name}:end")
    if not given.items:
        words = f"no region became faster than eager: {_otherwise(context)}"
        context.emit(Noted(words=words), key="regions:none")
    keep_composed(context.archive, given)


def _known(context: SearchContext) -> Listed | None:
    """The regions that an earlier session listed."""
    kept = context.archive.term(_LISTED)
    return Listed.model_validate_json(kept) if kept else None


async def _measured(context: SearchContext) -> Listed:
    """The regions, listed now and kept."""
    before_s = context.archive.spent_s()
    found = await listed(context.executor, context.task)
    found = found.model_copy(update={"seconds": context.archive.spent_s() - before_s})
    context.archive.record_term(_LISTED, found.model_dump_json())
    return found


def _show(context: SearchContext, found: Listed) -> None:
    """Tell what was listed, and count its seconds; once, though a session ended in between."""
    if context.archive.event(_SHOWN) is None:
        context.compared(found.seconds)
        shown = all_shown(found) if found.regions is not None else ()
        context.emit(RegionsFound(regions=shown, seconds=found.seconds), key=_SHOWN)


def _say(context: SearchContext, budget: RegionBudget, key: str) -> None:
    """Tell the plan, and what is wrong with it."""
    context.emit(Noted(words=budget.words), key=key)
    if budget.warning:
        context.emit(Noted(words=budget.warning), key=f"{key}:warning")


def _ends_s(context: SearchContext, budget: RegionBudget) -> float:
    """When regions are to end, on the clock of the search, by the first plan for these seconds.

    A session that goes on would plan with what is left, and each one would move some of the whole's
    seconds to the regions.
    """
    kept, seconds = context.archive.term(_PLAN), context.profile.seconds
    plan = RegionsPlan.model_validate_json(kept) if kept else None
    if plan is None or plan.seconds != seconds:
        plan = RegionsPlan(seconds=seconds, ends_s=context.searched_s + budget.regions_s)
        context.archive.record_term(_PLAN, plan.model_dump_json())
    return plan.ends_s


def _costs(context: SearchContext, found: Listed | None) -> Costs:
    """What the parts take: as expected, and by what listing took once that is known."""
    costs = Costs.of(context.task, context.hardware.kind, context.pace.certifying_s())
    return costs.as_listed(found.seconds) if found is not None and found.seconds else costs


def _budget(context: SearchContext, found: Listed | None, *, asked: bool) -> RegionBudget:
    """The budget as it is now, before or behind the listing."""
    profile = context.profile
    searching_s = context.searching_ends_s - context.searched_s
    given = Given(
        seconds=profile.seconds,
        left_s=max(0.0, searching_s) + context.reserve_s,
        holds_baselines=profile.seconds_hold == "everything",
        compiled=context.baselines.named("compile") is not None,
        holds_certification=profile.seconds_hold != "searching",
        compiles="compile" in modes_of(context.task, context.hardware.kind),
        asked=asked,
        alone=bool(context.task.parts),
    )
    return planned(_costs(context, found), given, found.regions if found is not None else None)


def _leave(context: SearchContext, round: int, why: str) -> None:
    """Say why regions are not searched, and keep that."""
    context.emit(Noted(words=f"{_otherwise(context)}: {why}"), key="regions:none")
    keep_composed(context.archive, Compositions(round=round))


def _otherwise(context: SearchContext) -> str:
    """What is done where regions bring nothing; a model in parts is searched in no other way."""
    return "nothing else is searched" if context.task.parts else "the model is searched as one"
