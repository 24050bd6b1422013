"""Foreign code on shapes that its task does not have.

A module was written for one task, and may hold its sizes: that is no fault, but it is said. What
fails is said as for any other candidate, and ends the guest at worst.
Not covered: sizes above the task's own, other element types and layouts.
"""

from collections.abc import Callable

from kernelwright.tools.evaluate.foreign.messages import Make
from kernelwright.tools.evaluate.foreign.runner import GuestRunner
from kernelwright.tools.evaluate.foreign.seat import Seat
from kernelwright.tools.evaluate.seeds import fresh_seed
from kernelwright.tools.evaluate.verify.bench import Bench, Draw
from kernelwright.tools.evaluate.verify.failures import RejectedError
from kernelwright.tools.evaluate.verify.sentence import Sentence
from kernelwright.tools.evaluate.verify.trials import Trials
from kernelwright.tools.evaluate.verify.truth import UnverifiableError


class Elsewhere:
    """The module that stands in a seat, called with inputs of other sizes.

    Args:
        seat: where it sits; nothing of earlier calls in its memory is needed any more.
        make: how the module was made.
        limit_s: how long a call may take, asked anew for each.
        first_s: how long the first call with other sizes may take.
        seed: of the draws.
    """

    def __init__(
        self,
        seat: Seat,
        make: Make,
        limit_s: Callable[[], float],
        first_s: Callable[[], float],
        seed: int,
    ) -> None:
        self._seat, self._make, self._seed = seat, make, seed
        self._limit_s, self._first_s = limit_s, first_s

    def fails(self, name: str, bench: Bench) -> str:
        """Why it is not right on the inputs of that bench; "" where it is.

        Args:
            name: what the shape is called.
            bench: the task with inputs and outputs of that shape.
        """
        self._seat.memory.forget("input")
        self._seat.memory.forget("allocation")
        runner = GuestRunner(bench, self._seat, self._make, self._limit_s, self._first_s)
        draw = Draw("normal", fresh_seed(self._seed, name))
        try:
            trials = Trials(bench, self._seat.memory, runner, lambda _: None)
            trials.run(draw, Sentence(bench), twice=False, settle=lambda: None)
        except (RejectedError, UnverifiableError) as found:
            return getattr(found, "reason", str(found))
        return trials.skipped[0] if trials.skipped else ""
