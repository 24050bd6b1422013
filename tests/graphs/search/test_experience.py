"""A search ends where earlier ones that stood like it gained nothing by going on."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.tools.archive import Archive
from kernelwright.tools.memory import KernelLibrary, Trail, device_of
from kernelwright.tools.types.run import Summary

Search = Callable[..., Awaitable[Summary]]

NOTHING_MORE = (2.0, 1.0, *([1.5] * 40))
MORE = (*([2.0] * 20), *([1.0] * 20))


@pytest.fixture
def remembered(toy: ModuleType, tmp_path: Path) -> Callable[..., None]:
    """Put trails into the library."""

    def put(times_ms: tuple[float, ...], count: int = 10, *, whole: bool = True) -> None:
        trail = Trail(
            device=device_of(toy.HARDWARE), depth="tiny", structure="another", times_ms=times_ms,
            seconds=600.0, whole=whole,
        )  # fmt: skip
        for _ in range(count):
            KernelLibrary(tmp_path).keep_trail(trail)

    return put


async def test_it_ends_where_others_gained_nothing_and_leaves_a_trail_that_says_so(
    searched: Search, remembered: Callable[..., None], toy: ModuleType, tmp_path: Path
) -> None:
    remembered(NOTHING_MORE)
    ended = await searched(minimum_rounds=1)
    assert ended.stopped_because == (
        "10 of 10 earlier searches that stood like this one gained less than 1% by going on"
    )
    assert ended.candidates.timed < (await alone(searched, tmp_path)).candidates.timed
    latest = KernelLibrary(tmp_path).trails(device_of(toy.HARDWARE), "tiny")[0]
    assert not latest.whole
    assert len(latest.times_ms) == ended.candidates.timed


async def alone(searched: Search, home: Path) -> Summary:
    """The same search with nothing to remember."""
    return await searched(minimum_rounds=1, home=home / "empty")


@pytest.mark.parametrize(
    ("trails", "count"),
    [
        (MORE, 10),  # they did gain
        (NOTHING_MORE, 7),  # too few to say
        (NOTHING_MORE[:3], 10),  # none of them went on
    ],
)
async def test_it_goes_on_where_others_gained_or_do_not_tell(
    searched: Search, remembered: Callable[..., None], tmp_path: Path,
    trails: tuple[float, ...], count: int,
) -> None:  # fmt: skip
    remembered(trails, count)
    found = await searched(minimum_rounds=1)
    assert found.stopped_because == (await alone(searched, tmp_path)).stopped_because
    library = KernelLibrary(tmp_path)
    assert library.counts().searches == count + 1


async def test_rounds_that_were_promised_are_searched_all_the_same(
    searched: Search, remembered: Callable[..., None]
) -> None:
    remembered(NOTHING_MORE)
    assert (await searched(minimum_rounds=3)).rounds == 3


async def test_after_some_that_others_ended_one_goes_its_whole_way(
    searched: Search, remembered: Callable[..., None], tmp_path: Path, toy: ModuleType
) -> None:
    remembered(NOTHING_MORE)
    remembered(NOTHING_MORE[:8], 4, whole=False)
    found = await searched(minimum_rounds=1)
    assert "earlier searches" not in found.stopped_because
    assert KernelLibrary(tmp_path).trails(device_of(toy.HARDWARE), "tiny")[0].whole


async def test_a_resume_goes_by_the_trails_of_its_beginning(
    searched: Search, resume: Search, remembered: Callable[..., None], tmp_path: Path
) -> None:
    remembered(NOTHING_MORE)
    ended = await searched(minimum_rounds=1)
    decided = Archive.open(ended.run, tmp_path).decisions()
    remembered(MORE, 60)
    again = await resume(ended.run)
    assert again.stopped_because == ended.stopped_because
    assert Archive.open(ended.run, tmp_path).decisions() == decided
