"""Why a candidate is rejected: verdicts on its exceptions, and words for whoever has to repair it.

The words say what is wrong, where, and what it looks like. `poisoned` tells whether the device
survived an exception.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from kernelwright.tools.candidates import ContractError, DeviceError, LaunchRefused
from kernelwright.tools.evaluate.verify.bits import unravel
from kernelwright.tools.evaluate.verify.errors import Distance
from kernelwright.tools.evaluate.verify.memory import Damage, unwritten
from kernelwright.tools.types import Verdict

_ILLEGAL = (
    "illegal memory access", "misaligned address", "ILLEGAL_ADDRESS", "MISALIGNED_ADDRESS",
    "illegal instruction", "ILLEGAL_INSTRUCTION",
)  # fmt: skip


class RejectedError(Exception):
    """Ends the judging of one candidate; becomes its verdict."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict
        self.reason = reason


def rejection(error: Exception) -> RejectedError:
    """The verdict on a candidate that raised. Whatever its plan raises is its own fault."""
    words = " ".join(str(error).split())[:500]
    if isinstance(error, RejectedError):
        return error
    if isinstance(error, ContractError):
        return RejectedError(Verdict.INVALID_PLAN, words)
    if isinstance(error, (torch.cuda.OutOfMemoryError, MemoryError)):
        return RejectedError(Verdict.OUT_OF_MEMORY, f"the candidate ran out of memory: {words}")
    if any(sign in words for sign in _ILLEGAL):
        return RejectedError(Verdict.ILLEGAL_ACCESS, words)
    if isinstance(error, (LaunchRefused, DeviceError)):
        return RejectedError(Verdict.LAUNCH_ERROR, words)
    return RejectedError(Verdict.LAUNCH_ERROR, f"{type(error).__name__}: {words}")


def poisoned(device: str) -> str:
    """Why the device's context is lost after an error, or an empty word when it still works."""
    if not device.startswith("cuda"):
        return ""
    try:
        torch.cuda.synchronize()
        if float(torch.ones(1, device=device).sum()) != 1.0:
            return "the device returns wrong sums"
    except RuntimeError as error:
        return f"the CUDA context is lost: {str(error).splitlines()[0]}"
    return ""


_LOOKED_AT = 1 << 22  # elements; patterns show on a part as well
# Of a larger tensor a part is searched: the places of all its elements take many times its memory.
_SEARCHED = 1 << 24


def wrong_values(
    where: str, got: Tensor, truth: Tensor, wrong: Tensor, found: Distance | None, bound: float
) -> str:
    """One sentence on an output that is not right.

    Args:
        where: which output on which inputs, as the sentence's beginning.
        got: the candidate's output.
        truth: what it should be; same shape.
        wrong: mask of elements beyond the bound; may be empty when all are slightly off.
        found: the distances; None for integers.
        bound: times PyTorch's own error that is allowed.
    """
    truth = truth.to(got.device)
    count, total = int(wrong.sum()), got.numel()
    parts = [f"{count} of {total} elements ({100 * count / total:.3g} %) are wrong"]
    if count == 0:
        parts = ["no single element stands out, but the error as a whole is too large"]
    index = _example(wrong, found)
    parts.append(f"at {list(index)}: got {_at(got, index)}, expected {_at(truth, index)}")
    if found is not None and not found.misplaced:
        parts.append(
            f"error {found.norm:.2g} in the norm and {found.worst:.2g} at the worst element, "
            f"PyTorch's own {found.own_norm:.2g} and {found.own_worst:.2g} "
            f"({found.ratio:.3g}x, allowed {bound:.3g}x)"
        )
    if pattern := pattern_of(got, truth, wrong):
        parts.append(f"pattern: {pattern}")
    return f"{where}: " + "; ".join(parts)


def not_written(where: str, got: Tensor, count: int) -> str:
    """One sentence on elements that still hold the poison."""
    mask = got.isnan() if got.dtype.is_floating_point else torch.zeros_like(got, dtype=torch.bool)
    place = placement(mask) if bool(mask.any()) else ""
    share = "the whole output was" if count == got.numel() else f"{count} of {got.numel()} were"
    return f"{where}: {share} never written" + (f" ({place})" if place else "")


def out_of_bounds(damage: Damage) -> str:
    """One sentence on a guard that was written over."""
    what = damage.block.replace("allocation", "allocated tensor number").replace("input", "input")
    return (
        f"memory {damage.side} {what} was written: {damage.bytes_changed} bytes, "
        f"up to {damage.distance_bytes} bytes outside"
    )


def pattern_of(got: Tensor, truth: Tensor, wrong: Tensor) -> str:
    """What the wrong elements look like, if it is something a person would say; else empty."""
    if not bool(wrong.any()):
        return ""
    words = [words for words in (_values(got, truth, wrong), placement(wrong)) if words]
    return ", ".join(words)


def placement(wrong: Tensor) -> str:
    """Where in the tensor the marked elements are, if that has a name."""
    if wrong.dim() == 0 or wrong.numel() == 0 or bool(wrong.all()):
        return ""
    flat = wrong.reshape(-1)
    count = int(flat.sum())
    if bool(flat[-count:].all()):
        return f"the last {count} elements in memory order" if count > 1 else "the last element"
    for dim, size in enumerate(wrong.shape):
        others = [d for d in range(wrong.dim()) if d != dim]
        hit = wrong.any(dim=others) if others else wrong
        places = torch.nonzero(hit).flatten().tolist()
        if size > 1 and 0 < len(places) < size:
            return f"only where index {dim} is {_range(places, size)}"
    return ""


def _range(places: Sequence[int], size: int) -> str:
    if places[-1] - places[0] + 1 == len(places):
        end = " (the last)" if places[-1] == size - 1 else ""
        one = len(places) == 1
        return f"{places[0]}{end}" if one else f"{places[0]} to {places[-1]}{end}"
    steps = {b - a for a, b in pairwise(places)}
    if len(steps) == 1:
        return f"{places[0]}, {places[1]}, ... in steps of {steps.pop()}"
    shown = ", ".join(str(place) for place in places[:4])
    return f"{shown}, ... ({len(places)} of {size})"


def _values(got: Tensor, truth: Tensor, wrong: Tensor) -> str:
    """What stands there instead of the right values."""
    bad, should = _marked(got, truth, wrong)
    if bad.dtype.is_floating_point and bool(bad.isnan().all()):
        return "NaN" if not unwritten(bad) else "never written (NaN)"
    for value, name in ((0, "zeros"), (1, "ones")):
        if bool((bad == value).all()):
            return f"all {name}"
    if bad.numel() > 1 and bool((bad == bad[0]).all()):
        return f"all the same value {bad[0].item():.6g}"
    if not bad.dtype.is_floating_point or bad.numel() < 2:
        return ""
    return _relation(bad.double(), should)


def _marked(got: Tensor, truth: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
    """The first marked elements of both."""
    marks = wrong.reshape(-1)
    start = int(marks.to(torch.uint8).argmax()) if marks.numel() > _SEARCHED else 0
    part = slice(start, start + _SEARCHED)
    return (
        got.reshape(-1)[part][marks[part]][:_LOOKED_AT],
        truth.reshape(-1)[part][marks[part]][:_LOOKED_AT],
    )


def _relation(bad: Tensor, should: Tensor) -> str:
    """A constant factor or offset, or another sign."""
    usable = torch.isfinite(bad) & torch.isfinite(should) & (should.abs() > 0)
    if int(usable.sum()) < 2:
        return ""
    factor = bad[usable] / should[usable]
    offset = bad[usable] - should[usable]
    if _constant(factor):
        value = float(factor.median())
        return "the sign is wrong" if abs(value + 1) < 1e-4 else f"{value:.6g} times too large"
    return f"too large by {float(offset.median()):.6g} throughout" if _constant(offset) else ""


def _constant(values: Tensor) -> bool:
    middle = values.median()
    return bool(((values - middle).abs() <= 1e-3 * middle.abs() + 1e-30).all())


def _example(wrong: Tensor, found: Distance | None) -> tuple[int, ...]:
    if found is not None and found.worst_index:
        return found.worst_index
    flat = int(wrong.reshape(-1).to(torch.uint8).argmax()) if wrong.numel() else 0
    return unravel(flat, tuple(wrong.shape))


def _at(tensor: Tensor, index: tuple[int, ...]) -> str:
    value = tensor[index].item() if index else tensor.item()
    return f"{value:.7g}" if isinstance(value, float) else str(value)
