"""What must hold when a candidate has returned, apart from the values of its answer."""

from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from kernelwright.tools.evaluate.verify.bench import tensors
from kernelwright.tools.evaluate.verify.bits import first_difference, same_bits
from kernelwright.tools.evaluate.verify.failures import RejectedError
from kernelwright.tools.evaluate.verify.fingerprints import Fingerprints
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.types import TensorSpec, Verdict


def inputs_unchanged(placed: Sequence[Argument], pristine: Sequence[Argument]) -> None:
    """RejectedError when an input is not what it was."""
    for number, (now, then) in enumerate(zip(tensors(placed), tensors(pristine), strict=True)):
        if not same_bits(now, then):
            index = list(first_difference(now, then))
            raise RejectedError(
                Verdict.INPUT_MUTATED, f"input {number} was changed, first at {index}"
            )


def weights_unchanged(
    placed: Mapping[str, Tensor], live: Mapping[str, Tensor], mutated: Collection[str]
) -> None:
    """RejectedError when a weight that the forward does not write is not what it was."""
    for name, then in live.items():
        if name not in mutated and not same_bits(placed[name], then):
            index = list(first_difference(placed[name], then))
            raise RejectedError(
                Verdict.INPUT_MUTATED, f"weight {name!r} was changed, first at {index}"
            )


def untouched(far: Fingerprints) -> None:
    """What the judge keeps for itself must be what it was; a kernel can reach all memory."""
    if changed := far.changed():
        raise RejectedError(
            Verdict.CHEATING, f"the judge's own copy of {changed[0]} was written to, far outside"
        )


def shaped(outputs: Sequence[Tensor], wanted: Sequence[TensorSpec]) -> None:
    """RejectedError unless there are as many outputs as wanted, of those shapes and types."""
    if len(outputs) != len(wanted):
        raise RejectedError(Verdict.WRONG_SHAPE, f"{len(outputs)} outputs, expected {len(wanted)}")
    for number, (got, spec) in enumerate(zip(outputs, wanted, strict=True)):
        shape, dtype = tuple(got.shape), str(got.dtype).removeprefix("torch.")
        if (shape, dtype) != (spec.shape, spec.dtype.value):
            raise RejectedError(
                Verdict.WRONG_SHAPE,
                f"output {number} is {dtype}{list(shape)}, "
                f"expected {spec.dtype.value}{list(spec.shape)}",
            )


def at_rest(outputs: Sequence[Tensor], returned: Sequence[Tensor], means: str) -> None:
    """What was returned must still be there when nothing should be running any more.

    Args:
        outputs: as they are now.
        returned: copies that were made when they were returned.
        means: what a change means, for the reason.
    """
    for number, (now, then) in enumerate(zip(outputs, returned, strict=True)):
        if not same_bits(now, then):
            index = list(first_difference(now, then))
            raise RejectedError(
                Verdict.CHEATING,
                f"output {number} changed after it was returned, first at {index}: {means}",
            )
