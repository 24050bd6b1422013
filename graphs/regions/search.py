"""Searches a large model's regions, the most promising first, and puts together what was found.

Each class of equal regions is a file of its own and an ordinary search over it, with its share of
the time. What became certainly faster than eager is put together into candidates for the whole
model, which its own search then judges, certifies and exports as it does any other. Where nothing
became faster, the model is searched as one.

What came of a region is kept as a decision of the model's run: a session that was cut off goes on
with the next one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from kernelwright.agents.roles.composed import Composition, Compositions
from kernelwright.graphs.regions.judge import RegionJudge
from kernelwright.graphs.regions.listing import Listed, is_large, listed
from kernelwright.graphs.regions.paying import LEAST_SHARE, SHARE_OF_TIME, too_little, turns
from kernelwright.graphs.run_view.events import Noted, RegionSearched, RegionsFound
from kernelwright.graphs.search.context import Prepare, SearchContext
from kernelwright.graphs.search.options.call_modes import modes_of
from kernelwright.graphs.search.options.remembering import memories_of
from kernelwright.graphs.search.options.run_terms import keep_composed
from kernelwright.graphs.search.run import start_search
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.archive import Archive
from kernelwright.tools.archive.elites import YARDSTICK
from kernelwright.tools.candidates import ContractError
from kernelwright.tools.codegen.library.compose import ComposeError, Part, compose, compose_in_parts
from kernelwright.tools.codegen.library.kernel_library import Recipe
from kernelwright.tools.languages import default_language, in_mode
from kernelwright.tools.tasks.regions import region_source
from kernelwright.tools.types import IN_MODE, CallMode, Candidate, Idea, Refusal, TracePolicy
from kernelwright.tools.types.outline import LeftAlone, RegionClass, RegionShown, RegionState
from kernelwright.tools.types.value import Value

RegionsChoice = Literal["auto", "on", "off"]

# A region for which less is left is left alone.
_LEAST_S = 4.0
# What is not certainly ahead of eager by itself may still be once it is put together.
_HOPEFUL = 0.97


class RegionResult(Value):
    """What the search over a class of regions found; `ratio` is eager's time over its own."""

    run: str = ""
    candidate: Candidate | None = None
    ratio: float = 0.0
    low: float = 0.0
    why: str = ""

    @property
    def faster(self) -> bool:
        """Whether it is certainly ahead of eager."""
        return self.candidate is not None and self.low > 1.0


def by_regions(choice: RegionsChoice) -> Prepare | None:
    """What to do before the first plan: nothing, or to search the regions of a large model.

    Args:
        choice: always, never, or where `may_pay` and then the regions themselves say so.
    """
    if choice == "off":
        return None
    return search_regions if choice == "on" else _where_large


def may_pay(context: SearchContext) -> bool:
    """Whether the regions of a model are listed without being asked for; the same on all devices.

    Where it has several operators of the library's, and two classes can have their turns. A model
    that is traced in parts is searched in no other way.
    """
    if context.task.parts:
        return True
    large = is_large(context.task) and not context.executor.capabilities.remote
    return large and turns(context.profile.seconds, context.hardware.kind) > 1


async def _where_large(context: SearchContext) -> None:
    if may_pay(context):
        await search_regions(context, asked=False)


async def search_regions(context: SearchContext, *, asked: bool = True) -> None:
    """Search the regions of the context's task, and keep what they were put together to.

    Args:
        context: of the model's search.
        asked: whether the person wants it; else it is left where `too_little` says why.
    """
    before_s = context.archive.spent_s()
    found = await listed(context.executor, context.task)
    measuring_s = context.archive.spent_s() - before_s
    context.compared(measuring_s)
    if why := _why_not(context, found, asked=asked):
        context.emit(Noted(words=f"{_otherwise(context)}: {why}"), key="regions:none")
        keep_composed(context.archive, Compositions())
        return
    assert found.regions is not None
    context.emit(RegionsFound(regions=_listed(found), seconds=measuring_s), key="regions")
    results = await _searched(context, found)
    parts = tuple((item, results[item.name]) for item in found.regions.classes)
    given = _compositions(context, found, parts)
    used = {at for item in given.items for at in item.candidate.parents}
    for item, result in parts:
        in_use = result.candidate is not None and result.candidate.id in used
        if in_use:
            shown = _shown(item, result, in_use=in_use)
            context.emit(RegionSearched(region=shown), key=f"region:{item.name}:end")
    if not given.items:
        words = f"no region became faster than eager: {_otherwise(context)}"
        context.emit(Noted(words=words), key="regions:none")
    keep_composed(context.archive, given)


def _why_not(context: SearchContext, found: Listed, *, asked: bool) -> str:
    """Why the regions are not searched; "" where they are."""
    if found.regions is None or found.outline is None or not found.regions.classes:
        return found.failure or "nothing stands between operators of the library's"
    if asked or context.task.parts:
        return ""
    return too_little(found.regions, turns(context.profile.seconds, context.hardware.kind))


def _otherwise(context: SearchContext) -> str:
    """What is done where regions bring nothing; a model in parts is searched in no other way."""
    return "nothing else is searched" if context.task.parts else "the model is searched as one"


async def _searched(context: SearchContext, found: Listed) -> dict[str, RegionResult]:
    """Every class's result, by its name."""
    assert found.regions is not None
    known = dict(context.archive.decisions())
    results: dict[str, RegionResult] = {}
    spare_s = max(0.0, context.searching_ends_s - context.searched_s)
    ends_s = context.searched_s + SHARE_OF_TIME * spare_s
    waiting = [item for item in found.regions.classes if item.share >= LEAST_SHARE]
    beside_s = 0.0  # what one took beside its slice: to be read, for eager's time
    context.executor.compile_ahead(False)
    context.executor.beside_eager_alone(True)
    try:
        for item in found.regions.classes:
            key = f"region:{item.name}"
            if key in known:
                results[item.name] = RegionResult.model_validate_json(known[key])
            elif item not in waiting:
                why = f"it takes less than {LEAST_SHARE:.0%} of the time"
                results[item.name] = RegionResult(why=why)
            else:
                gains = sum(other.gain_ms for other in waiting) or 1.0
                before_s = context.searched_s
                left_s = max(0.0, ends_s - before_s - beside_s)
                slice_s = max(left_s * item.gain_ms / gains, min(_LEAST_S, left_s))
                results[item.name] = await _search(context, found, item, slice_s)
                beside_s = max(beside_s, context.searched_s - before_s - slice_s)
                context.archive.record_decision(key, results[item.name].model_dump_json())
            waiting = [other for other in waiting if other is not item]
            shown = _shown(item, results[item.name], in_use=False)
            context.emit(RegionSearched(region=shown), key=key)
    finally:
        context.executor.compile_ahead(True)
        context.executor.beside_eager_alone(False)
    return results


async def _search(
    context: SearchContext, found: Listed, item: RegionClass, slice_s: float
) -> RegionResult:
    """An ordinary search over one class's file."""
    assert found.outline is not None
    if slice_s < _LEAST_S:
        return RegionResult(why="the time was over before its turn")
    record = context.archive.record()
    path = _written(context, found, item)
    profile = context.profile.model_copy(
        update={"seconds": slice_s, "seconds_hold": "searching", "profiling_seconds": 0.0}
        | _spending(context.profile, slice_s)
    )
    ended = await start_search(
        path,
        TracePolicy(allow=context.task.allow),
        record.target,
        SearchProfile.model_validate(profile.model_dump()),
        seed=context.seed,
        home=context.home,
        executor=RegionJudge(context.executor),
        make_agents=context.make_agents,
        fresh=memories_of(context.archive).fresh,
    )
    if isinstance(ended, Refusal):
        return RegionResult(why=ended.sentence)
    return _result(ended.run, context.home)


def _spending(profile: SearchProfile, slice_s: float) -> dict[str, object]:
    """A region's part of what models may cost."""
    share = min(1.0, slice_s / profile.seconds)
    tokens = None if profile.tokens is None else max(1, int(profile.tokens * share))
    return {"tokens": tokens, "usd": None if profile.usd is None else profile.usd * share}


_FOLDER = "regions"


def region_files(archive: Archive) -> tuple[Path, ...]:
    """The files of a model's regions that its run searched."""
    return tuple(sorted((archive.folder / _FOLDER).glob("*.py")))


def _written(context: SearchContext, found: Listed, item: RegionClass) -> Path:
    assert found.outline is not None
    folder = context.archive.folder / _FOLDER
    folder.mkdir(exist_ok=True)
    path = folder / f"{context.task.name}_{item.name}.py"
    title = f"{item.name} of {context.task.name}, {len(item.regions)} places: {item.words}"
    path.write_text(region_source(found.outline, item.regions[0], title), encoding="utf-8")
    return path


def _result(run: str, home: Path) -> RegionResult:
    """The best of a region's run, by its comparison with eager."""
    archive = Archive.open(run, home)
    try:
        best = archive.best()
    finally:
        archive.close()
    if best is None:
        return RegionResult(run=run, why="no candidate was correct")
    against = (c for c in best.evaluation.comparisons if c.baseline == YARDSTICK)
    compared = next(against, None)
    if compared is None:
        return RegionResult(run=run, why="no candidate was compared with eager in time")
    return RegionResult(
        run=run,
        candidate=best.candidate,
        ratio=compared.ratio,
        low=compared.ci95_low,
        why="" if compared.ci95_low > 1.0 else "nothing was certainly faster than eager",
    )


def _compositions(
    context: SearchContext, found: Listed, parts: Sequence[tuple[RegionClass, RegionResult]]
) -> Compositions:
    """What was certainly faster, put together; and with what may be, where there is such."""
    sure = [(item, result) for item, result in parts if result.faster]
    maybe = [(i, r) for i, r in parts if r.candidate is not None and r.ratio >= _HOPEFUL]
    chosen = {"what became faster": sure}
    if len(maybe) > len(sure):
        chosen["what became faster, and what may have"] = maybe
    if len(sure) > 1:
        chosen["the region that brings most, alone"] = sure[:1]
    made = [
        _composition(context, found, words, picked, number)
        for number, (words, picked) in enumerate(chosen.items(), start=1)
        if picked
    ]
    eager = [item for item in made if item is not None]
    modes = modes_of(context.task, context.hardware.kind)
    others = [
        _called(eager[0], mode, len(chosen) + number)
        for number, mode in enumerate(modes if eager else (), start=1)
    ]
    return Compositions(items=(*eager, *others), whole=not context.task.parts)


def _called(made: Composition, mode: CallMode, number: int) -> Composition:
    """The same kernels and plan in another mode, which is for the judge to compare."""
    idea = made.idea.model_copy(
        update={
            "id": f"r1i{number}",
            "title": f"{made.idea.title}{IN_MODE[mode]}",
            "mechanism": f"{made.idea.mechanism}{IN_MODE[mode]}",
        }
    )
    return Composition(idea=idea, candidate=in_mode(made.candidate, mode))


def _composition(
    context: SearchContext,
    found: Listed,
    words: str,
    picked: Sequence[tuple[RegionClass, RegionResult]],
    number: int,
) -> Composition | None:
    """One candidate for the whole; None where it cannot be written, which is noted."""
    assert found.outline is not None
    parts = [Part(item, r.candidate) for item, r in picked if r.candidate is not None]
    parameters = tuple(spec.name for spec in context.task.inputs)
    language = default_language(context.hardware.kind).spec.name
    try:
        if found.outline.parts:
            candidate = compose_in_parts(found.outline, parts, parameters, language)
        else:
            candidate = compose(found.outline.graph, parts, parameters, language)
    except (ComposeError, ContractError) as error:
        said = f"{', '.join(part.of.name for part in parts)} cannot be put together: {error}"
        context.emit(Noted(words=said), key=f"composed:{number}")
        return None
    saved_ms = sum(item.time_ms * (1 - 1 / result.ratio) for item, result in picked)
    named = ", ".join(item.name for item, _ in picked)
    idea = Idea(
        id=f"r1i{number}",
        title=f"regions put together: {named}",
        mechanism=f"{words}: {named}, each in all its places; everything else as eager runs it",
        reason=f"their searches promise {saved_ms:.3g} ms of {found.outline.whole_ms:.3g} ms",
        category="fusion",
        metric="time of the whole model",
        predicted_ms=max(found.outline.whole_ms - saved_ms, 1e-6),
        round=1,
        # The ledger counts what the playbook wrote only where a recipe says that it did.
        recipe=Recipe(picks=()).model_dump_json(),
    )
    return Composition(idea=idea, candidate=candidate)


def _listed(found: Listed) -> tuple[RegionShown, ...]:
    """Every class, then what is left alone."""
    assert found.regions is not None
    shown = [_shown(item, RegionResult(), in_use=False) for item in found.regions.classes]
    return (*shown, *map(_alone, found.regions.left))


def _alone(kind: LeftAlone) -> RegionShown:
    return RegionShown(
        name=kind.words,
        words=kind.words,
        places=kind.calls,
        share=kind.share,
        before_ms=kind.time_ms,
        state="left alone",
        why=kind.why,
    )


def _shown(item: RegionClass, result: RegionResult, *, in_use: bool) -> RegionShown:
    after_ms = item.time_ms / result.ratio if result.candidate and result.ratio > 0 else None
    state: RegionState = "left alone" if result.why else "waiting"
    if result.run:
        state = "used" if in_use else "searched"
    return RegionShown(
        name=item.name,
        words=item.words,
        places=len(item.regions),
        share=item.share,
        before_ms=item.time_ms,
        after_ms=after_ms,
        state=state,
        why=result.why,
        run=result.run,
    )
