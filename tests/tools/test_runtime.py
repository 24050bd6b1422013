"""Python's collector of cycles, kept out of work that makes a great many values at once."""

import gc
from collections.abc import Iterator

import pytest

from kernelwright.tools.runtime import collector_paused


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The collector, given back as it was found."""
    was_on = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was_on else gc.disable)()


def test_nothing_is_collected_inside_and_everything_afterwards() -> None:
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_failure_inside_leaves_the_collector_on() -> None:
    with pytest.raises(ValueError, match="broken"), collector_paused():
        raise ValueError("broken")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()
