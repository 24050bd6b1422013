"""Compares what a candidate left behind with the truth, and keeps the numbers for its verdict.

`ResultComparator` holds a candidate's error against PyTorch's own on the same draw.
`RoundingTolerance` widens what is allowed where PyTorch's own error is there by chance next to
nothing: the mean of equal numbers may come out exact in one order of adding and not in another.
Then it counts as well how far the truth moves when every step to it is rounded, and for a few
elements every input. What PyTorch's own result with channels last is off by counts too, where the
library may be coarser there (see `precision`). All of it is computed only for a candidate that
would be rejected without.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from kernelwright.tools.evaluate.rules import Defence
from kernelwright.tools.evaluate.verify.bits import same_bits, tied
from kernelwright.tools.evaluate.verify.errors import (
    TOLD_APART,
    Distance,
    allclose,
    distance,
    wrong_elements,
)
from kernelwright.tools.evaluate.verify.memory import unwritten
from kernelwright.tools.evaluate.verify.reasons import RejectedError, not_written, wrong_values
from kernelwright.tools.evaluate.verify.reference_runtime import (
    Draw,
    ReferenceRuntime,
    Result,
    tensors,
)
from kernelwright.tools.evaluate.verify.truth import Argument, UnverifiableError
from kernelwright.tools.types import OutputError, Verdict

_SHAKES = 2


class RoundingTolerance:
    """What a result may be off by on one draw, where PyTorch's own error is next to nothing.

    Args:
        runtime: the task.
        draw: which inputs; its seed is that of the noise.
        arguments: those inputs.
        own: PyTorch's result.
        right: the truth.
    """

    def __init__(
        self,
        runtime: ReferenceRuntime,
        draw: Draw,
        arguments: Sequence[Argument],
        own: Result,
        right: Result,
    ) -> None:
        self._runtime = runtime
        self.draw = draw
        self._arguments = arguments
        self._own = own
        self._right = right

    def taken_out(self, found: Distance, truth: Tensor, which: int | str) -> Distance:
        """The distance with a yardstick that is no shorter than the stake.

        Args:
            found: of the candidate's result.
            truth: what that is held against.
            which: the number of an output or the name of a buffer.
        """
        moved = [_part(result, which) for result in self._rounded]
        if truth.numel() <= self._runtime.rules.few_elements:
            moved += [_part(result, which) for result in self._shaken]
        norm, worst = found.own_norm, found.own_worst
        for other in moved:
            if other is None:
                continue
            far = _apart(other, truth, found.scale, self._runtime.chunk_elements)
            norm, worst = max(norm, far[0]), max(worst, far[1])
        return found.model_copy(update={"own_norm": norm, "own_worst": worst})

    def turned(self, found: Distance, truth: Tensor, which: int | str) -> Distance:
        """The distance beside PyTorch's own result with channels last, where that is further off.

        Args:
            found: of the candidate's result.
            truth: what that is held against.
            which: the number of an output or the name of a buffer.
        """
        other = None if self._turned is None else _part(self._turned, which)
        if other is None or found.misplaced:
            return found
        far = _apart(other, truth, found.scale, self._runtime.chunk_elements)
        norm, worst = max(found.own_norm, far[0]), max(found.own_worst, far[1])
        return found.model_copy(update={"own_norm": norm, "own_worst": worst})

    @cached_property
    def _turned(self) -> Result | None:
        return self._runtime.own_turned(self._arguments)

    @cached_property
    def _rounded(self) -> list[Result]:
        seeds = range(self.draw.seed, self.draw.seed + _SHAKES)
        found = [self._runtime.rounded(self._arguments, seed) for seed in seeds]
        return [result for result in found if result is not None]

    @cached_property
    def _shaken(self) -> list[Result]:
        seeds = range(self.draw.seed, self.draw.seed + _SHAKES)
        shaken = (_shaken(self._arguments, seed) for seed in seeds)
        return [self._runtime.right(arguments, self._own) for arguments in shaken]


def _apart(other: Tensor, truth: Tensor, scale: float, chunk_elements: int) -> tuple[float, float]:
    """How far two results are apart, in the norm and at the worst element, in small steps."""
    flat, right = other.reshape(-1), truth.reshape(-1)
    squares = torch.zeros(2, dtype=torch.float64, device=truth.device)
    worst = torch.zeros((), dtype=torch.float64, device=truth.device)
    for start in range(0, right.numel(), chunk_elements):
        t = right[start : start + chunk_elements]
        off = (flat[start : start + chunk_elements].to(t.device) - t).abs()
        off = torch.where(torch.isfinite(off), off, 0.0)
        size = torch.where(torch.isfinite(t), t, 0.0)
        squares += torch.stack((off.square().sum(), size.square().sum()))
        worst = torch.maximum(worst, (off / (size.abs() + scale)).max())
    off_norm, size_norm = squares.sqrt().tolist()
    return off_norm / max(size_norm, scale), float(worst)


def _part(result: Result, which: int | str) -> Tensor | None:
    return result.outputs[which] if isinstance(which, int) else result.buffers.get(which)


def _shaken(arguments: Sequence[Argument], seed: int) -> list[Argument]:
    """Every floating input rounded once more, at random, in float64."""
    shaken: list[Argument] = []
    for argument in arguments:
        if isinstance(argument, Tensor) and argument.is_floating_point():
            source = torch.Generator(argument.device).manual_seed(seed)
            noise = torch.rand(argument.shape, generator=source, device=argument.device)
            unit = torch.finfo(argument.dtype).eps / 2
            shaken.append(argument.double() * (1.0 + unit * (2.0 * noise.double() - 1.0)))
        else:
            shaken.append(argument)
    return shaken


_HOPELESS = 1e4  # times PyTorch's error: no lottery explains that
_OWN_VALUES = ("task", "timed")
_NO_ROUNDING = 0.1  # of the answer in the norm: roundings do not add up to that


class ResultComparator:
    """Holds a candidate's results against the truth, and collects errors over all draws.

    Attributes:
        coarser: whether it passed beside PyTorch's own result with channels last alone.
    """

    def __init__(self, runtime: ReferenceRuntime) -> None:
        self._runtime = runtime
        self.coarser = False
        self.errors: list[OutputError] = []
        self.distributions: list[str] = []
        self.allclose_1e4: bool | None = None
        self.allclose_1e2: bool | None = None

    @property
    def error_ratio(self) -> float | None:
        """The worst ratio over all outputs and draws; None when no output is floating."""
        return max((error.error_ratio for error in self.errors), default=None)

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
        if found.ratio > self._allowed(bound):
            self._reject(where, got, own, truth, found, bound)
        self.errors.append(_error(number, tolerance.draw, found))

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
        own, truth = own.to(got.device), truth.to(got.device)
        if bool(((got == own) | (got == truth)).all()):
            return
        graph, live = self._runtime.task.graph, self._runtime.reference.weights()
        if not tied(graph, number, got, own, tensors(arguments), live):
            self._reject(where, got, own, truth, None, 0.0)

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
    ) -> None:
        missing = unwritten(got)
        if missing:
            raise RejectedError(Verdict.NOT_WRITTEN, not_written(where, got, missing))
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
