"""Whether an answer can be guessed, and whether it depends on every input and parameter.

Two guesses are tried, neither of which looks at the inputs. One number for every draw and every
distribution: the task is constant. The mean over other draws of the task's own inputs, element by
element: such a task can be learnt by heart, as a loss over a million uniform numbers can, whose
expectation is known.

Each input and each parameter is replaced alone, and the new answer is handed in as one to the old
question: where the judge takes it, that input or parameter does not matter within the bound.
Nothing is claimed before several draws of two distributions agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from kernelwright.tools.evaluate.rules import fresh_seed
from kernelwright.tools.evaluate.verify.audit.subject import Sample, Subject
from kernelwright.tools.evaluate.verify.reference_runtime import tensors
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.tasks import Reference, applicable
from kernelwright.tools.types import Badge, Doubt, RefusedError

# KernelBench's tolerances: what a guess has to keep to in single and in half precision.
TIGHT, LOOSE = 1e-4, 1e-2
FEW = 1024  # outputs this small are held to the loose one: a constant is cheap to print
DRAWS = 5
_MANY_DRAWS = 12  # of outputs so few that their spread is taken instead of a worst element
_NOTHING = 1e-12  # what rounding leaves of a zero
_ELSEWHERE = ("normal", "large_offset")


def constant(subject: Subject, first: Sample, seed: int) -> Badge | None:
    """A badge where one number is the answer to every draw of every distribution."""
    if not all(own.dtype.is_floating_point for own in first.own):
        return None
    numbers = [float(right.double().mean()) for right in first.right]
    if not subject.passes(_filled(first, numbers), first):
        return None
    others = [d for d in _ELSEWHERE if applicable(subject.task, d)]
    for number, distribution in enumerate(("task", *others)):
        sample = subject.sample(distribution, fresh_seed(seed, "constant", number))
        if not subject.passes(_filled(sample, numbers), sample):
            return None
    if not _constant_for_other_weights(subject, seed):
        return None
    told = ", ".join(f"{number:.6g}" if abs(number) > _NOTHING else "0" for number in numbers)
    reason = (
        f"{told} is within the judge's bound everywhere, on {2 + len(others)} draws of "
        f"{1 + len(others)} distributions of the inputs{_at(subject)}; other weights give one "
        "number as well"
    )
    return Badge(name=Doubt.CONSTANT, reason=reason)


def _constant_for_other_weights(subject: Subject, seed: int) -> bool:
    """Whether the output is one number, perhaps another, once the weights are drawn anew."""
    other = subject.with_other_weights(fresh_seed(seed, "other weights"))
    sample = other.sample("task", fresh_seed(seed, "constant", "other"))
    return other.passes(_filled(sample, [float(r.double().mean()) for r in sample.right]), sample)


def exploitable(subject: Subject, first: Sample, seed: int) -> Badge | None:
    """A badge where other draws of the task's own inputs give this one's answer away."""
    if not all(own.dtype.is_floating_point and own.numel() for own in first.own):
        return None
    few = max(spec.numel for spec in subject.whole.outputs) <= FEW
    draws = _draws(subject, first, _MANY_DRAWS if few else DRAWS - 1, seed)
    if draws is None:
        reason = "its get_inputs gives the same values under every seed"
        return Badge(name=Doubt.EXPLOITABLE, reason=reason)
    spread = _spread_of_few(draws) if few else _worst_miss(draws, first)
    factor, words = _scaled(subject, first) if few else (1.0, _at(subject))
    miss = 3.0 * spread * factor if few else spread
    if not miss <= (LOOSE if few or _is_half(first) else TIGHT):
        return None
    guess = "their mean" if few else "the mean of the others, element by element,"
    allowed = f"{TIGHT:g} and {LOOSE:g}" if miss <= TIGHT else f"{LOOSE:g}, but not {TIGHT:g}"
    reason = (
        f"{len(draws)} draws of its inputs give so much the same answer that {guess} misses by "
        f"at most {miss:.2g} of the answer: within KernelBench's {allowed}{words}; so it is "
        "judged on other distributions too"
    )
    return Badge(name=Doubt.EXPLOITABLE, reason=reason)


class _Draw(NamedTuple):
    outputs: tuple[Tensor, ...]


def _draws(subject: Subject, first: Sample, count: int, seed: int) -> list[_Draw] | None:
    """Answers to fresh draws; None where every draw is the same."""
    found: list[_Draw] = []
    differ = False
    for number in range(count):
        arguments = subject.arguments("task", fresh_seed(seed, "spread", number))
        if not differ:
            differ = any(
                isinstance(new, Tensor) and isinstance(old, Tensor) and not torch.equal(new, old)
                for new, old in zip(arguments, first.arguments, strict=True)
            )
            if not differ:
                return None
        found.append(_Draw(tuple(t.detach().clone() for t in subject.own(arguments))))
    return found


def _spread_of_few(draws: Sequence[_Draw]) -> float:
    """The largest standard deviation over draws, as a fraction of the mean size."""
    worst = 0.0
    for position in range(len(draws[0].outputs)):
        values = torch.stack([draw.outputs[position].double() for draw in draws])
        size = float(values.mean(0).abs().mean())
        deviation = float(values.std(0, correction=1).max())
        worst = max(worst, deviation / size if size > 0 else math.inf)
    return worst if math.isfinite(worst) else math.inf


def _worst_miss(draws: Sequence[_Draw], held_out: Sample) -> float:
    """How far the mean of the draws is from one that it does not know, at the worst element."""
    worst = 0.0
    for position, own in enumerate(held_out.own):
        guess = torch.zeros_like(own, dtype=torch.float32)
        for draw in draws:
            guess += draw.outputs[position]
        off = (guess / len(draws) - own).abs_()
        size = own.abs().float()
        missed = float((off / (size + size.mean())).max())
        worst = max(worst, missed if math.isfinite(missed) else math.inf)
    return worst


def _scaled(subject: Subject, sample: Sample) -> tuple[float, str]:
    """From a smaller version's spread to the whole task's: it falls with the root of the size.

    Only where the output is as small in both: then it sums over what was cut. The size is that of
    the input that was cut least, as the answer may vary with that one alone.
    """
    if subject.is_whole:
        return 1.0, ""
    whole = [spec.tensor.numel for spec in subject.whole.inputs if spec.tensor]
    if [own.numel() for own in sample.own] != [spec.numel for spec in subject.whole.outputs]:
        return 1.0, _at(subject)
    cut = [tensor.numel() for tensor in tensors(sample.arguments)]
    ratio = max((few / many for few, many in zip(cut, whole, strict=True)), default=1.0)
    return math.sqrt(ratio), f" (measured with {subject.words}, scaled by the root of the size)"


def _filled(sample: Sample, numbers: Sequence[float]) -> list[Tensor]:
    return [torch.full_like(own, n) for own, n in zip(sample.own, numbers, strict=True)]


def _is_half(sample: Sample) -> bool:
    return all(own.dtype in (torch.float16, torch.bfloat16) for own in sample.own)


def _at(subject: Subject) -> str:
    return "" if subject.is_whole else f" (measured with {subject.words})"


CONFIRMATIONS = 3


def idle_inputs(subject: Subject, first: Sample, seed: int) -> Iterator[str]:
    """Names of the inputs that may be anything."""
    for position, spec in enumerate(subject.task.inputs):
        if isinstance(first.arguments[position], Tensor):
            changed = _InputChanged(subject, position, seed)
            if _never_matters(subject, first, changed, seed):
                yield spec.name


def idle_parameters(
    subject: Subject, reference: Reference, first: Sample, seed: int, goes_on: Callable[[], bool]
) -> Iterator[str]:
    """Names of the parameters that may be anything; looked at as long as `goes_on` says."""
    for name, parameter in reference.module.named_parameters():
        if not goes_on():
            return
        if parameter.dtype.is_floating_point:
            changed = _ParameterChanged(subject, parameter.data, seed)
            if _never_matters(subject, first, changed, seed):
                yield name


def insensitive(inputs: Sequence[str], parameters: Sequence[str], words: str) -> Badge | None:
    """The badge, or None where everything matters."""
    told = [f"input {name}" for name in inputs] + [f"parameter {name}" for name in parameters]
    if not told:
        return None
    reason = (
        f"the output stays within the judge's bound whatever {', '.join(told)} "
        f"{'is' if len(told) == 1 else 'are'} ({CONFIRMATIONS} draws{words})"
    )
    return Badge(name=Doubt.INSENSITIVE, reason=reason)


class _InputChanged:
    """The outputs of a draw after one input was drawn anew."""

    def __init__(self, subject: Subject, position: int, seed: int) -> None:
        self._subject = subject
        self._position = position
        self._seed = seed

    def __call__(self, sample: Sample, number: int) -> tuple[Tensor, ...] | None:
        """None where no other value could be drawn."""
        old = sample.arguments[self._position]
        for distribution in ("normal", "task") if number % 2 else ("task", "normal"):
            if not applicable(self._subject.task, distribution):
                continue
            seed = fresh_seed(self._seed, "another", self._position, number)
            new = self._subject.arguments(distribution, seed)[self._position]
            if not _equal(old, new):
                arguments = list(sample.arguments)
                arguments[self._position] = new
                return self._subject.own(arguments)
        return None


class _ParameterChanged:
    """The outputs of a draw with one parameter changed; it is put back at once."""

    def __init__(self, subject: Subject, parameter: Tensor, seed: int) -> None:
        self._subject = subject
        self._parameter = parameter
        self._seed = seed

    def __call__(self, sample: Sample, number: int) -> tuple[Tensor, ...] | None:
        """Every element times something in [0.5, 1.5]; zeros become something in [0.1, 0.6]."""
        with _changed(self._parameter, fresh_seed(self._seed, "parameter", number)):
            return self._subject.own(sample.arguments)


Change = Callable[[Sample, int], tuple[Tensor, ...] | None]


def _never_matters(subject: Subject, first: Sample, change: Change, seed: int) -> bool:
    """Whether the judge takes the changed answer for every draw; the first "no" decides."""
    for number in range(CONFIRMATIONS):
        elsewhere = number == 1 and applicable(subject.task, "normal")
        distribution = "normal" if elsewhere else "task"
        try:
            again = fresh_seed(seed, "again", number)
            sample = first if number == 0 else subject.sample(distribution, again)
            changed = change(sample, number)
        except RefusedError:
            return False
        if changed is None or not subject.passes(changed, sample):
            return False
    return True


@contextmanager
def _changed(parameter: Tensor, seed: int) -> Iterator[None]:
    generator = torch.Generator(parameter.device)
    generator.manual_seed(seed)
    kept = parameter.clone()
    noise = torch.rand(
        parameter.shape, dtype=torch.float32, generator=generator, device=parameter.device
    ).to(parameter.dtype)
    parameter.copy_(torch.where(kept == 0, 0.1 + 0.5 * noise, kept * (0.5 + noise)))
    try:
        yield
    finally:
        parameter.copy_(kept)


def _equal(old: Argument, new: Argument) -> bool:
    if isinstance(old, Tensor) and isinstance(new, Tensor):
        return old.shape != new.shape or torch.equal(old, new)
    return True
