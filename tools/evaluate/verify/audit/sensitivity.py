"""Does the output depend on every input and on every parameter?

Each is replaced alone, and the new answer is handed in as one to the old question: where the
judge takes it, that input or parameter does not matter within the bound. Nothing is claimed
before several draws of two distributions agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from kernelwright.tools.evaluate.seeds import fresh_seed
from kernelwright.tools.evaluate.verify.audit.subject import Sample, Subject
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.tasks import Reference, RefusedError, applicable
from kernelwright.tools.types import Badge, Doubt

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
