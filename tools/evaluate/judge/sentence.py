"""Compares what a candidate left behind with the truth, and keeps the numbers for its verdict."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tools.evaluate.defences import Defence
from tools.evaluate.judge.bench import Bench, Draw, Result, tensors
from tools.evaluate.judge.bits import same_bits
from tools.evaluate.judge.errors import Distance, allclose, distance, wrong_elements
from tools.evaluate.judge.failures import RejectedError
from tools.evaluate.judge.indices import tied
from tools.evaluate.judge.memory import unwritten
from tools.evaluate.judge.reasons import not_written, wrong_values
from tools.evaluate.judge.truth import Argument
from tools.nouns import OutputError, Verdict

_HOPELESS = 1e4  # times PyTorch's error: no lottery explains that
_SHAKES = 2


class Sentence:
    """Collects the findings over all draws of one candidate."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
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
        for number, value in enumerate(got.outputs):
            self._stale(number, value, own.outputs[number], before)
            where = f"output {number} {on}"
            mine, truth = own.outputs[number], right.outputs[number]
            if value.dtype.is_floating_point:
                self._floating(number, where, draw, arguments, value, mine, truth)
            else:
                self._exact(number, where, arguments, value, mine, truth)
        for name, value in got.buffers.items():
            self._buffer(name, on, draw, value, own.buffers[name], right.buffers.get(name))
        self.distributions.append(draw.distribution)
        if self.allclose_1e4 is None:
            self._kernelbench(got.outputs, own.outputs)

    def _stale(self, number: int, got: Tensor, own: Tensor, before: Sequence[Tensor]) -> None:
        if not before or not same_bits(got, before[number]) or _agree(got, own):
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
        draw: Draw,
        arguments: Sequence[Argument],
        got: Tensor,
        own: Tensor,
        truth: Tensor,
    ) -> None:
        bound, chunk = self._bench.rules.error_bound, self._bench.chunk_elements
        found = distance(got, own, truth, chunk, self._bench.rounding)
        if bound < found.ratio < _HOPELESS and got.numel() <= self._bench.rules.few_elements:
            found = self._without_luck(number, found, draw, arguments, own, truth)
        if found.ratio > self._allowed(bound):
            self._reject(where, got, own, truth, found)
        self.errors.append(_error(number, draw, found))

    def _allowed(self, bound: float) -> float:
        """Without the comparison with PyTorch's own error, only what is far off is wrong."""
        return bound if self._bench.rules.has(Defence.ERROR_RATIO) else _HOPELESS

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
        graph, live = self._bench.task.graph, self._bench.reference.weights()
        if not tied(graph, number, got, own, tensors(arguments), live):
            self._reject(where, got, own, truth, None)

    def _buffer(
        self, name: str, on: str, draw: Draw, got: Tensor, own: Tensor, truth: Tensor | None
    ) -> None:
        """A buffer that the forward updates is an output like any other."""
        where = f"buffer {name!r} after the forward {on}"
        right = own.double() if truth is None else truth
        if not got.dtype.is_floating_point:
            if not torch.equal(got, own):
                self._reject(where, got, own, own, None)
            return
        found = distance(got, own, right, self._bench.chunk_elements, self._bench.rounding)
        if found.ratio > self._bench.rules.error_bound:
            self._reject(where, got, own, right, found)
        self.errors.append(_error(-1, draw, found))

    def _reject(
        self, where: str, got: Tensor, own: Tensor, truth: Tensor, found: Distance | None
    ) -> None:
        missing = unwritten(got)
        if missing:
            raise RejectedError(Verdict.NOT_WRITTEN, not_written(where, got, missing))
        bound = self._bench.rules.error_bound
        wrong = wrong_elements(got, own, truth, found, bound)
        words = wrong_values(where, got, truth, wrong, found, bound)
        raise RejectedError(Verdict.WRONG_RESULT, words)

    def _without_luck(
        self,
        number: int,
        found: Distance,
        draw: Draw,
        arguments: Sequence[Argument],
        own: Tensor,
        truth: Tensor,
    ) -> Distance:
        """PyTorch's error on a few elements is one draw of a lottery, so its stake counts too.

        That is how far the truth itself moves when every input is rounded once more.
        """
        norm, worst = found.own_norm, found.own_worst
        for shake in range(_SHAKES):
            shaken = _shaken(arguments, draw.seed + shake)
            moved = self._bench.right(shaken, Result((own,), {})).outputs[number].to(truth.device)
            off = (moved - truth).abs()
            norm = max(norm, float(off.norm()) / max(float(truth.norm()), found.scale))
            worst = max(worst, float((off / (truth.abs() + found.scale)).max()))
        return found.model_copy(update={"own_norm": norm, "own_worst": worst})

    def _kernelbench(self, got: Sequence[Tensor], own: Sequence[Tensor]) -> None:
        """What KernelBench's test would have said, for comparability."""
        chunk = self._bench.chunk_elements

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


def _agree(got: Tensor, own: Tensor) -> bool:
    """Whether two results are close enough that an old answer may be the right new one."""
    own = own.to(got.device)
    if not got.dtype.is_floating_point:
        return torch.equal(got, own)
    return torch.allclose(got, own, rtol=1e-3, atol=1e-6, equal_nan=True)


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
