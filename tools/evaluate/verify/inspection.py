"""Looks at timed calls: new values before every one, and now and then the answer is verified.

Being right when verified proves nothing about the calls that are timed: a candidate may leave
something behind in recycled memory and skip the work from then on. So part of every input changes
before each sample, in place, for baseline and candidate alike, and some samples (which ones, is
drawn on the host) are compared with PyTorch's answer to those very values, under other weights,
with inputs and weights fingerprinted around the call. All of it lies outside the timed span.

A sample that does not count has values of another distribution in the memory of the timed ones: a
candidate that sees by what lies around its inputs whether it is only timed must not be less stable
then.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import torch
from torch import Tensor

from kernelwright.tools.evaluate.rules import Defence
from kernelwright.tools.evaluate.verify.bits import Fingerprints, numbered
from kernelwright.tools.evaluate.verify.comparison import ResultComparator
from kernelwright.tools.evaluate.verify.errors import apart, finite
from kernelwright.tools.evaluate.verify.memory import refill
from kernelwright.tools.evaluate.verify.reasons import RejectedError
from kernelwright.tools.evaluate.verify.reference_runtime import (
    Draw,
    ReferenceRuntime,
    Result,
    renew,
    tensors,
)
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.types import RefusedError, Verdict

Timed = Callable[[Sequence[Argument]], object]

_SHARE = 0.25  # of the samples that are looked at
_MOST = 8  # looks at one candidate; each costs a run of the reference
_TIMED = Draw("timed", 0)
_SAME = 16.0  # roundings between two results that need no truth to be told equal


class Inspection:
    """Watches one candidate while it is timed.

    Args:
        runtime: the task on its device.
        weights: those that the candidate is called with; written to.
        prepare: brings what the candidate prepared up to date with them.
        seed: of the values that change; which calls are looked at follows from nothing.
        harsh: distributions that the candidate was right on before, the one to begin with first.
        prepared: what it prepared, by name; no call may write there.
        spoil: overwrites what earlier calls left in memory that the next one will be given; a
            look's own preparations would do so by chance, and set it apart from other samples.
    """

    def __init__(
        self,
        runtime: ReferenceRuntime,
        weights: Mapping[str, Tensor],
        prepare: Callable[[], None],
        seed: int,
        harsh: Sequence[str] = (),
        prepared: Callable[[], Mapping[str, Tensor]] = dict,
        spoil: Callable[[], None] | None = None,
    ) -> None:
        self._runtime = runtime
        self._weights = weights
        self._prepare = prepare
        self._prepared = prepared
        self._spoil = spoil
        self._values = random.Random(seed)
        self._chance = random.SystemRandom()
        self._on = runtime.rules.has(Defence.TIMED_RESULTS)
        self._watched: set[int] = set()
        self._outputs: tuple[Tensor, ...] | None = None
        self._prints: Fingerprints | None = None
        self._other = ExitStack()
        self._harsh = list(harsh)
        self._draw = _TIMED
        self._usual: list[Tensor] = []
        self.looks = 0

    def watching(self, call: Timed) -> Timed:
        """The call, with its outputs kept until they may have been looked at."""

        def watched(arguments: Sequence[Argument]) -> object:
            outputs = call(arguments)
            self._outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            return outputs

        self._watched.add(id(watched))
        self._kept = (*getattr(self, "_kept", ()), watched)
        return watched

    def before(self, call: Timed, arguments: Sequence[Argument], *, look: bool = False) -> None:
        """Change values; decide, unseen by the candidate, whether this sample is looked at."""
        if not self._on:
            return
        specs = [spec for spec in self._runtime.task.inputs if spec.tensor is not None]
        for spec, tensor in zip(specs, tensors(arguments), strict=True):
            renew(tensor, spec.domain, self._values)
        if look and self._harsh and id(call) in self._watched:
            self._other_values(tensors(arguments))
        due = self._chance.random() < _SHARE and self.looks < _MOST
        if id(call) in self._watched and (look or due):
            self._draw_weights()
            named = {f"input {n}": t for n, t in numbered(tensors(arguments)).items()}
            fixed = {n: t for n, t in self._weights.items() if n not in self._runtime.mutated}
            named |= {f"weight {n!r}": t for n, t in fixed.items()}
            if self._runtime.rules.has(Defence.INPUTS_UNCHANGED):
                named |= self._prepared()
            self._prints = Fingerprints(named)
        self._outputs = None
        if self._runtime.task.draws_random:  # in every sample, so that no look can be told by it
            self._runtime.reference.generators.seed = self._values.getrandbits(31)
        self._runtime.reference.generators.fix()
        if self._spoil is not None:
            self._spoil()

    def after(self, arguments: Sequence[Argument]) -> None:
        """Verify the sample that was just timed, when it is one that is looked at.

        Raises:
            RejectedError: it changed its inputs, or answered otherwise than it was verified to.
        """
        outputs, prints = self._outputs, self._prints
        self._outputs = self._prints = None
        if prints is None:
            return
        try:
            if outputs is not None:
                self.looks += 1
                self._verify(arguments, tuple(t.clone() for t in outputs), prints)
        finally:
            self._old_weights()
            self._old_values(tensors(arguments))

    def _other_values(self, placed: Sequence[Tensor]) -> None:
        """Those of the next harsh distribution, in the memory of the task's own."""
        name = self._harsh[0]
        self._harsh.append(self._harsh.pop(0))
        self._draw = Draw(name, self._values.getrandbits(31))
        try:
            drawn = tensors(self._runtime.draw(self._draw))
            self._usual = [tensor.clone() for tensor in placed]
        except (RefusedError, torch.OutOfMemoryError):
            self._draw = _TIMED  # then the look is at the task's own values
            return
        for tensor, values in zip(placed, drawn, strict=True):
            tensor.copy_(values)

    def _old_values(self, placed: Sequence[Tensor]) -> None:
        for tensor, values in zip(placed, self._usual, strict=False):
            tensor.copy_(values)
        self._usual, self._draw = [], _TIMED

    def _verify(
        self, arguments: Sequence[Argument], outputs: tuple[Tensor, ...], prints: Fingerprints
    ) -> None:
        if changed := prints.changed():
            raise RejectedError(Verdict.INPUT_MUTATED, f"a timed call changed {changed[0]}")
        own = self._runtime.own(arguments)
        chunk = self._runtime.chunk_elements
        if all(_same(got, mine, chunk) for got, mine in zip(outputs, own.outputs, strict=True)):
            return
        if not all(map(finite, own.outputs)):
            return
        comparator = ResultComparator(self._runtime)
        right = self._runtime.right(arguments, own)
        got = Result(outputs, {})
        try:
            comparator.judge(self._draw, arguments, got, own, right, before=())
        except RejectedError as found:
            words = f"a timed call answered otherwise than the verified ones: {found.reason}"
            raise RejectedError(found.verdict, words) from None

    def _draw_weights(self) -> None:
        if self._runtime.rules.has(Defence.SETUP_TIMED):
            seed = self._values.getrandbits(31)
            self._other.enter_context(self._runtime.other_weights(seed))
        self._follow()

    def _old_weights(self) -> None:
        self._other.close()
        self._follow()

    def _follow(self) -> None:
        """The candidate's weights are the reference's, and so is what it made of them."""
        for name, live in self._runtime.reference.weights().items():
            refill(self._weights[name], live)
        self._prepare()


def _same(got: Tensor, own: Tensor, chunk_elements: int) -> bool:
    """Whether two results are so close that nobody needs the truth."""
    if got.shape != own.shape or got.dtype != own.dtype:
        return False
    if not got.dtype.is_floating_point:
        return torch.equal(got, own)
    return apart(got, own, chunk_elements) <= _SAME * torch.finfo(got.dtype).eps
