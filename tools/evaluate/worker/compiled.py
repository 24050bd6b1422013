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


def import_compiler() -> None:
    """Import what torch imports at the first compilation, which takes seconds and no device."""
    importlib.import_module("torch._inductor.compile_fx")
    importlib.import_module("torch._dynamo")


def take_over(folders: Sequence[Path]) -> None:
    """Copy every folder's caches into this process's own; one that is not to be seen is left."""
    for folder in folders:
        for name, variable in _OWN.items():
            own = os.environ.get(variable)
            if own is None or not (folder / name).is_dir():
                continue
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(folder / name, own, dirs_exist_ok=True)
