"""Seeds that follow from what they are for."""

from kernelwright.tools.evaluate.rules import fresh_seed


def test_seeds_follow_from_what_they_are_for() -> None:
    assert fresh_seed(1, "a") == fresh_seed(1, "a")
    assert len({fresh_seed(1, i) for i in range(100)}) == 100
    assert 0 <= fresh_seed("x") < 2**31
