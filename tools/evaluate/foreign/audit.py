"""What foreign code is audited for: precision, whose work it is, and proofs beyond a plan's.

Precision is measured, as for our own candidates, where the task lets it be. What the file names and
the settings that it changed say what to look for; the digits decide. Only where they cannot be
measured (a task in half precision, inputs that no probe suits) a setting is taken at its word. A
branch that names a type and loses nothing costs no label.

Who did the work: what the guest's dispatcher saw, held against what the file says. The guest
reports about itself, so its word can only count against it: a file that presents kernels of its own
while the library does the work is caught by its own report; one that lies to look better is
measured by the clock like any other.

`ForeignTrials` has the trials beyond a plan's. A plan keeps nothing between calls and computes
nothing in a constructor; a module may do both. So one element is changed in the same memory, and
the weights are drawn anew in a module that stands.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from kernelwright.tools.evaluate.foreign.declarations import Declaration
from kernelwright.tools.evaluate.foreign.guest_link import Seat
from kernelwright.tools.evaluate.foreign.guest_runner import GuestRunner
from kernelwright.tools.evaluate.foreign.messages import Arrange, Call, Go
from kernelwright.tools.evaluate.foreign.shared_memory import place_of, slots_of
from kernelwright.tools.evaluate.profiling.coverage import label as share_label
from kernelwright.tools.evaluate.rules import fresh_seed
from kernelwright.tools.evaluate.verify.comparison import ResultComparator
from kernelwright.tools.evaluate.verify.measured_precision import Digits, Precision, ranked, resolve
from kernelwright.tools.evaluate.verify.memory import refill
from kernelwright.tools.evaluate.verify.precision import (
    SIGNIFICANT_BITS,
    lower_among,
    task_precision,
)
from kernelwright.tools.evaluate.verify.reasons import RejectedError
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime, tensors
from kernelwright.tools.evaluate.verify.reference_runtime import redraw as move_weights
from kernelwright.tools.evaluate.verify.trials import Trials
from kernelwright.tools.evaluate.verify.truth import Truth
from kernelwright.tools.tasks import Reference
from kernelwright.tools.types import Task, Verdict
from kernelwright.tools.types.value import Value

# What is this near to single precision lost digits to another order of adding, not to a type.
_NEARLY_ALL_BITS = 20.0
_LOWER: Mapping[str, str] = {
    "matmul precision: high": "tf32",
    "matmul precision: medium": "bf16",
    "cuda tf32: True": "tf32",
    "fp16 reduction: True": "fp16",
}


def named(task: Task, read: Declaration, settings: Sequence[str]) -> tuple[str, ...]:
    """Lower precisions that the file names or sets torch to, the finest first."""
    there = {*lower_among(task, read.words), *_set(settings)}
    return tuple(sorted(there, key=lambda name: -SIGNIFICANT_BITS[name]))


def label(
    task: Task, read: Declaration, settings: Sequence[str], found: Digits | None
) -> tuple[Precision, tuple[str, ...]]:
    """The label, and remarks on settings that were changed.

    Args:
        task: its own precision, and what the person allowed.
        read: what the file says.
        settings: of torch, as the guest reports them after calls.
        found: what probes showed; None where nothing could be measured.
    """
    remarks = tuple(f"it changed torch's setting of {name}" for name in settings)
    own = task_precision(task)
    if found is None:
        lower = _set(settings) if own == "fp32" else ()
        return ranked(task, lower[0] if lower else own, None), remarks
    exact = found.in_range and (found.exact or found.bits >= _NEARLY_ALL_BITS)
    if exact:
        return Precision(label=own, bits=found.bits), remarks
    lower, turned = named(task, read, settings), found.as_turned
    return resolve(task, lower, found.bits, exact=False, as_turned=turned), remarks


def _set(settings: Sequence[str]) -> tuple[str, ...]:
    return tuple(_LOWER[name] for name in settings if name in _LOWER)


_RUNS = 5
_REPORTED = "reported by the guest"


class WorkAudit(Value):
    """The audit's numbers: the share of time outside library operators, and which ran."""

    share: float | None = None
    operators: tuple[str, ...] = ()

    def method(self, read: Declaration) -> str:
        """How the result came about, in a few words."""
        listed = ", ".join(self.operators[:4]) or "library operators"
        if read.compiles:
            return f"compiled by PyTorch ({read.compiles}): a baseline, not a kernel"
        if read.graphs and not read.own:
            return f"CUDA graph of library operators ({listed}): a baseline, not a kernel"
        if not read.own:
            return f"library rearrangement ({listed})" if self.share is not None else ""
        if self.share is None:
            return ""
        return f"{share_label(self.share, set(self.operators))}, {_REPORTED}"

    def pretence(self, read: Declaration, task: Task) -> str:
        """Why the file is not what it presents itself as, or an empty word."""
        if not read.own or self.share is None:
            return ""
        listed = ", ".join(self.operators[:4])
        wanted = {node.op.split(".")[1] for node in task.graph.nodes if node.op.count(".") == 2}
        done = {name.lstrip("_") for name in self.operators}
        if read.falls_back and (self.share < 0.5 or wanted & done) and self.operators:
            return (
                f"its kernels failed and an except clause fell back to PyTorch: {listed} took "
                f"{1 - self.share:.0%} of the time"
            )
        return ""


def audited(runtime: ReferenceRuntime, seat: Seat, limit_s: float, seed: int) -> WorkAudit:
    """Let the guest watch its own dispatcher over a few calls on fresh values."""
    arguments = runtime.draw(Draw("task", fresh_seed(seed, "audit")))
    placed = [
        seat.memory.place(a, f"audit {i}") if isinstance(a, Tensor) else a
        for i, a in enumerate(arguments)
    ]
    outputs = seat.outputs(runtime)
    order = Arrange(
        arguments=(slots_of(seat.arena, placed),),
        outputs=(tuple(place_of(seat.arena, output) for output in outputs),),
    )
    seat.link.ask(order, limit_s)
    shares, operators = [], set()
    for _ in range(_RUNS):
        done = seat.link.ask(Go(calls=(Call(arguments=0, outputs=0),), way="audit"), limit_s)
        shares.append(1.0 - done.library_ms / max(done.own_ms, 1e-6))
        operators |= set(done.operators)
    seat.memory.forget("input audit")
    seat.memory.forget("allocation")
    share = min(1.0, max(0.0, sorted(shares)[_RUNS // 2]))
    return WorkAudit(share=share, operators=tuple(sorted(operators)))


Settle = Callable[[], None]


class ForeignTrials(Trials):
    """Trials of foreign code, whose runner calls it in a guest."""

    def __init__(self, runtime: ReferenceRuntime, seat: Seat, runner: GuestRunner) -> None:
        super().__init__(runtime, seat.memory, runner, lambda _: None)
        self._guest = runner

    def _in_one_order(self) -> AbstractContextManager[None]:
        """In the guest's process, whose library it is."""
        return self._guest.in_one_order()

    def one_element(self, draw: Draw, comparator: ResultComparator, settle: Settle) -> None:
        """The same values but for one element of each input, in the same memory.

        Raises:
            RejectedError: the answer is that of the values before, or wrong otherwise.
        """
        arguments = self._runtime.draw(draw)
        if not any(map(_change_one, tensors(arguments))):
            return
        self.run(draw, comparator, twice=False, settle=settle, instead=arguments)

    def other_weights(
        self,
        draw: Draw,
        comparator: ResultComparator,
        settle: Settle,
        *,
        seed: int,
        taken: Collection[str],
    ) -> str:
        """Weights drawn anew, copied into the module that stands; what could not be tried.

        Args:
            draw: which inputs.
            comparator: judges the answer.
            settle: told when the reference's turn begins.
            seed: of the weights.
            taken: names of those that the module took over, having them in that shape.

        Raises:
            RejectedError: the module answers for the weights that it was constructed with.
        """
        names = set(self._runtime.reference.weights())
        if not any(_floating(value) for value in self._weights.values()):
            return ""
        if missing := sorted(name for name in self._trained() if name not in taken):
            listed = ", ".join(missing[:3])
            return (
                f"other weights: the candidate has no {listed} of the reference's shape, so they "
                "cannot be changed"
            )
        redraw(self._runtime, seed)
        # A module's own draw is often the same ones and zeros again.
        source = torch.Generator(self._runtime.device).manual_seed(seed)
        move_weights(self._runtime.reference.module, source)
        live = self._runtime.reference.weights()
        for name in names:
            refill(self._weights[name], live[name])
        try:
            self.run(draw, comparator, twice=False, settle=settle)
        except RejectedError as found:
            if found.verdict not in (Verdict.WRONG_RESULT, Verdict.STALE_RESULT):
                raise
            raise RejectedError(
                Verdict.STALE_RESULT,
                "with other weights in the same module the answer is wrong: work on the weights "
                f"was moved into the constructor or kept from an earlier call ({found.reason})",
            ) from found
        return ""

    def _trained(self) -> list[str]:
        return [spec.name for spec in self._runtime.task.weights if not spec.is_buffer]


def redraw(runtime: ReferenceRuntime, seed: int) -> None:
    """Other weights in the same reference; what was derived from the old ones is forgotten."""
    drawn: Mapping[str, Tensor] = Reference.build(runtime.task, "cpu", seed=seed).weights()
    for name, value in runtime.reference.weights().items():
        if name in drawn:
            value.copy_(drawn[name])
    runtime.truth = Truth(runtime.task, runtime.reference, runtime.device, runtime.rules)


def _change_one(tensor: Tensor) -> bool:
    """Give one element the value furthest from its own that occurs in the tensor."""
    if not _floating(tensor) or tensor.numel() < 2 or not tensor.is_contiguous():
        return False
    flat = tensor.view(-1)
    where = tensor.numel() // 3
    low, high = flat.min(), flat.max()
    value = high if bool(high - flat[where] >= flat[where] - low) else low
    if bool(value == flat[where]) or not bool(torch.isfinite(value)):
        return False
    flat[where] = value
    return True


def _floating(tensor: Tensor) -> bool:
    return tensor.is_floating_point()
