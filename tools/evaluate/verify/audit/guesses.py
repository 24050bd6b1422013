"""Can the answer be given without looking at the inputs?

Two guesses are tried. One number for every draw and every distribution: the task is constant. The
mean over other draws of the task's own inputs, element by element: such a task can be learnt by
heart, as a loss over a million uniform numbers can, whose expectation is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kernelwright.tools.evaluate.seeds import fresh_seed
from kernelwright.tools.evaluate.verify.audit.subject import Sample, Subject
from kernelwright.tools.evaluate.verify.bench import tensors
from kernelwright.tools.tasks import applicable
from kernelwright.tools.types import Badge, Doubt

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
