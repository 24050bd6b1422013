"""The backward of a module as a task of its own: its file, and what its tensors stand for.

The file is a module like any other, so that the same search finds kernels for it. It is given what
the forward read, the forward's results, and the gradients of these; what it needs besides it
computes again. Where that would take products, the step has a forward of its own, one more such
file, which returns buffers' new values and what it keeps behind its results.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from kernelwright.tools.types.value import Value

ReadKind = Literal["input", "weight", "result", "gradient", "kept"]


class BackwardRead(Value):
    """One argument of the backward: an input or weight by its name, a result, or its gradient.

    What is kept is called by its number among all that is. Of several results `name` is the place
    among all of them; a lone one has none.
    """

    kind: ReadKind
    name: str = ""


class BackwardGives(Value):
    """The gradient of one input or weight.

    `place` is where the backward's file returns it; None where it is the gradient of a result
    itself, of the one that `of` names.
    """

    kind: ReadKind
    name: str
    place: int | None
    of: str = ""


class Backward(Value):
    """The backward of a task.

    Attributes:
        source: the text of its file.
        reads: its arguments in order.
        gives: the gradients, by what they belong to.
        forward: the text of the step's own forward; "" where the module's own is enough.
        forward_reads: its arguments in order.
        kept: how many tensors it returns behind its results and the updates.
        updates: the buffers that a forward writes, in the order in which the step's own forward
            returns their new values behind its results.
        forward_ms: the reference's forward with autograd recording, the least of several calls.
        step_ms: the same with its backward.
        eager_forward_ms: the forward with nothing recorded.
        eager_step_forward_ms: the operators of the step's own forward as PyTorch runs them, which
            on a GPU may take far longer than the module; 0 where there is none.
        eager_backward_ms: likewise those of the backward's file.

    The times were taken in turns, so that they can be compared with each other.
    """

    source: str
    reads: tuple[BackwardRead, ...]
    gives: tuple[BackwardGives, ...]
    forward: str = ""
    forward_reads: tuple[BackwardRead, ...] = ()
    kept: int = 0
    updates: tuple[str, ...] = ()
    forward_ms: float = Field(default=0, ge=0)
    step_ms: float = Field(default=0, ge=0)
    eager_forward_ms: float = Field(default=0, ge=0)
    eager_step_forward_ms: float = Field(default=0, ge=0)
    eager_backward_ms: float = Field(default=0, ge=0)
