"""What a search is promised to take, from what searches took on the device before."""

import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.pace import (
    DEPTHS,
    Pace,
    Took,
    larger_build_s,
    larger_reading_s,
    latest,
    pace_of,
    promised_words,
    remember,
)
from kernelwright.graphs.search.run import start_search
from kernelwright.profiles.load import SearchProfile, hardware_profile, search_profile
from kernelwright.tools.types import Phase, TracePolicy
from kernelwright.tools.types.run import Summary

H200 = hardware_profile("h200")


def took(depth: str = "quick", certifying_s: float = 9.0, finalists: int = 1) -> Took:
    return Took(
        depth=depth,
        comparing_s=5.0,
        searching_s=14.0,
        profiling_s=2.0,
        certifying_s=certifying_s,
        finalists=finalists,
    )


def test_before_any_search_ended_the_promise_is_a_guess_and_says_so(tmp_path: Path) -> None:
    pace = pace_of(tmp_path, H200)
    assert latest(tmp_path) is None
    for name in DEPTHS:
        promise = pace.promise(search_profile(name))
        assert promise.seconds > search_profile(name).seconds
        assert "first guess" in promise.words


def test_what_searches_took_here_is_what_the_next_one_is_promised(tmp_path: Path) -> None:
    for _ in range(3):
        remember(tmp_path, H200, took())
    pace = pace_of(tmp_path, H200)
    assert latest(tmp_path) == pace
    assert pace.promise(search_profile("quick")).words == "about 30 s"
    assert "first guess" in pace.promise(search_profile("deep")).words
    assert promised_words(pace).startswith("quick about 30 s, standard about ")
    assert pace_of(tmp_path, hardware_profile("l40s")).searches == ()


def test_certifying_is_counted_for_one_finalist_and_leaves_time_to_search(tmp_path: Path) -> None:
    remember(tmp_path, H200, took(certifying_s=30.0, finalists=3))
    pace = pace_of(tmp_path, H200)
    assert pace.certifying_s() == pytest.approx(10.0)
    quick = search_profile("quick")
    assert pace.reserve_s(quick.model_copy(update={"seconds": 60.0})) == pytest.approx(10.0)
    assert pace.reserve_s(quick.model_copy(update={"seconds": 12.0})) == pytest.approx(6.0)
    # A suite's seconds are of searching alone.
    alone = quick.model_copy(update={"seconds": 12.0, "seconds_hold": "searching"})
    assert pace.reserve_s(alone) == 0.0
    assert "at most" not in pace.promise(alone).words


def test_a_time_that_somebody_named_is_the_most() -> None:
    standard = search_profile("standard")
    # Whatever the number is: the depth's own seconds, named, are a limit as well.
    for named_s in (360.0, standard.seconds):
        profile = standard.limited(seconds=named_s)
        assert (profile.seconds, profile.seconds_hold) == (named_s, "everything")
        promise = Pace(device="x", kind="cpu").promise(profile)
        assert (promise.seconds, promise.limit) == (named_s, True)
    assert standard.limited(rounds=2).seconds_hold == "certification"
    with pytest.raises(ValueError, match="usd"):
        standard.limited(usd=0.0)


def test_a_damaged_file_is_as_none_and_only_the_latest_searches_are_kept(tmp_path: Path) -> None:
    for number in range(20):
        remember(tmp_path, H200, took(certifying_s=1.0 + number))
    assert len(pace_of(tmp_path, H200).searches) == 12
    assert pace_of(tmp_path, H200).searches[-1].certifying_s == 20.0
    (file,) = (tmp_path / "pace").iterdir()
    file.write_text("{")
    assert pace_of(tmp_path, H200) == Pace(device=H200.name, kind="cuda")
    assert latest(tmp_path) is None


async def test_making_the_agents_of_a_large_model_is_not_of_the_searchs_seconds(
    toy: ModuleType, tmp_path: Path
) -> None:
    def slowly(around: object) -> object:
        time.sleep(2.5)
        return toy.toy_agents(toy.LOOPS)

    short = {"seconds": 2.0, "seconds_hold": "searching"}
    profile = SearchProfile.model_validate(toy.PROFILE.model_dump() | short)
    summary = await start_search(
        Path("toy.py"),
        TracePolicy(),
        "cpu",
        profile,
        home=tmp_path,
        executor=toy.ToyExecutor(),
        make_agents=slowly,  # type: ignore[arg-type]
    )
    assert isinstance(summary, Summary)
    assert summary.best is not None
    assert summary.candidates.timed > 1


def test_a_large_build_has_its_seconds_in_the_certification() -> None:
    assert larger_build_s("cuda", 0) == 0.0
    assert larger_build_s("cuda", 840) == pytest.approx(0.03 * 840)
    assert larger_build_s("cuda", 840, built_s=45.0) == pytest.approx(40.0)
    assert larger_build_s("cuda", 840, built_s=2.0) == 0.0
    read = [Phase(name="read: worker and file", seconds=21.0), Phase(name="audit", seconds=9.0)]
    assert larger_reading_s(read) == pytest.approx(16.0)
    assert larger_reading_s(read[1:]) == 0.0
    pace = Pace(device="x", kind="cuda")
    whole = search_profile("standard").limited(seconds=240.0)
    assert pace.reserve_s(whole, 55.0) == pytest.approx(55.0)
    assert pace.reserve_s(whole, 1e3) == pytest.approx(120.0)


@pytest.mark.parametrize(("seconds", "kept"), [(40.0, 2.0), (240.0, 4.0)])
def test_a_look_at_how_the_best_is_called_has_its_seconds(seconds: float, kept: float) -> None:
    profile = search_profile("standard").limited(seconds=seconds)

    def reserve_s(term: str | None) -> float:
        search = SimpleNamespace(
            archive=SimpleNamespace(term=lambda name: term), profile=profile, certification_s=10.0,
            pace=Pace(device="x", kind="cuda"),
        )  # fmt: skip
        found = SearchContext.reserve_s.fget(search)  # type: ignore[attr-defined]
        return float(found)

    assert reserve_s(None) == pytest.approx(10.0)
    assert reserve_s("best") == pytest.approx(10.0 + kept)
