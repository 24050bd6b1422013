"""What foreign code has to prove beyond what a plan has to.

A plan keeps nothing between calls and computes nothing in a constructor; a module may do both. So
one element is changed in the same memory, and the weights are drawn anew in a module that stands.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from kernelwright.tools.evaluate.foreign.runner import GuestRunner
from kernelwright.tools.evaluate.foreign.seat import Seat
from kernelwright.tools.evaluate.verify.bench import Bench, Draw, tensors
from kernelwright.tools.evaluate.verify.failures import RejectedError
from kernelwright.tools.evaluate.verify.memory import refill
from kernelwright.tools.evaluate.verify.renewal import redraw as move_weights
from kernelwright.tools.evaluate.verify.sentence import Sentence
from kernelwright.tools.evaluate.verify.trials import Trials
from kernelwright.tools.evaluate.verify.truth import Truth
from kernelwright.tools.tasks import Reference
from kernelwright.tools.types import Verdict

Settle = Callable[[], None]


class ForeignTrials(Trials):
    """Trials of a runner that calls foreign code in its seat."""

    def __init__(self, bench: Bench, seat: Seat, runner: GuestRunner) -> None:
        super().__init__(bench, seat.memory, runner, lambda _: None)
        self._guest = runner

    def _in_one_order(self) -> AbstractContextManager[None]:
        """In the guest's process, whose library it is."""
        return self._guest.in_one_order()

    def one_element(self, draw: Draw, sentence: Sentence, settle: Settle) -> None:
        """The same values but for one element of each input, in the same memory.

        Raises:
            RejectedError: the answer is that of the values before, or wrong otherwise.
        """
        arguments = self._bench.draw(draw)
        if not any(map(_change_one, tensors(arguments))):
            return
        self.run(draw, sentence, twice=False, settle=settle, instead=arguments)

    def other_weights(
        self,
        draw: Draw,
        sentence: Sentence,
        settle: Settle,
        *,
        seed: int,
        taken: Collection[str],
    ) -> str:
        """Weights drawn anew, copied into the module that stands; what could not be tried.

        Args:
            draw: which inputs.
            sentence: judges the answer.
            settle: told when the reference's turn begins.
            seed: of the weights.
            taken: names of those that the module took over, having them in that shape.

        Raises:
            RejectedError: the module answers for the weights that it was constructed with.
        """
        names = set(self._bench.reference.weights())
        if not any(_floating(value) for value in self._weights.values()):
            return ""
        if missing := sorted(name for name in self._trained() if name not in taken):
            listed = ", ".join(missing[:3])
            return (
                f"other weights: the candidate has no {listed} of the reference's shape, so they "
                "cannot be changed"
            )
        redraw(self._bench, seed)
        # A module's own draw is often the same ones and zeros again.
        source = torch.Generator(self._bench.device).manual_seed(seed)
        move_weights(self._bench.reference.module, source)
        live = self._bench.reference.weights()
        for name in names:
            refill(self._weights[name], live[name])
        try:
            self.run(draw, sentence, twice=False, settle=settle)
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
        return [spec.name for spec in self._bench.task.weights if not spec.is_buffer]


def kernelbench_weights(bench: Bench, seed: int) -> None:
    """Draw the reference's weights as KernelBench does: on the host, under the seed."""
    redraw(bench, seed)


def redraw(bench: Bench, seed: int) -> None:
    """Other weights in the same reference; what was derived from the old ones is forgotten."""
    drawn: Mapping[str, Tensor] = Reference.build(bench.task, "cpu", seed=seed).weights()
    for name, value in bench.reference.weights().items():
        if name in drawn:
            value.copy_(drawn[name])
    bench.truth = Truth(bench.task, bench.reference, bench.device, bench.rules)


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
