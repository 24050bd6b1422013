"""The reference in float64: what an output should be.

Evaluated on the device at once where it fits; else in chunks along the first dimension, where
the result shows that rows do not depend on each other; else on the host. Where nothing fits the
task cannot be verified here, and that is said.

`small_steps` keeps comparing on one thread, as dividing small steps costs more than it brings:
comparing works through tensors in chunks that fit a cache, and on a machine with few cores that
also does other work, every step shared among threads would wait for the one that is not scheduled.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.verify.memory import available_bytes, scores_bytes, truth_bytes
from kernelwright.tools.evaluate.verify.roundings import Rounded
from kernelwright.tools.tasks import Reference
from kernelwright.tools.tasks.graph.decompositions import decompositions
from kernelwright.tools.tasks.reference import doubled
from kernelwright.tools.types import DType, Task, refuse

_FEW = 4


@contextmanager
def small_steps() -> Iterator[None]:
    """One thread inside, where there are few anyway; for everything but references and kernels."""
    usual = torch.get_num_threads()
    if usual > _FEW:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


# Times the truth itself: parts of it take half of the room there is, and something is left over.
_ROOM_FOR_WHOLE = 3

Argument = Tensor | bool | int | float | str | None


class UnverifiableError(Exception):
    """The truth does not fit into any memory at hand."""


class Truth:
    """Evaluates the float64 reference of one task on one device."""

    def __init__(self, task: Task, reference: Reference, device: str, rules: Rules) -> None:
        self._task = task
        self._reference = reference
        self._device = device
        self._rules = rules
        self._double: Reference | None = None
        self.note = ""

    def forget(self) -> None:
        """The reference's weights have changed: its float64 copy is made anew."""
        self._double = None

    def outputs(
        self, arguments: Sequence[Argument], own: Sequence[Tensor]
    ) -> tuple[tuple[Tensor, ...], Mapping[str, Tensor]]:
        """Every output in float64 (integers as they are), and the buffers after the forward.

        Args:
            arguments: of the forward, in the task's own types.
            own: PyTorch's outputs in the task's types, which chunks have to agree with.

        Raises:
            UnverifiableError: when the device, the host and chunks are all too small.
            RefusedError: the forward raises in float64, or is another one there.
        """
        made, buffers = self._evaluated(arguments, own)
        for at, (double, usual) in enumerate(zip(made, own, strict=True), start=1):
            if double.shape != usual.shape:
                raise refuse(
                    f"In float64, which results are compared with, output {at} has the shape "
                    f"{tuple(double.shape)} in place of {tuple(usual.shape)}, as where floating "
                    "numbers are read as whole ones bit by bit."
                )
        return made, buffers

    def _evaluated(
        self, arguments: Sequence[Argument], own: Sequence[Tensor]
    ) -> tuple[tuple[Tensor, ...], Mapping[str, Tensor]]:
        if self._double is None:
            self._double = self._reference.double()
        needed = truth_bytes(self._task)
        room = available_bytes(self._device, self._rules.memory_fraction)
        if needed <= room:
            try:
                return self._whole(self._double, [_double(a) for a in arguments])
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
        if self._reference.generators.types:
            # Parts, and the host, would draw other numbers.
            raise UnverifiableError(_short_of(needed))
        room = available_bytes(self._device, self._rules.memory_fraction)
        parts = self._chunks(self._double, arguments, own, needed, room)
        if parts is not None:
            return parts, {}
        return self._on_host(arguments, needed)

    def rounded(
        self, arguments: Sequence[Argument], seed: int, steps: float = 1.0
    ) -> tuple[tuple[Tensor, ...], Mapping[str, Tensor]] | None:
        """The truth again, with every operator's result off by its rounding in the task's type.

        None where it does not fit at once.

        Args:
            arguments: of the forward.
            seed: of the noise.
            steps: how many roundings.
        """
        if self._double is None:
            self._double = self._reference.double()
        room = available_bytes(self._device, self._rules.memory_fraction)
        if 2 * truth_bytes(self._task) > room:
            return None
        doubles = [_double(a) for a in arguments]
        try:
            with self._attention(room), Rounded(seed, steps * self._unit, decompositions()):
                return self._whole(self._double, doubles)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return None

    def _attention(self, room: int) -> AbstractContextManager[object]:
        """Attention in single steps, else its scores would be exact; whole where they do not fit.

        Scores, powers, their shares and the noise are there at once.
        """
        scores = 4 * scores_bytes(self._task)
        fits = 2 * truth_bytes(self._task) + scores <= room
        return sdpa_kernel(SDPBackend.MATH) if scores and fits else nullcontext()

    @property
    def _unit(self) -> float:
        """Of the type that kernels compute in: half precision is added up in single."""
        wide = any(spec.dtype is DType.FLOAT64 for spec in self._task.outputs)
        return torch.finfo(torch.float64 if wide else torch.float32).eps / 2

    def _whole(
        self, reference: Reference, arguments: Sequence[Argument]
    ) -> tuple[tuple[Tensor, ...], Mapping[str, Tensor]]:
        before = reference.snapshot()
        try:
            live = reference.weights()
            lasting = [*live.values(), *(a for a in arguments if isinstance(a, Tensor))]
            taken = {tensor.untyped_storage().data_ptr() for tensor in lasting}
            outputs = tuple(_apart(t, taken) for t in reference.forward(arguments))
            names = {mutation.target for mutation in self._task.graph.mutations}
            return outputs, {name: live[name].clone() for name in names}
        finally:
            reference.restore(before)

    def _chunks(
        self,
        reference: Reference,
        arguments: Sequence[Argument],
        own: Sequence[Tensor],
        needed: int,
        room: int,
    ) -> tuple[Tensor, ...] | None:
        """The truth in parts, or None where the task does not come apart.

        It is put together on the device where it leaves the parts enough room: from the host every
        comparison would fetch it again.
        """
        rows = _rows(own)
        if rows is None or rows < 2 or self._task.graph.mutations:
            return None
        step = max(1, rows // (2 * max(2, needed // max(room, 1) + 1)))
        size = sum(output.numel() for output in own) * torch.float64.itemsize
        device = self._device if _ROOM_FOR_WHOLE * size <= room else "cpu"
        results: list[Tensor] = []
        for start in range(0, rows, step):
            part = [_double(_slice(a, start, step, rows)) for a in arguments]
            for index, value in enumerate(reference.forward(part)):
                expected = own[index][start : start + step]
                if not _agrees(value, expected, self._rules.chunk_agreement):
                    return None
                if start == 0:
                    shape = own[index].shape
                    results.append(torch.empty(shape, dtype=value.dtype, device=device))
                results[index][start : start + step] = value
        self.note = f"truth in {-(-rows // step)} chunks along the first dimension"
        return tuple(results)

    def _on_host(
        self, arguments: Sequence[Argument], needed: int
    ) -> tuple[tuple[Tensor, ...], Mapping[str, Tensor]]:
        if self._device == "cpu" or needed > available_bytes("cpu", self._rules.memory_fraction):
            raise UnverifiableError(_short_of(needed))
        self.note = "truth evaluated on the host"
        module = doubled(copy.deepcopy(self._reference.module).to("cpu"))
        host = Reference(module, self._task, "cpu", dtype=torch.float64)
        return self._whole(host, [_double(_host(a)) for a in arguments])


def _short_of(needed: int) -> str:
    return (
        f"the float64 truth of this task takes {needed / 2**30:.1f} GiB, which neither "
        "the device nor the host has to spare"
    )


def _apart(output: Tensor, taken: AbstractSet[int]) -> Tensor:
    """The output in memory of its own: what is written to weights and inputs leaves it alone."""
    return output.clone() if output.untyped_storage().data_ptr() in taken else output


def _double(argument: Argument) -> Argument:
    if isinstance(argument, Tensor) and argument.is_floating_point():
        return argument.double()
    return argument


def _host(argument: Argument) -> Argument:
    return argument.cpu() if isinstance(argument, Tensor) else argument


def _rows(outputs: Sequence[Tensor]) -> int | None:
    """The common first dimension of all outputs."""
    sizes = {output.shape[0] if output.dim() else -1 for output in outputs}
    return sizes.pop() if len(sizes) == 1 and -1 not in sizes else None


def _slice(argument: Argument, start: int, step: int, rows: int) -> Argument:
    """A tensor over the same rows is cut; anything else is passed whole."""
    if isinstance(argument, Tensor) and argument.dim() and argument.shape[0] == rows:
        return argument[start : start + step]
    return argument


def _agrees(truth: Tensor, own: Tensor, tolerance: float) -> bool:
    """Whether a chunk's truth is PyTorch's result up to rounding: rows are then independent."""
    if truth.shape != own.shape:
        return False
    if not own.dtype.is_floating_point:
        return float((truth == own).double().mean()) > 1.0 - tolerance
    slack = max(tolerance, 8.0 * torch.finfo(own.dtype).eps)
    usable = torch.isfinite(own)
    difference = torch.where(usable, truth - own, 0.0)
    return bool(difference.norm() <= slack * torch.where(usable, truth, 0.0).norm() + 1e-30)
