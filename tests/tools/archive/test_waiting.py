"""The run's clock, which stands still while somebody outside is waited for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.tools.archive import Archive, database


class Clock:
    """A clock that moves when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(database, "monotonic", clock)
    return clock


@pytest.fixture
def archive(new_archive: Callable[..., Archive]) -> Archive:
    return new_archive()


def test_what_is_waited_is_not_spent(archive: Archive, clock: Clock) -> None:
    archive.claim()
    clock.now += 5
    with archive.waiting():
        clock.now += 1000
        assert archive.spent_s() == 5
    clock.now += 2
    assert archive.spent_s() == 7


def test_several_who_wait_at_once_are_counted_once(archive: Archive, clock: Clock) -> None:
    archive.claim()
    first, second = archive.waiting(), archive.waiting()
    first.__enter__()
    clock.now += 10
    second.__enter__()
    clock.now += 10
    first.__exit__(None, None, None)
    clock.now += 10
    assert archive.spent_s() == 0
    second.__exit__(None, None, None)
    clock.now += 10
    assert archive.spent_s() == 10


def test_another_session_begins_with_what_was_spent(archive: Archive, clock: Clock) -> None:
    archive.claim()
    clock.now += 3
    with archive.waiting():
        clock.now += 50
    archive.close()
    later = Archive.open(Path(archive.folder))
    later.claim()
    clock.now += 4
    assert later.spent_s() == 7
    later.close()
