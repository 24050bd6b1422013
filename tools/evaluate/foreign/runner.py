"""Foreign code as a runner of trials: called in its guest, watched from outside.

The result is taken from the shared memory the moment the guest says that it is done, and looked at
again after a pause: what changes then was not done. So are the guest's threads, processes and the
time that they use after they said they were done.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from kernelwright.tools.evaluate.defences import Defence
from kernelwright.tools.evaluate.foreign.books import Books
from kernelwright.tools.evaluate.foreign.link import GuestFailedError, GuestLostError
from kernelwright.tools.evaluate.foreign.messages import (
    Arrange,
    Call,
    Done,
    Go,
    Make,
    Store,
    Weights,
)
from kernelwright.tools.evaluate.foreign.places import place_of, slots_of
from kernelwright.tools.evaluate.foreign.seat import Seat
from kernelwright.tools.evaluate.foreign.verdicts import rejected
from kernelwright.tools.evaluate.verify.aftermath import at_rest
from kernelwright.tools.evaluate.verify.bench import Bench
from kernelwright.tools.evaluate.verify.failures import RejectedError
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.types import Verdict

_PAUSE_S = 0.04
_IDLE_SHARE = 0.6  # of the pause: threads of OpenMP spin a little before they sleep


class GuestRunner:
    """Calls foreign code in its guest, one call at a time.

    Args:
        bench: the task.
        seat: the guest's.
        make: how the module is made.
        limit_s: how long a call may take, asked anew for each.
        first_s: how long the first may take.
    """

    def __init__(
        self,
        bench: Bench,
        seat: Seat,
        make: Make,
        limit_s: Callable[[], float],
        first_s: Callable[[], float],
    ) -> None:
        self._bench, self._seat, self._make = bench, seat, make
        self._limit_s, self._first_s = limit_s, first_s
        self._rules = bench.rules
        self.made = Done()
        self.taken: frozenset[str] = frozenset()
        self.settings: tuple[str, ...] = ()
        self._calls = 0
        self._one_order = False

    def prepare(self, weights: Mapping[str, Tensor]) -> None:
        """Run the file and construct the module, with a compiler at work where it has one."""
        limit_s = self._rules.foreign_build_s
        try:
            self.made = self._seat.link.ask(self._make, limit_s)
        except (GuestFailedError, GuestLostError) as error:
            raise rejected(error, "its file was run and its module constructed") from error

    def __call__(
        self, arguments: Sequence[Argument], weights: Mapping[str, Tensor]
    ) -> tuple[Tensor, ...]:
        """One call on arguments that lie in the seat's memory; copies of the outputs."""
        try:
            return self._call(arguments, weights)
        except (GuestFailedError, GuestLostError) as error:
            raise rejected(error, "it was called") from error

    @contextmanager
    def in_one_order(self) -> Iterator[None]:
        """The library's convolutions in the guest add up in one order inside."""
        self._one_order = True
        try:
            yield
        finally:
            self._one_order = False

    def _call(
        self, arguments: Sequence[Argument], weights: Mapping[str, Tensor]
    ) -> tuple[Tensor, ...]:
        seat, limit_s = self._seat, self._limit_s() if self._calls else self._first_s()
        outputs = seat.outputs(self._bench)
        order = Weights(weights=seat.named(tuple(weights.items())))
        self.taken = frozenset(seat.link.ask(order, limit_s).names)
        arranged = Arrange(
            arguments=(slots_of(seat.arena, arguments),),
            outputs=(tuple(place_of(seat.arena, output) for output in outputs),),
        )
        seat.link.ask(arranged, limit_s)
        before = seat.link.books()
        exact = self._rules.has(Defence.EXACT_RESULT)
        go = Go(calls=(Call(arguments=0, outputs=0),), exact=exact, one_order=self._one_order)
        running = seat.link.started(go, limit_s)
        self._settle()
        running.wait()
        taken = tuple(output.clone() for output in outputs)
        self._settle()
        done = running.report()
        self._afterwards(before, done, outputs, taken)
        stored = seat.link.ask(Store(weights=seat.named(tuple(weights.items()))), limit_s)
        self._no_threads(stored)
        return taken

    def _settle(self) -> None:
        if self._bench.device == "cuda":
            torch.cuda.synchronize()

    def _afterwards(
        self, before: Books, done: Done, outputs: Sequence[Tensor], taken: Sequence[Tensor]
    ) -> None:
        """What goes on after the guest said that it was done is no part of a result."""
        after = self._seat.link.books()
        time.sleep(_PAUSE_S)
        late = self._seat.link.books()
        self.settings = tuple(dict.fromkeys((*self.settings, *done.settings)))
        self._calls += 1
        if self._rules.has(Defence.LATE_CHANGES):
            unchanged(outputs, taken)
        if self._rules.has(Defence.COMPANIONS):
            self._alone(before, after, late, done)

    def _alone(self, before: Books, after: Books, late: Books, done: Done) -> None:
        if late.processes > before.processes:
            names = ", ".join(late.names[before.processes :])
            raise RejectedError(
                Verdict.CHEATING,
                f"a call left {late.processes - before.processes} processes running ({names})",
            )
        self._no_threads(done)
        if self._calls > 2 and late.threads > before.threads:
            raise RejectedError(
                Verdict.CHEATING,
                f"a call left {late.threads - before.threads} threads more than it found",
            )
        used = late.cpu_ms - after.cpu_ms
        if self._calls > 2 and used > _IDLE_SHARE * _PAUSE_S * 1e3:
            raise RejectedError(
                Verdict.CHEATING,
                f"after it said that it was done the guest went on to compute: {used:.0f} ms of "
                f"processor time in a pause of {_PAUSE_S * 1e3:.0f} ms",
            )

    def _no_threads(self, done: Done) -> None:
        if done.python_threads and self._rules.has(Defence.COMPANIONS):
            names = ", ".join(done.python_threads[:4])
            raise RejectedError(
                Verdict.CHEATING, f"threads of the candidate outlive its calls ({names})"
            )


def unchanged(outputs: Sequence[Tensor], taken: Sequence[Tensor]) -> None:
    """RejectedError when an output is not what it was when the guest said that it was done."""
    at_rest(outputs, taken, "the work was still going on when the candidate said that it was done")
