"""What searches that stood alike gained by going on."""

from pathlib import Path

import pytest

from kernelwright.tools.memory import KernelLibrary, Trail, forget, share_that_gained

FLAT = (2.0, 1.0, *([1.2] * 14))
LATE = (2.0, 1.0, *([1.2] * 12), 0.5, 1.2)


def trail(times_ms: tuple[float | None, ...] = FLAT, *, whole: bool = True) -> Trail:
    """One of a toy."""
    return Trail(
        device="toy", depth="quick", structure="s", times_ms=times_ms, seconds=32.0, whole=whole
    )


@pytest.mark.parametrize(
    ("so_far", "found"),
    [
        (FLAT[:8], (1, 2)),  # both stood so, and one gained after its fourteenth
        (FLAT[:13], (0, 0)),  # neither went on for long enough to tell
        ((), (2, 2)),
    ],
)
def test_those_that_stood_alike_are_counted(
    so_far: tuple[float, ...], found: tuple[int, int]
) -> None:
    assert share_that_gained([trail(), trail(LATE)], so_far, 1.02) == found


def test_one_that_was_just_better_is_not_compared_with_searches_that_waited() -> None:
    waited, just_now = FLAT[:8], (*FLAT[:7], 0.5)
    others = [trail((*FLAT[:7], 0.6, *([0.7] * 8)))]
    assert share_that_gained(others, waited, 1.02) == (0, 0)
    assert share_that_gained(others, just_now, 1.02) == (0, 1)


def test_what_was_not_right_is_no_time_and_what_others_ended_no_witness() -> None:
    wrong = (2.0, None, None, 1.0, *([None] * 12))
    assert share_that_gained([trail(wrong)], (2.0, None), 1.02) == (1, 1)
    assert share_that_gained([trail(whole=False)], FLAT[:4], 1.02) == (0, 0)


def test_gains_below_what_counts_are_none() -> None:
    little = (*FLAT[:14], 0.99, 1.2)
    assert share_that_gained([trail(little)], FLAT[:8], 1.02) == (0, 1)
    assert share_that_gained([trail(little)], FLAT[:8], 1.005) == (1, 1)


def test_the_latest_are_kept_until_they_are_forgotten(tmp_path: Path) -> None:
    library = KernelLibrary(tmp_path)
    assert library.trails("toy", "quick") == ()
    for number in range(70):
        library.keep_trail(trail((float(number + 1),)))
    library.keep_trail(trail().model_copy(update={"depth": "deep"}))
    found = library.trails("toy", "quick")
    assert len(found) == 64
    assert found[0].times_ms == (70.0,)
    assert library.counts().searches == 65
    assert forget(tmp_path)
    assert library.trails("toy", "quick") == ()
