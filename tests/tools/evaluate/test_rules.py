"""Seeds that follow from what they are for, and figures for short searches."""

from kernelwright.tools.evaluate.rules import Rules, fresh_seed


def test_seeds_follow_from_what_they_are_for() -> None:
    assert fresh_seed(1, "a") == fresh_seed(1, "a")
    assert len({fresh_seed(1, i) for i in range(100)}) == 100
    assert 0 <= fresh_seed("x") < 2**31


def test_a_short_search_does_not_settle_for_longer_than_it_looked() -> None:
    assert Rules().within(4).settle_max_s == 1
    assert Rules().within(3600) == Rules()
    assert Rules.of("library").within(20).settle_max_s == 1
