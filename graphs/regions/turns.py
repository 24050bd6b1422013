"""Gives classes of regions their turn: an ordinary search over a file of each one's own.

Turns come in the order of what classes can bring, each with its part of the regions' seconds. A
class has none where the seconds do not suffice for one, and what a turn does not use is for those
behind it. Beside a GPU the files of the next classes are read while one is searched; on a CPU that
would disturb the times.

What came of a class is kept as a decision of the model's run, and the run of a turn that was begun
as a term: a session that was cut off goes on with it for no longer than a turn has then, and shows
what it had found until then.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kernelwright.graphs.regions.budget import LEAST_SHARE, Costs, hopeful, turn_s
from kernelwright.graphs.regions.judge import RegionJudge, beside_eager_alone
from kernelwright.graphs.regions.listing import Listed
from kernelwright.graphs.regions.results import RegionResult, result_of, result_shown
from kernelwright.graphs.run_view.events import Event, RegionSearched, RunStarted
from kernelwright.graphs.run_view.events import seconds as duration
from kernelwright.graphs.search.context import Listener, SearchContext
from kernelwright.graphs.search.options.remembering import memories_of
from kernelwright.graphs.search.pace import spent_of
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.archive import Archive, RunError
from kernelwright.tools.tasks.regions import region_source
from kernelwright.tools.types import Refusal, Task, TracePolicy
from kernelwright.tools.types.outline import RegionClass
from kernelwright.tools.types.run import Summary

# A search over a region for which less is left finds nothing.
_LEAST_S = 4.0
# So many files are read while a region is searched, beside a GPU with so many processors.
_AHEAD, _MANY = 2, 8
_FOLDER = "regions"


def region_files(archive: Archive) -> tuple[Path, ...]:
    """The files of a model's regions that its run searched."""
    return tuple(sorted((archive.folder / _FOLDER).glob("*.py")))


class Turns:
    """The turns of one model's classes.

    Args:
        context: of the model's search.
        found: its regions.
        costs: what a turn takes; what one took beside its search is learnt from the first on.
        regions_s: the regions' share of the seconds.
    """

    def __init__(
        self, context: SearchContext, found: Listed, costs: Costs, regions_s: float
    ) -> None:
        self._context, self._found = context, found
        self._ends_s = context.searched_s + regions_s
        self._least_s, self._reading_s = costs.turn_s, costs.reading_s
        self._reading: dict[str, asyncio.Task[Task | Refusal]] = {}

    async def results(self) -> dict[str, RegionResult]:
        """Every class's result, by its name."""
        context, executor = self._context, self._context.executor
        assert self._found.regions is not None
        known = dict(context.archive.decisions())
        results: dict[str, RegionResult] = {}
        async with beside_eager_alone(executor):
            try:
                for item in self._found.regions.classes:
                    key = _key(item)
                    if key in known:
                        results[item.name] = RegionResult.model_validate_json(known[key])
                    else:
                        results[item.name] = await self._turn(item, set(results))
                        context.archive.record_decision(key, results[item.name].model_dump_json())
                    shown = result_shown(item, results[item.name], in_use=False)
                    context.emit(RegionSearched(region=shown), key=key)
            finally:
                await self._forget()  # first: what is read now is not to be compiled
        return results

    async def _turn(self, item: RegionClass, done: set[str]) -> RegionResult:
        """A class's result; why it had no turn where it had none."""
        assert self._found.regions is not None
        waiting = tuple(i for i in hopeful(self._found.regions) if i.name not in done)
        if item not in waiting:
            return RegionResult(why=f"it takes less than {LEAST_SHARE:.0%} of the time")
        began_s = self._context.searched_s
        left_s = max(0.0, self._ends_s - began_s)
        slice_s = turn_s(left_s, waiting, self._least_s) - self._reading_s
        begun = self._begun(item)
        if slice_s < _LEAST_S and begun:
            return result_of(begun, self._context.home)  # what it had when it was cut off
        if slice_s < _LEAST_S and self._has_a_turn_anyway(item):
            slice_s = max(_LEAST_S, left_s - self._reading_s)
        if slice_s < _LEAST_S:
            least = f"a turn takes {duration(self._least_s)}"
            return RegionResult(why=f"{least}, and {duration(left_s)} were left for regions")
        self._read_ahead(waiting)
        result = await self._search(item, slice_s)
        beside_s = self._context.searched_s - began_s - slice_s
        if beside_s > self._reading_s:
            self._least_s += beside_s - self._reading_s
            self._reading_s = beside_s
        return result

    def _has_a_turn_anyway(self, item: RegionClass) -> bool:
        """Whether it can bring most of a model that can be searched in no other way."""
        assert self._found.regions is not None
        first = hopeful(self._found.regions)[0]
        return bool(self._context.task.parts) and item.name == first.name

    def _read_ahead(self, waiting: Sequence[RegionClass]) -> None:
        """Begin to read the files of the first that wait, where that disturbs no times."""
        context = self._context
        apart = context.executor.capabilities.reads_apart and (os.cpu_count() or 1) >= _MANY
        if context.hardware.kind != "cuda" or not apart:
            return
        for item in waiting[: 1 + _AHEAD]:
            if item.name not in self._reading:
                reading = context.executor.read(self._written(item), self._policy)
                self._reading[item.name] = asyncio.ensure_future(reading)

    async def _forget(self) -> None:
        """End what is read for nobody."""
        for task in self._reading.values():
            task.cancel()
        await asyncio.gather(*self._reading.values(), return_exceptions=True)
        self._reading.clear()

    @property
    def _policy(self) -> TracePolicy:
        return TracePolicy(allow=self._context.task.allow)

    async def _search(self, item: RegionClass, slice_s: float) -> RegionResult:
        """An ordinary search over one class's file, or what is left of one that was cut off."""
        context, begun = self._context, self._begun(item)

        def hear(event: Event) -> None:
            nonlocal begun
            if isinstance(event, RunStarted):
                begun = event.run
                context.archive.record_term(_run_key(item), begun)

        try:
            ended = await self._resumed(begun, slice_s) if begun else None
            ended = ended or await self._started(item, slice_s, hear)
        except asyncio.CancelledError:
            self._show_so_far(item, begun)
            raise
        if isinstance(ended, Refusal):
            return RegionResult(why=ended.sentence)
        return result_of(ended.run, context.home)

    def _begun(self, item: RegionClass) -> str:
        """The run of a turn that an earlier session began; "" where none did."""
        return self._context.archive.term(_run_key(item)) or ""

    async def _resumed(self, run: str, slice_s: float) -> Summary | Refusal | None:
        """A turn that was cut off gone on with for so long; None where it cannot be."""
        context = self._context
        judge = RegionJudge(context.executor)
        try:
            _shorten(run, context.home, slice_s)
            return await resume_search(
                run, home=context.home, executor=judge, make_agents=context.make_agents
            )
        except RunError:
            return None

    async def _started(
        self, item: RegionClass, slice_s: float, hear: Listener
    ) -> Summary | Refusal:
        context, path = self._context, self._written(item)
        reading = self._reading.pop(item.name, None)
        read = await reading if reading is not None else None
        if isinstance(read, Refusal):
            return read
        return await start_search(
            path,
            self._policy,
            context.archive.record().target,
            _profile(context.profile, slice_s),
            seed=context.seed,
            home=context.home,
            listener=hear,
            executor=RegionJudge(context.executor),
            make_agents=context.make_agents,
            task=read,
            fresh=memories_of(context.archive).fresh,
            a_turn=True,
        )

    def _show_so_far(self, item: RegionClass, run: str) -> None:
        """Tell what an interrupted turn had found; it goes on with a resume."""
        context = self._context
        if not run:
            return
        with suppress(RunError):
            shown = result_shown(item, result_of(run, context.home), in_use=False)
            key = f"{_key(item)}:so far:{context.archive.spent_s():.0f}"
            context.emit(RegionSearched(region=shown), key=key)

    def _written(self, item: RegionClass) -> Path:
        context, outline = self._context, self._found.outline
        assert outline is not None
        folder = context.archive.folder / _FOLDER
        folder.mkdir(exist_ok=True)
        path = folder / f"{context.task.name}_{item.name}.py"
        where = f"{len(item.regions)} places: {item.words}"
        title = f"{item.name} of {context.task.name}, {where}"
        path.write_text(region_source(outline, item.regions[0], title), encoding="utf-8")
        return path


def _shorten(run: str, home: Path, slice_s: float) -> None:
    """Let a turn that was cut off search for so much more, or what is left of its own seconds.

    Raises:
        RunError: When the run is unknown or corrupt.
    """
    archive = Archive.open(run, home)
    try:
        kept = archive.record().profile
        seconds = min(kept.seconds, spent_of(archive).searched_s + slice_s)
        if archive.record().status != "finished":
            archive.set_profile(kept.model_copy(update={"seconds": seconds}))
    finally:
        archive.close()


def _key(item: RegionClass) -> str:
    return f"region:{item.name}"


def _run_key(item: RegionClass) -> str:
    return f"{_key(item)}:run"


def _profile(profile: SearchProfile, slice_s: float) -> SearchProfile:
    """What a turn may spend: its seconds, and its part of what models may cost."""
    share = min(1.0, slice_s / profile.seconds)
    tokens = None if profile.tokens is None else max(1, int(profile.tokens * share))
    changed = profile.model_copy(
        update={
            "seconds": slice_s,
            "seconds_hold": "searching",
            "profiling_seconds": 0.0,
            "tokens": tokens,
            "usd": None if profile.usd is None else profile.usd * share,
        }
    )
    return SearchProfile.model_validate(changed.model_dump())
