"""The order of events in which a candidate proves itself, and what must hold when it has returned.

For every draw of inputs the candidate runs before the truth exists: in guarded, poisoned
memory, with its inputs and weights checked afterwards. The first draw is run again in new memory
and must give the same bits; later draws reuse the first one's memory with new values, under other
weights. What is judged is what was there when the candidate returned, in stream order; that
nothing changed after it is seen when everything has come to rest.

Two calls on the same inputs may differ where the library does. Some of its convolutions add up in
whatever order threads come (transposed ones above all), and so does what it adds at indices, so a
candidate that calls one may differ from itself for no reason of its own (`changing_order`). It then
has to agree with itself under the library's deterministic algorithms, and each of its answers to be
right.
Not covered here: host code of its own (a plan has none), sanitizers, other shapes.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor

from kernelwright.tools.evaluate.rules import Defence
from kernelwright.tools.evaluate.verify.bits import (
    Fingerprints,
    first_difference,
    numbered,
    same_bits,
)
from kernelwright.tools.evaluate.verify.changing_order import (
    ORDER_CHANGED,
    no_order_words,
    one_order,
    order_may_change,
    without_order,
)
from kernelwright.tools.evaluate.verify.comparison import ResultComparator
from kernelwright.tools.evaluate.verify.errors import finite
from kernelwright.tools.evaluate.verify.memory import (
    GuardedMemory,
    available_bytes,
    candidate_bytes,
    refill,
)
from kernelwright.tools.evaluate.verify.reasons import RejectedError, out_of_bounds, rejection
from kernelwright.tools.evaluate.verify.reference_runtime import (
    Change,
    Draw,
    ReferenceRuntime,
    Result,
    redraw,
    tensors,
)
from kernelwright.tools.evaluate.verify.runners import Runner, prepared_by
from kernelwright.tools.evaluate.verify.truth import Argument, small_steps
from kernelwright.tools.tasks.graph.random_draws import state_of
from kernelwright.tools.types import TensorSpec, Verdict
from kernelwright.tools.types.verdict import OWN_NOT_FINITE


def inputs_unchanged(placed: Sequence[Argument], pristine: Sequence[Argument]) -> None:
    """RejectedError when an input is not what it was."""
    for number, (now, then) in enumerate(zip(tensors(placed), tensors(pristine), strict=True)):
        if not same_bits(now, then):
            index = list(first_difference(now, then))
            raise RejectedError(
                Verdict.INPUT_MUTATED, f"input {number} was changed, first at {index}"
            )


def weights_unchanged(
    placed: Mapping[str, Tensor], live: Mapping[str, Tensor], mutated: Collection[str]
) -> None:
    """RejectedError when a weight that the forward does not write is not what it was."""
    for name, then in live.items():
        if name not in mutated and not same_bits(placed[name], then):
            index = list(first_difference(placed[name], then))
            raise RejectedError(
                Verdict.INPUT_MUTATED, f"weight {name!r} was changed, first at {index}"
            )


def untouched(far: Fingerprints) -> None:
    """What the judge keeps for itself must be what it was; a kernel can reach all memory."""
    if changed := far.changed():
        raise RejectedError(
            Verdict.CHEATING, f"the judge's own copy of {changed[0]} was written to, far outside"
        )


def prepared_unchanged(prepared: Fingerprints) -> None:
    """What was prepared of weights is no place to keep answers in."""
    if changed := prepared.changed():
        raise RejectedError(
            Verdict.CHEATING, f"a call wrote to {changed[0]}: something is kept between calls"
        )


def shaped(outputs: Sequence[Tensor], wanted: Sequence[TensorSpec]) -> None:
    """RejectedError unless there are as many outputs as wanted, of those shapes and types."""
    if len(outputs) != len(wanted):
        raise RejectedError(Verdict.WRONG_SHAPE, f"{len(outputs)} outputs, expected {len(wanted)}")
    for number, (got, spec) in enumerate(zip(outputs, wanted, strict=True)):
        shape, dtype = tuple(got.shape), str(got.dtype).removeprefix("torch.")
        if (shape, dtype) != (spec.shape, spec.dtype.value):
            raise RejectedError(
                Verdict.WRONG_SHAPE,
                f"output {number} is {dtype}{list(shape)}, "
                f"expected {spec.dtype.value}{list(spec.shape)}",
            )


Drew = tuple[tuple[bytes, ...], tuple[bytes, ...]]


def drew_as_much(drew: Drew, runtime: ReferenceRuntime) -> None:
    """RejectedError unless the generators stand where the reference, just now, left them.

    Args:
        drew: where they stood before and after the candidate's call.
        runtime: the task, whose reference has been run.
    """
    before, after = drew
    if not runtime.reference.generators.types:
        if after != before:
            words = "it draws random numbers, which the module does not"
            raise RejectedError(Verdict.WRONG_RESULT, words)
    elif after != state_of(runtime.device):
        words = "it draws more or fewer random numbers than the module does"
        raise RejectedError(Verdict.WRONG_RESULT, words)


def at_rest(outputs: Sequence[Tensor], returned: Sequence[Tensor], means: str) -> None:
    """What was returned must still be there when nothing should be running any more.

    Args:
        outputs: as they are now.
        returned: copies that were made when they were returned.
        means: what a change means, for the reason.
    """
    for number, (now, then) in enumerate(zip(outputs, returned, strict=True)):
        if not same_bits(now, then):
            index = list(first_difference(now, then))
            raise RejectedError(
                Verdict.CHEATING,
                f"output {number} changed after it was returned, first at {index}: {means}",
            )


def unlike(first: Sequence[Tensor], again: Sequence[Tensor]) -> str:
    """Where two answers to the same inputs are apart; "" where they are the same bits."""
    for number, (one, two) in enumerate(zip(first, again, strict=True)):
        if not same_bits(two, one):
            index = first_difference(two, one)
            return (
                f"the same inputs in new memory gave another answer: output {number} at "
                f"{list(index)} was {one[index].item()} and then {two[index].item()} "
                "(a race, a counter kept between calls, or memory read before it is written)"
            )
    return ""


_REST_S = 0.002  # what a thread left behind needs at least to show itself

Announce = Callable[[str], None]
Shelved = TypeVar("Shelved", Tensor, Argument)
Answered = TypeVar("Answered")


class Trials:
    """Runs one candidate through draws of inputs.

    Args:
        runtime: the task on its device.
        memory: guarded memory that the runner can reach.
        runner: calls the candidate.
        announce: told before the candidate runs, as it may not come back.
        keeps: whether a later draw may be given the memory of the one before.
        calls: which of the library's operators it is known to call.
    """

    def __init__(
        self,
        runtime: ReferenceRuntime,
        memory: GuardedMemory,
        runner: Runner,
        announce: Announce,
        *,
        keeps: bool = False,
        calls: Collection[str] = (),
    ) -> None:
        self._runtime = runtime
        self._announce = announce
        self._calls = calls
        self._memory = memory
        self._runner = runner
        live = runtime.reference.weights()
        self._weights = {n: self._memory.place(t, f"weight {n}") for n, t in live.items()}
        self._moved = False
        self._placed: list[Argument] = []
        self._before: tuple[Tensor, ...] = ()
        self.skipped: list[str] = []
        # Where the device has no room for three copies of everything, copies wait on the host.
        room = available_bytes(runtime.device, runtime.rules.memory_fraction)
        self._tight = runtime.device == "cuda" and candidate_bytes(runtime.task) > room
        # Answers are copied when they are returned, else they would change with their memory.
        apart = self._has(Defence.LATE_CHANGES) and self._has(Defence.NEW_VALUES)
        self._keeps = keeps and apart and not self._tight
        self._recycled, self._is_usual = False, True
        self._drew: Drew = (), ()

    def prepare(self) -> None:
        """Run the plan's set-up, once."""
        self._announce("the candidate prepares")
        self._attempt(lambda: self._runner.prepare(self._weights))

    def run(
        self,
        draw: Draw,
        comparator: ResultComparator,
        *,
        twice: bool,
        settle: Callable[[], None],
        weights: int | None = None,
        change: Change = redraw,
        instead: Sequence[Argument] | None = None,
        recycled: bool = False,
    ) -> None:
        """One draw: run, check memory, then compare with a truth that did not exist before.

        Args:
            draw: which inputs.
            comparator: compares, and keeps the numbers.
            twice: run again on the same inputs in new memory.
            settle: told when the candidate is done and the reference's turn begins.
            weights: a seed of other weights than the module's own, in the same memory.
            change: what makes them others.
            instead: arguments to use in place of the draw's own.
            recycled: in the memory of the call before, as that left it, where it was kept.

        Raises:
            RejectedError: the candidate failed, with its verdict and reason.
            UnverifiableError: there is no memory for the truth.
        """
        runtime = self._runtime
        with nullcontext() if weights is None else runtime.other_weights(weights, change):
            self._follow(moved=weights is not None)
            self._recycled = recycled and self._keeps
            self._is_usual = draw.distribution == "task" and change is redraw
            self._run(draw, comparator, twice=twice, settle=settle, instead=instead)

    def _follow(self, *, moved: bool) -> None:
        """The candidate's weights are the reference's, and so is what it prepared from them."""
        if not moved and not self._moved:
            return
        for name, live in self._runtime.reference.weights().items():
            refill(self._weights[name], live)
        self._moved = moved
        self.prepare()

    def _run(
        self,
        draw: Draw,
        comparator: ResultComparator,
        *,
        twice: bool,
        settle: Callable[[], None],
        instead: Sequence[Argument] | None,
    ) -> None:
        arguments = self._runtime.draw(draw) if instead is None else list(instead)
        self._put(arguments)
        pristine = [self._shelve(a) for a in arguments]
        del arguments
        got = self._call(pristine, f"inputs drawn from {draw.distribution!r}")
        other = self._repeat(pristine, got) if twice and self._has(Defence.NEW_MEMORY) else None
        arguments = [_on(a, self._runtime.device) for a in pristine]
        settle()
        own = self._runtime.own(arguments)
        if not self._is_usual and not all(map(finite, own.outputs)):
            self.skipped.append(f"{draw.distribution}: {OWN_NOT_FINITE}")
            return
        drew_as_much(self._drew, self._runtime)
        right = self._runtime.right(arguments, own)
        with small_steps():
            for answer in (got,) if other is None else (got, other):
                comparator.judge(draw, arguments, answer, own, right, before=self._before)
        if self._has(Defence.NEW_VALUES):
            self._before = tuple(self._shelve(t) for t in got.outputs)

    def _put(self, arguments: Sequence[Argument]) -> None:
        """Place the arguments: new values into the same memory where the layout allows it."""
        again = self._has(Defence.NEW_VALUES) and bool(self._placed)
        if again and all(map(_fits, self._placed, arguments)):
            for placed, new in zip(tensors(self._placed), tensors(arguments), strict=True):
                refill(placed, new)
            return
        self._placed = self._in_new_memory(arguments)

    def _in_new_memory(self, arguments: Sequence[Argument], mark: str = "") -> list[Argument]:
        return [
            self._memory.place(a, f"{mark}{i}") if isinstance(a, Tensor) else a
            for i, a in enumerate(arguments)
        ]

    def _repeat(self, pristine: Sequence[Argument], first: Result) -> Result | None:
        """The same inputs in new memory must give the same bits.

        An answer that has other bits and is excused (see `order_may_change`) is returned.
        """
        shelved = tuple(self._shelve(t) for t in first.outputs) if self._tight else first.outputs
        other = self._again(pristine)
        reason = unlike(shelved, other.outputs)
        if not reason:
            return None
        if order_may_change(self._runtime.task, self._runtime.device):
            with self._in_one_order():
                one, two = self._again(pristine), self._again(pristine)
            if not unlike(one.outputs, two.outputs):
                self.skipped.append(ORDER_CHANGED)
                return other
            if excused := without_order(self._runtime.task).intersection(self._calls):
                self.skipped.append(no_order_words(excused))
                return other
        raise RejectedError(Verdict.NONDETERMINISTIC, reason)

    def _in_one_order(self) -> AbstractContextManager[None]:
        """Inside, the library that the candidate calls adds up in one order; see `one_order`."""
        return one_order()

    def _again(self, pristine: Sequence[Argument]) -> Result:
        """The result on the same inputs, which lie in new memory."""
        kept, self._placed = self._placed, self._in_new_memory(pristine, "again ")
        result = self._call(pristine, "the same inputs in new memory")
        self._placed = kept
        self._memory.forget("input again")
        return result

    def _call(self, pristine: Sequence[Argument], on_what: str) -> Result:
        """Run the candidate once and check everything but the values."""
        live = self._runtime.reference.weights()
        for name in self._runtime.mutated:
            refill(self._weights[name], live[name])
        self._announce(f"the candidate runs on {on_what}")
        kept_here = {f"input {n}": t for n, t in numbered(tensors(pristine)).items()}
        kept_here |= {f"weight {name!r}": t for name, t in live.items()}
        far = Fingerprints(kept_here) if self._has(Defence.INPUTS_UNCHANGED) else None
        prepared = Fingerprints(prepared_by(self._runner, self._weights)) if far else None
        self._memory.begin(recycling=self._recycled)
        outputs, returned = self._attempt(self._outputs)
        with small_steps():
            if self._has(Defence.GUARD_BANDS) and (damage := self._memory.damage()) is not None:
                raise RejectedError(Verdict.OUT_OF_BOUNDS, out_of_bounds(damage))
            if far is not None:
                inputs_unchanged(self._placed, pristine)
                weights_unchanged(self._weights, live, self._runtime.mutated)
                untouched(far)
            if prepared is not None:
                prepared_unchanged(prepared)
            if self._has(Defence.EXACT_RESULT):
                shaped(outputs, self._runtime.task.outputs)
            if self._runtime.device == "cpu" and self._has(Defence.LATE_CHANGES):
                time.sleep(_REST_S)
            at_rest(outputs, returned, "something works on behind the call")
        # Temporaries are freed before the truth needs room; outputs live as long as their tensors.
        if self._keeps:
            self._memory.retire()
        self._memory.forget("allocation")
        return Result(
            returned, {name: self._weights[name].clone() for name in self._runtime.mutated}
        )

    def _has(self, defence: Defence) -> bool:
        return self._runtime.rules.has(defence)

    def _outputs(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """What the candidate returns, and a copy of it made at once, in stream order."""
        generators = self._runtime.reference.generators
        generators.fix()
        before = state_of(self._runtime.device)
        outputs = tuple(self._runner(self._placed, self._weights))
        self._drew = before, state_of(self._runtime.device)
        if not self._has(Defence.LATE_CHANGES):
            return outputs, outputs
        return outputs, tuple(self._shelve(output).clone() for output in outputs)

    def _attempt(self, call: Callable[[], Answered]) -> Answered:
        try:
            answer = call()
            if self._runtime.device == "cuda":
                torch.cuda.synchronize()
        except Exception as error:
            raise rejection(error) from error
        return answer

    def _shelve(self, value: Shelved) -> Shelved:
        """The value, on the host when the device is short of room."""
        return value.cpu() if self._tight and isinstance(value, Tensor) else value


def _fits(placed: Argument, new: Argument) -> bool:
    if isinstance(placed, Tensor) and isinstance(new, Tensor):
        return placed.stride() == new.stride() and placed.shape == new.shape
    return not isinstance(placed, Tensor) and not isinstance(new, Tensor)


def _on(argument: Argument, device: str) -> Argument:
    return argument.to(device) if isinstance(argument, Tensor) else argument
