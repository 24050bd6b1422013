"""One task set up on one device: the reference, its truth, its draws. Lives as long as a worker.

The weights are drawn once a worker, and moved for a while within `other_weights`.

`harshest_first` says which other values a candidate is tried on first: those that hurt most.
`renew` puts other values into the same memory, cheaply: a tensor is turned round, and part of it
lost. What a tensor holds stays valid (indices in range, probabilities in theirs), as only values
that were there before are written. Every value moves, so that whoever keeps answers for rows or
blocks that did not change finds none. Not for tensors whose order means something.
"""

import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.rules import Defence, Rules, fresh_seed
from kernelwright.tools.evaluate.verify.bits import flat_memory
from kernelwright.tools.evaluate.verify.errors import Nulls, finite
from kernelwright.tools.evaluate.verify.precision import (
    allowed_rounding,
    may_be_coarser,
    with_channels_last,
)
from kernelwright.tools.evaluate.verify.truth import Argument, Truth, small_steps
from kernelwright.tools.tasks import DISTRIBUTIONS, PROBES, Reference, applicable, draw
from kernelwright.tools.tasks.graph.random_draws import state_of
from kernelwright.tools.tasks.inputs.draws import with_short_significands
from kernelwright.tools.types import Domain, RefusedError, Task, refuse

_HARSHEST = (
    "large_offset", "heavy_tail", "outliers", "extremes", "constant_rows", "normal", "tiny",
)  # fmt: skip


def harshest_first(task: Task, rules: Rules) -> list[str]:
    """The distributions that suit a task besides its own; none where the rules take them away."""
    if not rules.has(Defence.DISTRIBUTIONS):
        return []
    suitable = [name for name in DISTRIBUTIONS if applicable(task, name) and name != "task"]
    ranked = [name for name in _HARSHEST if name in suitable]
    return ranked + [name for name in suitable if name not in ranked]


_PART = 64  # one part in so many changes
_SPREAD = 0.3
_STATISTICS = ("running_mean", "running_var")


def renew(tensor: Tensor, domain: Domain, source: random.Random) -> None:
    """Move all values on, and write a stretch of them over another one.

    Nothing changes where the order means something.
    """
    if domain in ("sorted", "permutation"):
        return
    flat = flat_memory(tensor)
    size = flat.numel()
    if size < 2:
        return
    _turn(flat, source.randrange(1, size))
    count = max(1, size // _PART)
    start = source.randrange(count, size - count + 1) if size > 2 * count else size - count
    shift = source.randrange(start - count + 1) if start >= count else 0
    flat[start : start + count].copy_(flat[shift : shift + count].clone())


def _turn(flat: Tensor, steps: int) -> None:
    """Move every value on; a device without room for one more copy keeps them where they are."""
    if flat.dtype.itemsize == 1:  # PyTorch turns no 8-bit floats on a GPU
        flat = flat.view(torch.uint8)
    try:
        moved = flat.roll(steps)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return
    flat.copy_(moved)


def redraw(module: nn.Module, generator: torch.Generator) -> None:
    """Move every floating parameter, and the statistics of normalisations, by up to a third.

    A module's own first values are often ones and zeros, which hide whether they are used at all.
    Signs are kept, so that variances stay variances.
    """
    statistics = (
        (name, value) for name, value in module.named_buffers() if name.endswith(_STATISTICS)
    )
    for _, tensor in (*module.named_parameters(), *statistics):
        if tensor.is_floating_point():
            _move(tensor, generator)
        elif tensor.is_complex():
            _move(torch.view_as_real(tensor.detach()), generator)


def _move(tensor: Tensor, generator: torch.Generator) -> None:
    unit = torch.rand(tensor.shape, generator=generator, device=tensor.device)
    noise = unit.mul_(2 * _SPREAD).sub_(_SPREAD)
    with torch.no_grad():
        if not bool(tensor.any()):
            tensor.copy_(noise.to(tensor.dtype))
        else:
            tensor.mul_(noise.add_(1.0).to(tensor.dtype))


Change = Callable[[nn.Module, torch.Generator], None]
_LARGE, _SMALL = 1e5, 1e-6  # beyond half precision's range, as inputs of the same probes are


def shorten(module: nn.Module, generator: torch.Generator) -> None:
    """Give every floating parameter a significand whose last digits a short one drops."""
    for value in module.parameters():
        if value.is_floating_point():
            with torch.no_grad():
                value.copy_(with_short_significands(value))


def _scale(module: nn.Module, factor: float) -> None:
    """Move matrices, and larger weights, to another size; vectors are biases and norms."""
    with torch.no_grad():
        for value in module.parameters():
            if value.is_floating_point() and value.dim() > 1:
                value.mul_(factor)


# What a probe does to weights where a task has no floating inputs that it could draw.
PROBED_WEIGHTS: dict[str, Change] = {
    PROBES[0]: shorten,
    PROBES[1]: lambda module, generator: _scale(module, _LARGE),
    PROBES[2]: lambda module, generator: _scale(module, _SMALL),
}


Guard = Callable[[], AbstractContextManager[None]]


class Draw(NamedTuple):
    """Which inputs: a distribution and the seed they are drawn under."""

    distribution: str
    seed: int


class Result(NamedTuple):
    """What a forward left behind: its outputs and the buffers it updated, by name."""

    outputs: tuple[Tensor, ...]
    buffers: Mapping[str, Tensor]


class ReferenceRuntime:
    """The reference of a task on a device.

    Args:
        task: what is judged.
        hardware: the device.
        rules: the figures.
        seed: of the weights.
        guard: entered whenever the user's code runs.
    """

    def __init__(
        self, task: Task, hardware: Hardware, rules: Rules, seed: int, guard: Guard
    ) -> None:
        self.task = task
        self.hardware = hardware
        self.rules = rules
        self.device = hardware.kind
        self.seed = seed
        self._guard = guard
        with guard():
            self.reference = Reference.build(task, self.device, seed=seed)
        self.truth = Truth(task, self.reference, self.device, rules)
        self.mutated = tuple(mutation.target for mutation in task.graph.mutations)
        self._tells: dict[str, bool] = {}

    def resized(self, task: Task) -> "ReferenceRuntime":
        """The same reference and device for the task with inputs of other sizes."""
        other = copy.copy(self)
        other.__dict__.pop("nulls", None)
        other.task, other._tells = task, {}
        other.truth = Truth(task, self.reference, self.device, self.rules)
        return other

    def with_other_weights(self, seed: int) -> "ReferenceRuntime":
        """The same task with weights drawn under another seed."""
        return ReferenceRuntime(self.task, self.hardware, self.rules, seed, self._guard)

    @property
    def chunk_elements(self) -> int:
        """How many elements are compared at a time: a GPU wants larger steps than a cache."""
        return self.rules.compare_chunk_elements * (256 if self.device == "cuda" else 1)

    @property
    def rounding(self) -> float:
        """The relative step of the coarsest precision that the person allowed; 0 where none."""
        return allowed_rounding(self.task)

    @cached_property
    def nulls(self) -> Nulls:
        """What answers without work come to; UnverifiableError when the truth fits nowhere."""
        arguments = self.draw(Draw("task", fresh_seed(self.seed, "nulls")))
        own = self.own(arguments)
        right = self.right(arguments, own)
        with small_steps():
            return Nulls(own.outputs, right.outputs, tensors(arguments), self.chunk_elements)

    def draw(self, wanted: Draw) -> list[Argument]:
        """Fresh arguments of the forward, and another state of the generators."""
        self.reference.generators.seed = wanted.seed % 2**63
        with self._guard():
            return list(draw(self.task, wanted.distribution, wanted.seed, self.device))

    def own(self, arguments: Sequence[Argument]) -> Result:
        """PyTorch's own result in the task's types."""
        with self._guard():
            before = self.reference.snapshot()
            try:
                outputs = tuple(self.reference.forward(arguments))
                live = self.reference.weights()
                return Result(outputs, {name: live[name].clone() for name in self.mutated})
            finally:
                self.reference.restore(before)

    def tells(self, distribution: str) -> bool:
        """Whether PyTorch's own result is finite on inputs drawn so; else no candidate is compared.

        Found once, on other values than a candidate gets: one that is to be compared with nothing
        need not run, which on infinities and NaN may take it far longer than on numbers.
        """
        if distribution not in self._tells:
            wanted = Draw(distribution, fresh_seed(self.seed, "tells", distribution))
            try:
                self._tells[distribution] = all(map(finite, self.own(self.draw(wanted)).outputs))
            except RefusedError:
                return True  # what is refused is said where a candidate is compared
        return self._tells[distribution]

    def check_draws(self) -> None:
        """See that random numbers are drawn where the task runs.

        Raises:
            RefusedError: a forward for a GPU draws on the host, where a candidate does not.
        """
        generators = self.reference.generators
        if self.device == "cpu" or not generators.types:
            return
        arguments = self.draw(Draw("task", fresh_seed(self.seed, "draws")))
        generators.fix()
        before = state_of("cpu")
        self.own(arguments)
        if state_of("cpu") != before:
            raise refuse(
                f"{self.task.name} cannot be compared: its forward draws random numbers on the "
                "host; let it draw on the device (`device=x.device`)."
            )

    def check_sizes(self) -> None:
        """See that results are as large as in the example, whatever the inputs hold.

        What is traced whole has sizes of its own; a model in parts may pick what it returns.

        Raises:
            RefusedError: one is not.
        """
        if not self.task.parts:
            return
        arguments = self.draw(Draw("task", fresh_seed(self.seed, "sizes")))
        pairs = zip(self.own(arguments).outputs, self.task.outputs, strict=True)
        for number, (output, spec) in enumerate(pairs, start=1):
            if tuple(output.shape) != spec.shape:
                here, there = (" x ".join(map(str, s)) or "one" for s in (output.shape, spec.shape))
                raise refuse(
                    f"The size of output {number} depends on what the inputs hold: {there} in the "
                    f"example, {here} on other values. Let the forward keep one size, as by a "
                    "mask, and pick what you need outside of it."
                )

    def own_turned(self, arguments: Sequence[Argument]) -> Result | None:
        """PyTorch's own result with channels last, where that may be coarser; None elsewhere.

        Also None where there is no room, or where the module takes no such layout (a `view`).
        """
        if self.reference.generators.types or not may_be_coarser(self.task, self.device):
            return None  # in another layout other elements get what is drawn
        try:
            with self._guard():
                outputs, live = with_channels_last(self.reference, self.task, arguments)
                return Result(outputs, {name: live[name] for name in self.mutated})
        except RefusedError:
            return None
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return None

    @contextmanager
    def other_weights(self, seed: int, change: Change = redraw) -> Iterator[None]:
        """Other parameters inside, in the same memory; the usual ones again afterwards."""
        module = self.reference.module
        usual = {name: value.detach().clone() for name, value in self._variables().items()}
        try:
            change(module, torch.Generator(self.device).manual_seed(seed))
            self.truth.forget()
            yield
        finally:
            with torch.no_grad():
                for name, value in self._variables().items():
                    value.copy_(usual[name])
            self.truth.forget()

    def _variables(self) -> dict[str, Tensor]:
        module = self.reference.module
        return {**dict(module.named_parameters()), **dict(module.named_buffers())}

    def right(self, arguments: Sequence[Argument], own: Result) -> Result:
        """The truth in float64; raises UnverifiableError when it does not fit anywhere."""
        with self._guard():
            outputs, buffers = self.truth.outputs(arguments, own.outputs)
        return Result(outputs, buffers)

    def rounded(
        self, arguments: Sequence[Argument], seed: int, steps: float = 1.0
    ) -> Result | None:
        """The truth with every operator off by so many roundings of the task's type.

        None where there is no room.
        """
        with self._guard():
            found = self.truth.rounded(arguments, seed, steps)
        return None if found is None else Result(*found)


def tensors(arguments: Sequence[Argument]) -> list[Tensor]:
    """The arguments that are tensors, in order."""
    return [argument for argument in arguments if isinstance(argument, Tensor)]
