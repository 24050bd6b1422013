"""Takes over what torch.compile made in another process, so that compiling again is a look-up.

The folders can be read here and not be written. What is missing there is compiled as ever.
"""

import contextlib
import importlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

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


def take_over(folders: Sequence[Path]) -> None:
    """Copy every folder's caches into this process's own; one that is not to be seen is left."""
    for folder in folders:
        for name, variable in _OWN.items():
            own = os.environ.get(variable)
            if own is None or not (folder / name).is_dir():
                continue
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(folder / name, own, dirs_exist_ok=True)
