"""Compares what a candidate left behind with the truth, and keeps the numbers for its verdict.

`ResultComparator` holds a candidate's error against PyTorch's own on the same draw.
What that is too little for is allowed by `RoundingTolerance`, which is asked only for a candidate
that would be rejected without.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernelwright.tools.evaluate.rules import Defence
from kernelwright.tools.evaluate.verify.bits import same_bits
from kernelwright.tools.evaluate.verify.errors import (
    TOLD_APART,
    Distance,
    allclose,
    distance,
    wrong_elements,
)
from kernelwright.tools.evaluate.verify.memory import unwritten
from kernelwright.tools.evaluate.verify.positions import as_good, searched
from kernelwright.tools.evaluate.verify.precision import AS_TURNED
from kernelwright.tools.evaluate.verify.reasons import RejectedError, not_written, wrong_values
from kernelwright.tools.evaluate.verify.reference_runtime import (
    Draw,
    ReferenceRuntime,
    Result,
    tensors,
)
from kernelwright.tools.evaluate.verify.rounding_tolerance import RoundingTolerance, at, few
from kernelwright.tools.evaluate.verify.truth import Argument, UnverifiableError
from kernelwright.tools.types import OutputError, Verdict

_HOPELESS = 1e4  # times PyTorch's error: no lottery explains that
_OWN_VALUES = ("task", "timed")
_NO_ROUNDING = 0.1  # of the answer in the norm: roundings do not add up to that


class ResultComparator:
    """Holds a candidate's results against the truth, and collects errors over all draws.

    Attributes:
        coarser: whether it passed beside PyTorch's own result with channels last alone.
        undecided: how many elements were left out, as roundings decide what they are.
    """

    def __init__(self, runtime: ReferenceRuntime) -> None:
        self._runtime = runtime
        self.coarser = False
        self.undecided = 0
        self.errors: list[OutputError] = []
        self.distributions: list[str] = []
        self.allclose_1e4: bool | None = None
        self.allclose_1e2: bool | None = None

    @property
    def error_ratio(self) -> float | None:
        """The worst ratio over all outputs and draws; None when no output is floating."""
        return max((error.error_ratio for error in self.errors), default=None)

    @property
    def beside(self) -> str:
        """What being right rests on besides the bound, to be added to a sentence."""
        words = AS_TURNED if self.coarser else ""
        if self.undecided:
            words += f"; elements left out, as roundings decide what they are: {self.undecided}"
        return words

    def judge(
        self,
        draw: Draw,
        arguments: Sequence[Argument],
        got: Result,
        own: Result,
        right: Result,
        *,
        before: Sequence[Tensor],
    ) -> None:
        """Judge one draw.

        Args:
            draw: which inputs.
            arguments: those inputs, unchanged.
            got: the candidate's result.
            own: PyTorch's in the task's types.
            right: the float64 truth.
            before: the candidate's outputs on the draw before, in the same memory.

        Raises:
            RejectedError: the result is wrong, unwritten or left over from the draw before.
        """
        on = f"on inputs drawn from {draw.distribution!r}"
        tolerance = RoundingTolerance(self._runtime, draw, arguments, own, right)
        for number, value in enumerate(got.outputs):
            where = f"output {number} {on}"
            mine, truth = own.outputs[number], right.outputs[number]
            try:
                if value.dtype.is_floating_point:
                    self._floating(number, where, tolerance, value, mine, truth)
                else:
                    self._exact(number, where, arguments, value, mine, truth)
            except RejectedError:
                self._stale(number, value, before)
                raise
        for name, value in got.buffers.items():
            self._buffer(name, on, tolerance, value, own.buffers[name], right.buffers.get(name))
        self.distributions.append(draw.distribution)
        if self.allclose_1e4 is None:
            self._kernelbench(got.outputs, own.outputs)

    def _stale(self, number: int, got: Tensor, before: Sequence[Tensor]) -> None:
        """A better reason for a wrong answer that is the last one, bit for bit."""
        if not before or not same_bits(got, before[number]):
            return
        raise RejectedError(
            Verdict.STALE_RESULT,
            f"output {number} is the answer to the values that were in the same memory before: "
            "a result is kept between calls",
        )

    def _floating(
        self,
        number: int,
        where: str,
        tolerance: RoundingTolerance,
        got: Tensor,
        own: Tensor,
        truth: Tensor,
    ) -> None:
        found = distance(got, own, truth, self._runtime.chunk_elements, self._runtime.rounding)
        bound = self._bound(tolerance.draw, number, found)
        if found.ratio > bound:
            turned = tolerance.turned(found, truth, number)
            found = self._as_turned(found, turned, self._bound(tolerance.draw, number, turned))
            bound = self._bound(tolerance.draw, number, found)
        if found.ratio > bound and _may_be_luck(found):
            found = tolerance.taken_out(found, truth, number)
            bound = self._bound(tolerance.draw, number, found)
        if found.ratio > self._allowed(bound) and not found.misplaced:
            found = self._decided(number, tolerance, got, own, truth, found, bound)
        if found.ratio > self._allowed(bound):
            self._reject(where, got, own, truth, found, bound)
        self.errors.append(_error(number, tolerance.draw, found))

    def _decided(
        self,
        number: int,
        tolerance: RoundingTolerance,
        got: Tensor,
        own: Tensor,
        truth: Tensor,
        found: Distance,
        bound: float,
    ) -> Distance:
        """The distance without the elements beyond the bound, where roundings decide all of them.

        However far off they are: a tie that changed hands is off by its whole value.
        """
        chunk = self._runtime.chunk_elements
        wrong = few(wrong_elements(got, own, truth, found, bound, chunk))
        if wrong is None:
            return found
        there = at(truth, wrong)
        usual = bound * max(found.own_worst, found.rounding) * (there.abs() + found.scale)
        if not tolerance.decides(wrong, at(got, wrong), there, usual, number):
            return found
        self.undecided += len(wrong)
        settled = got.flatten().index_copy(0, wrong, there.to(got.dtype)).view_as(got)
        again = distance(settled, own, truth, chunk, self._runtime.rounding)
        widened = {"own_norm": found.own_norm, "own_worst": found.own_worst}
        return again.model_copy(update=widened)

    def _as_turned(self, found: Distance, turned: Distance, bound: float) -> Distance:
        """The distance beside PyTorch's other layout, where that excuses it, which is kept."""
        excused = turned.ratio <= bound
        self.coarser = self.coarser or excused
        return turned if excused else found

    def _bound(self, draw: Draw, number: int, found: Distance) -> float:
        """The usual bound, or a nearer one where an answer without work comes close to that.

        Only on values as the task draws them: on others an answer may well be nearly constant.
        """
        usual = self._runtime.rules.error_bound
        asked = draw.distribution in _OWN_VALUES and self._runtime.rules.has(Defence.NULLS)
        if not asked or found.ratio <= TOLD_APART**0.5:
            return usual
        try:
            return self._runtime.nulls.bound(number, found, usual)
        except UnverifiableError:
            return usual

    def _allowed(self, bound: float) -> float:
        """Without the comparison with PyTorch's own error, only what is far off is wrong."""
        return bound if self._runtime.rules.has(Defence.ERROR_RATIO) else _HOPELESS

    def _exact(
        self,
        number: int,
        where: str,
        arguments: Sequence[Argument],
        got: Tensor,
        own: Tensor,
        truth: Tensor,
    ) -> None:
        """Integers and truth values: as PyTorch has them, or the truth, or another position."""
        wrong = wrong_elements(got, own, truth, None, 0.0, self._runtime.chunk_elements)
        found = searched(self._runtime.task.graph, number) if bool(wrong.any()) else None
        if found is not None:
            wrong &= ~as_good(
                self._runtime.task.graph,
                found,
                got,
                truth,
                tensors(arguments),
                self._runtime.reference.weights(),
                bound=self._runtime.rules.error_bound,
                chunk_elements=self._runtime.chunk_elements,
                rounding=self._runtime.rounding,
            )
        if bool(wrong.any()):
            self._reject(where, got, own, truth, None, 0.0, wrong)

    def _buffer(
        self,
        name: str,
        on: str,
        tolerance: RoundingTolerance,
        got: Tensor,
        own: Tensor,
        truth: Tensor | None,
    ) -> None:
        """A buffer that the forward updates is an output like any other."""
        where = f"buffer {name!r} after the forward {on}"
        right = own.double() if truth is None else truth
        if not got.dtype.is_floating_point:
            if not torch.equal(got, own):
                self._reject(where, got, own, own, None, 0.0)
            return
        found = distance(got, own, right, self._runtime.chunk_elements, self._runtime.rounding)
        bound = self._runtime.rules.error_bound
        if found.ratio > bound:
            found = self._as_turned(found, tolerance.turned(found, right, name), bound)
        if found.ratio > bound and _may_be_luck(found):
            found = tolerance.taken_out(found, right, name)
        if found.ratio > bound:
            self._reject(where, got, own, right, found, bound)
        self.errors.append(_error(-1, tolerance.draw, found))

    def _reject(
        self,
        where: str,
        got: Tensor,
        own: Tensor,
        truth: Tensor,
        found: Distance | None,
        bound: float,
        wrong: Tensor | None = None,
    ) -> None:
        missing = unwritten(got)
        if missing:
            raise RejectedError(Verdict.NOT_WRITTEN, not_written(where, got, missing))
        if wrong is None:
            wrong = wrong_elements(got, own, truth, found, bound, self._runtime.chunk_elements)
        words = wrong_values(where, got, truth, wrong, found, bound)
        if found is not None and bound < self._runtime.rules.error_bound:
            words += "; more is not allowed, as an answer without work comes near to that"
        raise RejectedError(Verdict.WRONG_RESULT, words)

    def _kernelbench(self, got: Sequence[Tensor], own: Sequence[Tensor]) -> None:
        """What KernelBench's test would have said, for comparability."""
        chunk = self._runtime.chunk_elements

        def close(tolerance: float) -> bool:
            return all(allclose(g, o, tolerance, chunk) for g, o in zip(got, own, strict=True))

        self.allclose_1e4 = close(1e-4)
        self.allclose_1e2 = self.allclose_1e4 or close(1e-2)


def _error(number: int, draw: Draw, found: Distance) -> OutputError:
    return OutputError(
        output=number,
        distribution=draw.distribution,
        error=found.norm,
        reference_error=found.own_norm,
        error_ratio=found.ratio,
        worst_index=found.worst_index,
        worst_got=found.worst_got,
        worst_expected=found.worst_expected,
    )


def _may_be_luck(found: Distance) -> bool:
    """Whether it pays to ask what luck PyTorch had; most wrong results are too wrong for that."""
    if found.misplaced:
        return False
    no_digits = found.own_norm > 1 / _HOPELESS  # as where the truth is 0 but for rounding
    exact = max(found.own_norm, found.own_worst) <= found.rounding
    return found.ratio < _HOPELESS or no_digits or (exact and found.norm < _NO_ROUNDING)
