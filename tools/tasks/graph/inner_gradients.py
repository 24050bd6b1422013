"""Finds where a forward takes gradients itself, once it could not be traced.

What torch raises then is about its own insides. The forward is run once more, watched; what it
raises itself is of no interest. Not covered: gradients that code in C++ takes.
"""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from kernelwright.tools.tasks.refusals import of_python

_TRANSFORMS = (torch._C._functorch.TransformType.Grad, torch._C._functorch.TransformType.Jvp)
_AUTOGRAD = (torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward)


def inner_gradient(module: nn.Module, arguments: Sequence[object]) -> str:
    """By what a forward takes gradients, and where: `torch.func at model.py:8`; "" if it does not.

    Args:
        module: real or fake, as the arguments are.
        arguments: of one call, flat.
    """
    watch = _Watch()
    with contextlib.suppress(Exception), torch.no_grad(), watch:
        module(*arguments)
    return watch.found


class _Watch(TorchFunctionMode):
    """Notes the first operator inside a derivative of torch.func, or call of autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.found = ""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Call `func` as it is."""
        level = torch._C._functorch.peek_interpreter_stack()
        by = "torch.func" if level is not None and level.key() in _TRANSFORMS else ""
        by = "autograd" if func in _AUTOGRAD else by
        if by and not self.found:
            self.found = f"{by}{_line()}"
        return func(*args, **(kwargs or {}))


def _line() -> str:
    """` at model.py:8`, the user's own last line on the stack; "" where there is none."""
    frames = [at for at in traceback.extract_stack() if os.sep in at.filename]
    own = [at for at in frames if not of_python(at.filename)]
    return f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
