"""What the audit experiments on: the task itself, or a smaller version where that takes too long.

A version is smaller along the first dimension of its inputs (as a smaller batch is), or else
along every dimension where the module has no sizes of its own. The file's own get_inputs is asked
either way, so that values keep their distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from kernelwright.tools.evaluate.verify.errors import distance
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime
from kernelwright.tools.evaluate.verify.roundings import Altered
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.tasks import Reference, draw
from kernelwright.tools.tasks.loading.probe import ShrunkenFactories
from kernelwright.tools.types import RefusedError, Task, TensorSpec

# A smaller version has at least this many rows, so that statistics over a batch exist.
_LEAST_ROWS = 2
_PATIENCE = 100
_QUICK_LOOK = 2**16


class Sample(NamedTuple):
    """One draw: the arguments, PyTorch's own result, and the truth in float64."""

    arguments: list[Argument]
    own: tuple[Tensor, ...]
    right: tuple[Tensor, ...]


class Subject:
    """Draws inputs and runs the reference on them.

    Args:
        runtime: the task on its device.
        factories: what makes `get_inputs` smaller; None for the task's own sizes.
        words: what is smaller, for people.
    """

    def __init__(
        self,
        runtime: ReferenceRuntime,
        factories: Callable[[], ShrunkenFactories] | None,
        words: str = "",
    ) -> None:
        self._runtime = runtime
        self._factories = factories
        self.words = words
        self.whole = runtime.task
        self.task = runtime.task
        self._double: Reference | None = None
        if factories is not None:
            self.task = _resized(runtime.task, self.arguments("task", 0))

    @property
    def is_whole(self) -> bool:
        """Whether it is the task itself."""
        return self._factories is None

    def with_other_weights(self, seed: int) -> Subject:
        """The same experiments on weights drawn under another seed."""
        return Subject(self._runtime.with_other_weights(seed), self._factories, self.words)

    def afresh(self) -> Subject:
        """The same experiments once the weights have changed in their memory."""
        return Subject(self._runtime, self._factories, self.words)

    def altered(self, arguments: Sequence[Argument], mode: Altered) -> tuple[Tensor, ...]:
        """The truth with something done to operators; buffers stay as they are."""
        with mode:
            return self._in_double(arguments)

    def arguments(self, distribution: str, seed: int) -> list[Argument]:
        """Fresh arguments; RefusedError when the file's get_inputs fails."""
        if self._factories is None:
            return self._runtime.draw(Draw(distribution, seed))
        with self._factories() if distribution == "task" else nullcontext():
            return list(draw(self.task, distribution, seed, self._runtime.device))

    def own(self, arguments: Sequence[Argument]) -> tuple[Tensor, ...]:
        """PyTorch's own result in the task's types; buffers stay as they are."""
        return self._runtime.own(arguments).outputs

    def sample(self, distribution: str, seed: int) -> Sample:
        """One draw and its truth.

        Raises:
            UnverifiableError: the truth fits nowhere.
            RefusedError: the user's code fails.
        """
        arguments = self.arguments(distribution, seed)
        own = self._runtime.own(arguments)
        if self.is_whole:
            return Sample(arguments, own.outputs, self._runtime.right(arguments, own).outputs)
        return Sample(arguments, own.outputs, self._in_double(arguments))

    def _in_double(self, arguments: Sequence[Argument]) -> tuple[Tensor, ...]:
        if self._double is None:
            self._double = self._runtime.reference.double()
        before = self._double.snapshot()
        try:
            return tuple(t.clone() for t in self._double.forward(arguments))
        finally:
            self._double.restore(before)

    def passes(self, answer: Sequence[Tensor], sample: Sample) -> bool:
        """Whether the judge would take `answer` for the answer to this draw."""
        rules, chunk = self._runtime.rules, self._runtime.chunk_elements
        for got, own, right in zip(answer, sample.own, sample.right, strict=True):
            if got.shape != own.shape:
                return False
            if not own.dtype.is_floating_point:
                if not torch.equal(got, own):
                    return False
                continue
            # Most differ at once: a few elements tell, and save a pass over everything.
            few = [_thinned(t) for t in (got, own, right)]
            found = distance(few[0], few[1], few[2], chunk)
            if found.ratio > 100 * rules.error_bound:
                return False
            if distance(got, own, right, chunk).ratio > rules.error_bound:
                return False
        return True


def subject_of(runtime: ReferenceRuntime, seconds: float, limit_s: float) -> Subject | None:
    """The task itself when one forward takes at most `limit_s`, else a smaller version of it.

    None when it has no smaller version that is small enough: its forward insists on its sizes.

    Args:
        runtime: the task on its device.
        seconds: an estimate of one forward of the whole.
        limit_s: what one forward should take; a smaller version may take `_PATIENCE` times that.
    """
    if seconds <= limit_s:
        return Subject(runtime, None)
    rows = _rows(runtime.task)
    few = max(_LEAST_ROWS, int(rows * limit_s / seconds)) if rows else 0
    if rows and few < rows and seconds * few / rows <= _PATIENCE * limit_s:
        made = _try(runtime, lambda: ShrunkenFactories(few, only=rows), f"{few} of {rows} rows")
        if made is not None:
            return made
    return _try(runtime, ShrunkenFactories, "every dimension cut to at most 64")


def _try(
    runtime: ReferenceRuntime, factories: Callable[[], ShrunkenFactories], words: str
) -> Subject | None:
    try:
        subject = Subject(runtime, factories, words)
        if _sizes(subject.task) == _sizes(runtime.task):
            return None
        outputs = subject.own(subject.arguments("task", 0))
    except RefusedError:
        return None
    return subject if len(outputs) == len(runtime.task.outputs) else None


def _rows(task: Task) -> int | None:
    """The first dimension that most of the inputs share; None when there is none worth cutting."""
    sizes = [spec.tensor.shape[0] for spec in task.inputs if spec.tensor and spec.tensor.shape]
    return max(sizes, key=sizes.count) if sizes and max(sizes) > _LEAST_ROWS else None


def _sizes(task: Task) -> int:
    return sum(spec.tensor.numel for spec in task.inputs if spec.tensor)


def _resized(task: Task, arguments: Sequence[Argument]) -> Task:
    """The task with inputs of the shapes of these arguments, for draws of other distributions."""
    inputs = tuple(
        spec.model_copy(
            update={"tensor": TensorSpec(shape=tuple(a.shape), dtype=spec.tensor.dtype)}
        )
        if spec.tensor is not None and isinstance(a, Tensor)
        else spec
        for spec, a in zip(task.inputs, arguments, strict=True)
    )
    return task.model_copy(update={"inputs": inputs})


def _thinned(tensor: Tensor) -> Tensor:
    flat = tensor.reshape(-1)
    return flat[:: max(1, flat.numel() // _QUICK_LOOK)]
