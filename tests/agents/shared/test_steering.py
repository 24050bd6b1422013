import pytest

from kernelwright.agents.shared.facts import speaks_of

TEXTS = ("memory=on chip", "rows=row_per_warp", "row_per_warp", "A warp for every row")


@pytest.mark.parametrize(
    "hint", ["on chip", "memory=on chip", "row_per_warp", "row per warp", "warp", "ROW"]
)
def test_a_hint_is_understood_by_name_or_by_its_words(hint: str) -> None:
    assert speaks_of(hint, TEXTS)


@pytest.mark.parametrize("hint", ["", "shared memory", "war", "row per block"])
def test_a_hint_for_something_else_is_not(hint: str) -> None:
    assert not speaks_of(hint, TEXTS)
