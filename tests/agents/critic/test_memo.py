"""Results are kept by identity, and not a moment longer than what they are of."""

import gc

from kernelwright.agents.shared.memo import ByIdentity


class Thing:
    def __init__(self, size: int) -> None:
        self.size = size


def test_one_object_is_worked_out_once_and_another_anew() -> None:
    asked = []
    sizes = ByIdentity(lambda thing: asked.append(thing.size) or thing.size)
    one, other = Thing(1), Thing(1)
    assert [sizes.of(one), sizes.of(one), sizes.of(other)] == [1, 1, 1]
    assert len(asked) == 2


def test_nothing_is_kept_of_what_is_gone() -> None:
    sizes = ByIdentity(lambda thing: thing.size)
    for number in range(100):
        assert sizes.of(Thing(number)) == number
    gc.collect()
    assert len(sizes._known) <= 1
