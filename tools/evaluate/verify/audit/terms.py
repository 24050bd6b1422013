"""Is the reference without one of its terms told from the whole?

Terms are operands of what joins two tensors by adding, subtracting, multiplying or dividing, and
the biases of products and convolutions. Each is left out alone, in float64, under weights that
are no ones and zeros; an answer without it must fail on at least one distribution.
Not covered: single numbers, as an epsilon is one and hardly ever shows; terms after the first few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload

from kernelwright.tools.evaluate.rules import fresh_seed
from kernelwright.tools.evaluate.verify.audit.subject import Sample, Subject
from kernelwright.tools.evaluate.verify.errors import finite
from kernelwright.tools.evaluate.verify.reference_runtime import ReferenceRuntime
from kernelwright.tools.evaluate.verify.roundings import Altered, plain_name
from kernelwright.tools.tasks import DISTRIBUTIONS, applicable
from kernelwright.tools.tasks.graph.decompositions import decompositions
from kernelwright.tools.types import RefusedError

TERMS_MAX = 24
_NOTHING = -1
_NEUTRAL = 1e-10  # of the answer, in float64
_JOINS = ("add", "sub", "mul", "div")
_BIAS_AT = {"addmm": 0, "convolution": 2}
Term = tuple[str, Callable[[], object]]


def idle_terms(
    subject: Subject, runtime: ReferenceRuntime, seed: int, goes_on: Callable[[], bool]
) -> Iterator[str]:
    """What may be left out unnoticed, in words; looked at as long as `goes_on` says."""
    with runtime.other_weights(fresh_seed(seed, "terms")):
        samples = _Samples(subject.afresh(), seed)
        for number in range(TERMS_MAX):
            if not goes_on():
                return
            left_out = _never_missed(samples, number, goes_on)
            if left_out is None:
                return
            if left_out:
                yield left_out


class Without(Altered):  # type: ignore[no-untyped-call]
    """Leaves out one term.

    Args:
        number: which one, counted from 0 in the order of execution.
    """

    def __init__(self, number: int) -> None:
        super().__init__(decompositions())
        self._number = number
        self._seen = 0
        self._operators: dict[str, int] = {}
        self.words = ""

    def alter(
        self, func: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """The result of the operator, or of what is left of it."""
        name = plain_name(func)
        terms = list(_terms(func, args, kwargs))
        if terms:
            self._operators[name] = self._operators.get(name, 0) + 1
        for which, rest in terms:
            self._seen += 1
            if self._seen == self._number + 1:
                self.words = f"{which} of {name} number {self._operators[name]}"
                return rest()
        return func(*args, **kwargs)


def _terms(
    func: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> Iterator[Term]:
    """Words for each term that can be left out, and what is left then."""
    name = plain_name(func)
    in_place = func._schema.is_mutable
    if name in _BIAS_AT and not in_place:
        position = _BIAS_AT[name]
        bias = args[position]
        if isinstance(bias, Tensor) and name == "convolution":
            without = (*args[:position], None, *args[position + 1 :])
            yield "the bias", lambda: func(*without, **kwargs)
        elif isinstance(bias, Tensor) and not kwargs:
            yield "the bias", lambda: torch.ops.aten.mm.default(*args[1:3])
    if name not in _JOINS or len(args) < 2 or kwargs or len(args) > 2:
        return
    first, second = args
    if not (_is_term(first) and _is_term(second)):
        return
    assert isinstance(first, Tensor)
    assert isinstance(second, Tensor)
    shape = torch.broadcast_shapes(first.shape, second.shape)  # type: ignore[no-untyped-call]
    if first.shape == shape:
        yield "the second operand", lambda: first if in_place else first.clone()
    if second.shape == shape and not in_place and name != "div":
        yield "the first operand", lambda: -second if name == "sub" else second.clone()


def _is_term(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 1


class _Whole(NamedTuple):
    """A draw, and what the smaller operators make of it with nothing left out."""

    sample: Sample
    answer: tuple[Tensor, ...]


class _Samples:
    """Draws of every distribution that suits the task, each made when it is first asked for."""

    def __init__(self, subject: Subject, seed: int) -> None:
        self.subject = subject
        self._seed = seed
        self._made: dict[str, _Whole | None] = {}
        self._names = [name for name in DISTRIBUTIONS if applicable(subject.task, name)]

    def __iter__(self) -> Iterator[_Whole]:
        for name in self._names:
            if name not in self._made:
                self._made[name] = self._draw(name)
            made = self._made[name]
            if made is not None:
                yield made

    def _draw(self, name: str) -> _Whole | None:
        """None where PyTorch has no answer that a candidate could be held against."""
        try:
            sample = self.subject.sample(name, fresh_seed(self._seed, "terms", name))
        except RefusedError:
            return None
        if not all(map(finite, sample.own)):
            return None
        return _Whole(sample, self.subject.altered(sample.arguments, Without(_NOTHING)))


def _never_missed(samples: _Samples, number: int, goes_on: Callable[[], bool]) -> str | None:
    """Words for the term when every draw passes without it, "" when not; None for no such term.

    None also where there was no time for every distribution: then nothing is known.

    What changes nothing in float64 feeds a buffer alone, or may honestly be left out, as a maximum
    that is subtracted for safety where nothing overflows.
    """
    words, matters = "", False
    for sample, whole in samples:
        if not goes_on():
            return None
        without = Without(number)
        answer = samples.subject.altered(sample.arguments, without)
        if not without.words:
            return None
        words = without.words
        matters |= not all(map(_same, answer, whole))
        if not samples.subject.passes(_as(answer, sample.own), sample):
            return ""
    return words if matters else ""


def _same(answer: Tensor, whole: Tensor) -> bool:
    if not answer.is_floating_point():
        return torch.equal(answer, whole)
    return float((answer - whole).norm()) <= _NEUTRAL * float(whole.norm())


def _as(answer: Sequence[Tensor], own: Sequence[Tensor]) -> list[Tensor]:
    return [value.to(like.dtype) for value, like in zip(answer, own, strict=True)]
