"""What the forward's arguments are called."""

from __future__ import annotations

import inspect
import keyword

from torch import nn

from kernelwright.tools.tasks.build import FunctionModule


def argument_names(module: nn.Module, count: int) -> list[str]:
    """One distinct identifier for each of `count` positional arguments, in order."""
    target = module.function if isinstance(module, FunctionModule) else module.forward
    try:
        parameters = list(inspect.signature(target).parameters.values())  # type: ignore[arg-type]
    except (TypeError, ValueError):
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in positional][:count]
    rest = [f"input_{position}" for position in range(len(names), count)]
    return [f"{name}_" if keyword.iskeyword(name) else name for name in [*names, *rest]]
