"""What a call's runner makes of what its guest reports, told by a guest that follows a script."""

from types import SimpleNamespace

import pytest

from kernelwright.tools.evaluate.foreign.guest_runner import GuestRunner
from kernelwright.tools.evaluate.foreign.messages import Books, Done, Make
from kernelwright.tools.evaluate.rules import Defence, Rules
from kernelwright.tools.evaluate.verify.reasons import RejectedError

_QUIET = Books(cpu_ms=0.0, threads=1, processes=1, held_bytes=0)
_RULES = Rules()


_MAKE = Make(source="", entry="ModelNew", arguments=None, seed=0)


def runner(rules: Rules = _RULES, **reports: Done) -> GuestRunner:
    """Its guest answers every order with `Done`, or as `reports` say by the order's kind."""
    running = SimpleNamespace(wait=lambda: None, report=lambda: reports.get("go", Done()))
    link = SimpleNamespace(
        ask=lambda order, _: reports.get(order.kind, Done()),
        started=lambda *_: running,
        books=lambda: _QUIET,
    )
    seat = SimpleNamespace(link=link, arena=None, outputs=lambda _: (), named=lambda _: ())
    runtime = SimpleNamespace(device="cpu", rules=rules)
    return GuestRunner(runtime, seat, _MAKE, lambda: 1.0, lambda: 1.0)


def test_a_guest_with_nothing_to_hide_is_called():
    assert runner()((), {}) == ()


@pytest.mark.parametrize("when", ["go", "store"])
def test_a_thread_is_found_in_the_call_and_when_it_is_over(when):
    late = {when: Done(python_threads=("late",))}
    with pytest.raises(RejectedError, match=r"threads of the candidate outlive its calls \(late\)"):
        runner(**late)((), {})
    without = Rules(switched_off=(Defence.COMPANIONS,))
    assert runner(without, **late)((), {}) == ()


def test_a_guest_is_told_when_its_library_has_to_add_up_in_one_order():
    called = runner()
    orders = []
    link = called._seat.link
    begun = link.started
    link.started = lambda order, _: orders.append(order.one_order) or begun()
    called((), {})
    with called.in_one_order():
        called((), {})
    called((), {})
    assert orders == [False, True, False]
