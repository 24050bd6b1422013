"""The two clocks of an export's `verify.py` on a GPU that is made up; its code is the export's."""

from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.tools.export import exported_clocks
from kernelwright.tools.export.exported_clocks import Clock, compare

FLUSH_MS, WORK_MS = 0.05, 0.02


class Card:
    """A device that works through its queue; a host that takes `host_ms` to issue a call."""

    def __init__(self, host_ms: float) -> None:
        self.host_ms = host_ms
        self.host = self.device = 0.0
        self.calls = self.flushes = 0

    def queue(self, issue_ms: float, work_ms: float) -> None:
        self.host += issue_ms
        self.device = max(self.device, self.host) + work_ms

    def call(self) -> None:
        self.calls += 1
        self.queue(self.host_ms, WORK_MS)

    def hold(self, cycles: int) -> None:
        self.queue(0.0, cycles / exported_clocks.CYCLES_A_MS)

    def zero_(self) -> None:
        self.flushes += 1
        self.queue(0.0, FLUSH_MS)

    def synchronize(self) -> None:
        self.host = max(self.host, self.device)

    def torch(self) -> Any:
        card = self

        class Event:
            def __init__(self, *_: object, **__: object) -> None: ...

            def record(self) -> None:
                self.at = max(card.host, card.device)

            def query(self) -> bool:
                return self.at <= card.host

            def synchronize(self) -> None:
                card.host = max(card.host, self.at)

            def elapsed_time(self, end: "Event") -> float:
                return end.at - self.at

        cuda = SimpleNamespace(
            synchronize=self.synchronize,
            _sleep=self.hold,
            get_device_properties=lambda _: SimpleNamespace(L2_cache_size=1),
        )
        return SimpleNamespace(Event=Event, cuda=cuda, empty=lambda *_, **__: self, int8=None)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    made = Card(host_ms=0.3)
    monkeypatch.setattr(exported_clocks, "torch", made.torch())
    monkeypatch.setattr(exported_clocks, "WARM_UP_S", 0.0)
    return made


def test_device_time_is_taken_with_the_host_ahead(card: Card) -> None:
    clock = Clock("cuda", queued=True)
    assert [clock(card.call, 1) for _ in range(3)] == [pytest.approx(WORK_MS)] * 3
    assert (clock.hold_ms, clock.late) == (pytest.approx(0.5 * 0.98**3), 0)


def test_a_call_that_waits_for_the_device_is_counted(card: Card) -> None:
    card.host_ms = 99.0
    clock = Clock("cuda", queued=True)
    assert clock(card.call, 1) > 60
    assert (clock.hold_ms, clock.late) == (exported_clocks.MOST_HOLD_MS, 1)


def test_a_single_call_is_the_second_of_two_and_holds_the_hosts_time(card: Card) -> None:
    clock = Clock("cuda", queued=False)
    assert clock(card.call, 1) == pytest.approx(card.host_ms + WORK_MS)
    assert (card.calls, card.flushes, clock.late) == (2, 1, 0)


def test_pairs_by_either_clock_are_the_references_time_over_the_modules(card: Card) -> None:
    def theirs() -> None:
        card.call()
        card.queue(0.0, 3 * WORK_MS)

    for queued, ratio in ((True, 4.0), (False, (0.3 + 4 * WORK_MS) / (0.3 + WORK_MS))):
        ratios = compare(card.call, theirs, Clock("cuda", queued=queued), 0.0)
        assert ratios == [pytest.approx(ratio)] * 20
