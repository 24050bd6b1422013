"""Whether two calls on the same inputs gave the same bits, and what excuses one that did not.

Some of the library's convolutions add up in whatever order threads come (transposed ones above
all), so a candidate that calls one may differ from itself for no reason of its own. It then has
to agree with itself under the library's deterministic algorithms, and each of its answers to be
right.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from kernelwright.tools.evaluate.verify.bits import first_difference, same_bits
from kernelwright.tools.evaluate.verify.turned import convolved
from kernelwright.tools.types import Task

ORDER_CHANGED = (
    "the same bits twice: the library's convolutions add up in changing order; under its "
    "deterministic algorithms the bits were the same"
)


def order_may_change(task: Task, device: str) -> bool:
    """Whether a candidate for this task may call what does not repeat itself."""
    return device == "cuda" and bool(convolved(task))


def unlike(first: Sequence[Tensor], again: Sequence[Tensor]) -> str:
    """Where two answers to the same inputs are apart; "" where they are the same bits."""
    for number, (one, two) in enumerate(zip(first, again, strict=True)):
        if not same_bits(two, one):
            index = first_difference(two, one)
            return (
                f"the same inputs in new memory gave another answer: output {number} at "
                f"{list(index)} was {one[index].item()} and then {two[index].item()} "
                "(a race, a counter kept between calls, or memory read before it is written)"
            )
    return ""


@contextmanager
def one_order() -> Iterator[None]:
    """The library's convolutions add up in one order inside."""
    usual = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = usual
