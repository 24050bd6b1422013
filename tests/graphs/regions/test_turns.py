"""Turns of classes of regions: their seconds, what is kept of them, and what is read ahead."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.graphs.regions import turns
from kernelwright.graphs.regions.budget import Costs
from kernelwright.graphs.regions.results import RegionResult
from kernelwright.graphs.regions.turns import Turns
from kernelwright.graphs.run_view.events import RunStarted
from kernelwright.tools.types import Refusal
from kernelwright.tools.types.outline import RegionClass

from .test_budget import parted

COSTS = Costs(
    listing_s=0.0, turn_s=10.0, reading_s=3.0, compile_s=0.0, judged_s=0.0, certifying_s=0.0
)


class Kept:
    """The decisions and terms of a run."""

    def __init__(self) -> None:
        self.items: list[tuple[str, str]] = []
        self.terms: dict[str, str] = {}
        self.folder = Path("unused")

    def decisions(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.items)

    def record_decision(self, key: str, value: str) -> None:
        self.items.append((key, value))

    def record_term(self, name: str, json: str) -> None:
        self.terms[name] = json

    def term(self, name: str) -> str | None:
        return self.terms.get(name)

    def spent_s(self) -> float:
        return 0.0


class Judge:
    """Takes note of how it is set."""

    def __init__(self, *, compile_ahead: bool) -> None:
        self.rules = SimpleNamespace(compile_ahead=compile_ahead)
        self.capabilities = SimpleNamespace(reads_apart=True)
        self.ahead: list[bool] = []
        self.alone: list[bool] = []
        self.read_files: list[str] = []

    def compile_ahead(self, wanted: bool) -> None:
        self.ahead.append(wanted)

    def beside_eager_alone(self, wanted: bool) -> None:
        self.alone.append(wanted)

    async def read(self, path: Path, policy: object) -> Refusal:
        self.read_files.append(path.stem)
        return Refusal(sentence=f"{path.stem} was read.")


def around(judge: Judge | None = None, kind: str = "cpu") -> Any:
    """What turns need of a search."""
    return SimpleNamespace(
        searched_s=0.0,
        archive=Kept(),
        executor=judge or Judge(compile_ahead=True),
        hardware=SimpleNamespace(kind=kind),
        task=SimpleNamespace(allow=(), name="model", parts=()),
        home=Path("unused"),
        make_agents=None,
        emitted=[],
        emit=lambda event, key: None,
    )


def of(context: Any, count: int, regions_s: float) -> Turns:
    """The turns of so many classes of which each has a tenth of the time."""
    found: Any = SimpleNamespace(regions=parted(*[(1, 0.1)] * count), outline=None)
    return Turns(context, found, COSTS, regions_s)


async def test_what_regions_take_beside_their_slices_is_not_taken_from_the_whole(
    monkeypatch: pytest.MonkeyPatch,
):
    context, slices = around(), []

    async def searching(self: Turns, item: RegionClass, slice_s: float) -> RegionResult:
        slices.append(slice_s)
        context.searched_s += slice_s + 6.0  # to be read, and for eager's time
        return RegionResult(run=item.name)

    monkeypatch.setattr(Turns, "_search", searching)
    results = await of(context, 10, 70.0).results()
    assert len(results) == len(context.archive.items) == 10
    assert len(slices) >= 4
    assert min(slices) >= turns._LEAST_S
    assert context.searched_s <= 73.0 + 1e-6  # the first taught what the others take
    late = [item for item in results.values() if not item.run]
    assert all("were left for regions" in item.why for item in late)


async def test_a_class_has_no_turn_where_its_seconds_do_not_suffice(
    monkeypatch: pytest.MonkeyPatch,
):
    async def never(self: Turns, item: RegionClass, slice_s: float) -> RegionResult:
        raise AssertionError(item.name)

    monkeypatch.setattr(Turns, "_search", never)
    results = await of(around(), 3, 9.0).results()
    assert all("a turn takes 10 s" in item.why for item in results.values())


@pytest.mark.parametrize("regions_s", [0.0, 9.0])
async def test_of_a_model_in_parts_the_most_promising_class_has_what_time_there_is(
    monkeypatch: pytest.MonkeyPatch, regions_s: float
):
    context, slices = around(), []
    context.task.parts = ("first",)

    async def searching(self: Turns, item: RegionClass, slice_s: float) -> RegionResult:
        slices.append((item.name, slice_s))
        context.searched_s += slice_s
        return RegionResult(run=item.name)

    monkeypatch.setattr(Turns, "_search", searching)
    results = await of(context, 3, regions_s).results()
    assert slices == [("R1", max(turns._LEAST_S, regions_s - COSTS.reading_s))]
    assert [item.run for item in results.values()] == ["R1", "", ""]


@pytest.mark.parametrize("ahead", [True, False])
async def test_torch_compile_begins_early_afterwards_only_where_it_did_before(ahead: bool):
    judge = Judge(compile_ahead=ahead)
    await of(around(judge), 1, 0.0).results()
    assert judge.ahead == ([False, True] if ahead else [False])
    assert judge.alone == [True, False]


async def test_a_turn_that_was_cut_off_goes_on_and_shows_what_it_had(
    monkeypatch: pytest.MonkeyPatch,
):
    context, resumed, shortened = around(), [], []
    shown: list[object] = []
    context.emit = lambda event, key: shown.append((key, event.region.run))

    async def cut_off(*given: object, listener: Any, **named: object) -> None:
        listener(RunStarted.model_construct(run="inner"))
        raise asyncio.CancelledError

    async def goes_on(run: str, **named: object) -> Any:
        resumed.append(run)
        return SimpleNamespace(run=run)

    monkeypatch.setattr(turns, "start_search", cut_off)
    monkeypatch.setattr(turns, "resume_search", goes_on)
    monkeypatch.setattr(turns, "result_of", lambda run, home: RegionResult(run=run, ratio=2.0))
    monkeypatch.setattr(turns, "RegionJudge", lambda executor: executor)
    monkeypatch.setattr(turns, "_shorten", lambda run, home, slice_s: shortened.append(slice_s))
    monkeypatch.setattr(turns, "_profile", lambda profile, slice_s: profile)
    monkeypatch.setattr(turns, "memories_of", lambda archive: SimpleNamespace(fresh=True))
    monkeypatch.setattr(Turns, "_written", lambda self, item: Path(f"{item.name}.py"))
    context.profile, context.seed = None, 0
    context.archive.record = lambda: SimpleNamespace(target="cpu")
    with pytest.raises(asyncio.CancelledError):
        await of(context, 1, 30.0).results()
    assert context.archive.terms == {"region:R1:run": "inner"}
    assert not context.archive.items
    assert shown == [("region:R1:so far:0", "inner")]
    late = around()
    late.archive.terms = dict(context.archive.terms)
    results = await of(late, 1, 0.0).results()
    assert (results["R1"].run, resumed) == ("inner", [])  # no time is left to go on
    results = await of(context, 1, 30.0).results()
    assert resumed == ["inner"]
    assert results["R1"].run == "inner"
    assert shortened == [30.0 - COSTS.reading_s]  # and no longer by its own seconds


@pytest.mark.parametrize(("kind", "processors"), [("cuda", 64), ("cuda", 2), ("cpu", 64)])
async def test_files_of_the_next_classes_are_read_where_that_disturbs_no_times(
    monkeypatch: pytest.MonkeyPatch, kind: str, processors: int
):
    judge = Judge(compile_ahead=False)
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    monkeypatch.setattr(Turns, "_written", lambda self, item: Path(f"{item.name}.py"))
    monkeypatch.setattr(turns, "TracePolicy", lambda allow: None)
    searched: list[tuple[str, ...]] = []

    async def searching(self: Turns, item: RegionClass, slice_s: float) -> RegionResult:
        await asyncio.sleep(0)
        searched.append(tuple(judge.read_files))
        return RegionResult(run=item.name)

    monkeypatch.setattr(Turns, "_search", searching)
    await of(around(judge, kind), 4, 400.0).results()
    reads = kind == "cuda" and processors >= 8
    assert searched[0] == (("R1", "R2", "R3") if reads else ())
    assert searched[-1] == (("R1", "R2", "R3", "R4") if reads else ())
