"""Runs the experiments within a limit of time and gathers their badges."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from kernelwright.tools.evaluate.rules import fresh_seed
from kernelwright.tools.evaluate.verify.audit.guesses import (
    constant,
    exploitable,
    idle_inputs,
    idle_parameters,
    insensitive,
)
from kernelwright.tools.evaluate.verify.audit.subject import Sample, Subject, subject_of
from kernelwright.tools.evaluate.verify.audit.terms import idle_terms
from kernelwright.tools.evaluate.verify.errors import passing_nulls
from kernelwright.tools.evaluate.verify.reference_runtime import ReferenceRuntime, tensors
from kernelwright.tools.evaluate.verify.truth import UnverifiableError, small_steps
from kernelwright.tools.types import Badge, Doubt, RefusedError, Task

# Drawing, truth and comparing take several times a forward, and some twenty draws are made.
_FORWARDS = 300
# A first draw that took longer than this part of the audit is one of too large a version.
_FIRST_SHARE = 0.15
_TRIES = 3
# What the experiments have of its time, however long it took to find a version that is small.
_LEAST_SHARE = 0.5


Experiment = Callable[[Subject, Sample, int], Badge | None]


class Findings(NamedTuple):
    """Badges, and notes on what was left out."""

    badges: tuple[Badge, ...]
    notes: tuple[str, ...] = ()


def find(runtime: ReferenceRuntime) -> Findings:
    """The measured badges of a task.

    Raises:
        RefusedError: the user's code fails on the task's own inputs.
    """
    limit_s = runtime.rules.audit_s
    try:
        subject, first, spent_s = _affordable(runtime, limit_s)
    except UnverifiableError as error:
        return Findings((), (f"the audit's experiments were left out: {error}",))
    left_s = max(limit_s - spent_s, _LEAST_SHARE * limit_s)
    with small_steps():
        return _Experiments(runtime, subject, first, time.monotonic() + left_s).run()


def _affordable(runtime: ReferenceRuntime, limit_s: float) -> tuple[Subject, Sample, float]:
    """A version of the task that is quick enough, a first draw of it, and the seconds it took.

    The very first draw costs what is never paid again: a GPU's libraries are opened, kernels are
    loaded. That is no part of the audit's time, and where it took long there the same version is
    drawn once more before a smaller one is made.
    """
    estimated_s = forward_s(runtime)
    per_forward_s, began = limit_s / _FORWARDS, 0.0
    for tries_left in reversed(range(_TRIES)):
        subject = subject_of(runtime, estimated_s, per_forward_s)
        if subject is None:
            break
        first, taken = _timed(subject, runtime)
        if not began:
            began = time.monotonic()
            if runtime.device == "cuda" and _FIRST_SHARE * limit_s < taken <= limit_s:
                first, taken = _timed(subject, runtime)
        if taken <= _FIRST_SHARE * limit_s or not tries_left:
            return subject, first, time.monotonic() - began
        # The device is slower than its figures: other work on it, or an operator of a slow kind.
        slower = taken / (_FIRST_SHARE * limit_s)
        per_forward_s = min(per_forward_s, estimated_s) / slower / 2
    raise UnverifiableError("no version of it that is small enough to try things out on runs")


def _timed(subject: Subject, runtime: ReferenceRuntime) -> tuple[Sample, float]:
    """A draw and the seconds that it took on the device."""
    start = time.monotonic()
    sample = subject.sample("task", fresh_seed(runtime.seed, "nulls"))
    if runtime.device == "cuda":
        torch.cuda.synchronize()  # what was issued is not what it costs
    return sample, time.monotonic() - start


class _Experiments:
    """All of them on one subject, as long as there is time."""

    def __init__(
        self, runtime: ReferenceRuntime, subject: Subject, first: Sample, until: float
    ) -> None:
        self._runtime = runtime
        self._subject = subject
        self._first = first
        self._until = until
        self._seed = runtime.seed
        self._skipped: list[str] = []

    def run(self) -> Findings:
        """Badges in the order of how much they say."""
        task, first = self._runtime.task, self._first
        badges: list[Badge] = []
        settled = _has(task, Doubt.CONSTANT) or _has(task, Doubt.VOID)
        if not settled and (found := self._attempt(constant)) is not None:
            badges.append(found)
            settled = True
        if settled:
            return Findings(tuple(badges), self._notes())
        if (found := self._attempt(exploitable)) is not None:
            badges.append(found)
        if (found := self._insensitive()) is not None:
            badges.append(found)
        for words in passing_nulls(
            first.own, first.right, tensors(first.arguments), self._runtime.chunk_elements
        ):
            badges.append(Badge(name=Doubt.NULL_PASSES, reason=words))
        badges += self._idle_terms()
        return Findings(tuple(badges), self._notes())

    def _attempt(self, experiment: Experiment) -> Badge | None:
        """One experiment; where the user's code refuses its inputs, it tells nothing."""
        try:
            return experiment(self._subject, self._first, self._seed)
        except (RefusedError, UnverifiableError):
            return None

    def _insensitive(self) -> Badge | None:
        subject, first, seed = self._subject, self._first, self._seed
        unused = {badge.reason for badge in self._runtime.task.badges}
        inputs = [
            name
            for name in idle_inputs(subject, first, seed)
            if f"the forward does not use {name}" not in unused
        ]
        reference = self._runtime.reference
        parameters = list(idle_parameters(subject, reference, first, seed, self._goes_on))
        words = "" if subject.is_whole else f", measured with {subject.words}"
        return insensitive(inputs, parameters, words)

    def _idle_terms(self) -> list[Badge]:
        """One badge for all terms that may be left out."""
        try:
            terms = list(idle_terms(self._subject, self._runtime, self._seed, self._goes_on))
        except (RefusedError, UnverifiableError):
            return []
        if not terms:
            return []
        words = "" if self._subject.is_whole else f", measured with {self._subject.words}"
        reason = (
            f"the reference without {', or without '.join(terms)} is within the judge's bound on "
            f"every distribution{words}: being correct proves little here"
        )
        return [Badge(name=Doubt.NULL_PASSES, reason=reason)]

    def _goes_on(self) -> bool:
        """Whether there is time for another parameter; if not, that is said."""
        left = time.monotonic() < self._until
        if not left and not self._skipped:
            self._skipped.append(
                "the audit ran out of time: not every parameter and term was tried"
            )
        return left

    def _notes(self) -> tuple[str, ...]:
        notes: list[str] = []
        if not self._subject.is_whole:
            notes.append(f"the audit ran a smaller version: {self._subject.words}")
        return (*notes, *self._skipped)


def forward_s(runtime: ReferenceRuntime) -> float:
    """About how long PyTorch's forward takes: every result written and read, all operations."""
    graph, hardware = runtime.task.graph, runtime.hardware
    moved = 2 * sum(spec.size_bytes for node in graph.nodes for spec in node.out)
    return moved / (hardware.bandwidth_gb_s * 1e9) + runtime.task.flops / (
        hardware.fp32_tflops * 1e12
    )


def _has(task: Task, doubt: Doubt) -> bool:
    return any(badge.name == doubt for badge in task.badges)
