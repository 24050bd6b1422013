"""Takes over what torch.compile made in another process, so that compiling again is a look-up.

The folders can be read here and not be written. What is missing there is compiled as ever.
"""

import contextlib
import importlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, fx, nn

from kernelwright.tools.evaluate.timing.baselines import keep_to_oneself
from kernelwright.tools.runtime import imports_out_of_sight
from kernelwright.tools.types import Task

# What a forward is given: a tensor, or a plain Python scalar that stays fixed.
Placed = Tensor | bool | int | float | str | None

_OWN = {"inductor": "TORCHINDUCTOR_CACHE_DIR", "triton": "TRITON_CACHE_DIR"}

# What torch imports when it compiles for the first time; a release may lack one of them.
_MODULES = (
    "_dynamo", "_inductor.compile_fx", "_inductor.graph", "_inductor.codegen.triton",
    "_inductor.codegen.cuda_combined_scheduling", "_inductor.fx_passes.joint_graph",
    "_inductor.fx_passes.pad_mm", "_inductor.fx_passes.fuse_attention",
    "_inductor.runtime.triton_heuristics",
)  # fmt: skip


def import_compiler() -> None:
    """Do what torch does at the first compilation only, which takes seconds and no device.

    That is imports, and fingerprints of torch's and Triton's own sources, with which every look
    into a cache of graphs begins. Nothing is compiled: the tracer would open the device.
    """
    with imports_out_of_sight():
        for name in _MODULES:
            with contextlib.suppress(ImportError):
                importlib.import_module(f"torch.{name}")
    for module, name in (
        ("torch._inductor.codegen.common", "init_backend_registration"),
        ("torch._inductor.codecache", "torch_key"),
        ("torch._inductor.runtime.triton_compat", "triton_key"),
    ):
        with contextlib.suppress(Exception):  # without Triton its stand-in raises
            getattr(importlib.import_module(module), name)()


class _NotRunError(Exception):
    """Ends a compilation before what it made is run."""


def place(task: Task, device: str) -> list[Placed]:
    """A task's inputs without their memory: a compilation looks at nothing else of them.

    The device has to have room for one of them at a time, and for a moment only: the judge works
    there meanwhile, and what it keeps in its own caches is not free.

    Raises:
        ValueError: an input is no plain tensor.
    """
    placed: list[Placed] = []
    for spec in task.inputs:
        if spec.tensor is None:
            placed.append(spec.scalar)
            continue
        if 0 in (spec.tensor.strides or ()):
            raise ValueError(f"input {spec.name} is no plain tensor")
        dtype: torch.dtype = getattr(torch, spec.tensor.dtype.value)
        shape, strides = spec.tensor.shape, spec.tensor.strides
        usual = torch.empty(shape, device="meta").stride()
        tensor = torch.empty_strided(shape, strides or usual, dtype=dtype, device=device)
        tensor.untyped_storage().resize_(0)
        placed.append(tensor)
        if device != "cpu":
            torch.cuda.empty_cache()
    return placed


def compile_only(module: nn.Module, placed: Sequence[Placed]) -> bool:
    """Leave torch.compile's default graph of a module in the cache, and run nothing of it.

    Of a forward that does not come as one graph only the first part is made.

    Returns:
        Whether that is all there is to compile.
    """
    keep_to_oneself()
    reached, made = _compiled(module, placed, fullgraph=True)
    if not reached:
        _compiled(module, placed, fullgraph=False)
    return made


def _compiled(module: nn.Module, placed: Sequence[Placed], *, fullgraph: bool) -> tuple[bool, bool]:
    """Whether the compiler was given a graph, and whether it made it."""
    from torch._inductor.compile_fx import compile_fx

    reached = made = False

    def backend(graph: fx.GraphModule, inputs: Sequence[Tensor]) -> Callable[..., object]:
        nonlocal reached, made
        reached = True
        compile_fx(graph, list(inputs))
        made = True
        raise _NotRunError

    # Whatever went wrong is found, and said, when it is built as a whole.
    with contextlib.suppress(Exception), torch.no_grad():
        torch.compile(module, backend=backend, fullgraph=fullgraph)(*placed)
    torch._dynamo.reset()
    return reached, made


def take_over(folders: Sequence[Path]) -> None:
    """Copy every folder's caches into this process's own; one that is not to be seen is left."""
    for folder in folders:
        for name, variable in _OWN.items():
            own = os.environ.get(variable)
            if own is None or not (folder / name).is_dir():
                continue
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(folder / name, own, dirs_exist_ok=True)
