"""The backend `kernelwright` of torch.compile: Inductor, with verified kernels where there are any.

Left to Inductor alone are graphs whose inputs need gradients, graphs of unknown sizes (a second
batch size makes torch.compile trace one), autocast, and graphs of several devices. Where Inductor
has no compiler, the graph runs as PyTorch does, with its kernels in place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import torch
from torch import fx

from kernelwright.profiles.load import Hardware
from kernelwright.tools.dynamo.report import Spliced, next_graph, tell
from kernelwright.tools.dynamo.splice import with_kernels
from kernelwright.tools.hardware import detect
from kernelwright.tools.memory import BROKEN
from kernelwright.tools.runtime import home
from kernelwright.tools.types import EnvironmentLacksError, RefusedError

log = logging.getLogger("kernelwright")

Compiled = Callable[..., object]
Given = torch.Tensor | int | torch.SymInt | None


def backend(
    gm: fx.GraphModule,
    inputs: Sequence[Given],
    *,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Compiled:
    """Compile one graph, as `torch.compile(model, backend="kernelwright")` asks for it.

    Args:
        gm: what dynamo traced.
        inputs: of the call that it was traced on.
        mode: Inductor's, as "max-autotune".
        options: Inductor's.
    """
    number = next_graph()
    why = _unfit(inputs)
    found: fx.GraphModule | None = None
    if not why:
        try:
            found = with_kernels(gm, inputs, number, _hardware(inputs), home())
        except RefusedError as refused:
            why = refused.refusal.sentence
        except (EnvironmentLacksError, *BROKEN) as error:
            why = f"the library or the device cannot be read: {error}"
        except Exception as error:  # ours or torch's: a model that compiles without us still does
            log.exception("graph %d could not be looked at", number)
            why = f"it could not be looked at: {type(error).__name__}"
    if why:
        tell(Spliced(graph=number, why=why))
    return _inductor(found or gm, inputs, mode, options)


def _unfit(inputs: Sequence[Given]) -> str:
    """Why a graph is not looked at; "" where it is."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if any(isinstance(value, torch.SymInt) for value in inputs) or any(
        not isinstance(size, int) for tensor in tensors for size in tensor.shape
    ):
        return "its sizes are not known"
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return "its inputs need gradients; call it under torch.no_grad()"
    kinds = {tensor.device for tensor in tensors}
    if len(kinds) != 1 or next(iter(kinds)).type not in ("cpu", "cuda"):
        return "its tensors are not on one CPU or GPU"
    if torch.is_autocast_enabled(next(iter(kinds)).type):
        return "it runs under autocast"
    return ""


def _hardware(inputs: Sequence[Given]) -> Hardware:
    tensor = next(value for value in inputs if isinstance(value, torch.Tensor))
    return detect(tensor.device.type)


def _inductor(
    gm: fx.GraphModule,
    inputs: Sequence[Given],
    mode: str | None,
    options: Mapping[str, object] | None,
) -> Compiled:
    """Inductor's; the graph as it is where Inductor finds no compiler."""
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.exc import InvalidCxxCompiler, TritonMissing

    patches = {**(list_mode_options(mode) if mode and mode != "default" else {}), **(options or {})}
    try:
        made = compile_fx(gm, list(inputs), config_patches=patches or None)
    except Exception as error:
        causes = (error, error.__cause__, getattr(error, "inner_exception", None))
        if not any(isinstance(item, InvalidCxxCompiler | TritonMissing) for item in causes):
            raise
        log.warning("Inductor has no compiler here, so the graph runs as PyTorch does")
        return gm.forward
    return cast("Compiled", made)
