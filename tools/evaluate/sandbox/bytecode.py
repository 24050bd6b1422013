"""A worker's environment, and where it finds Python's bytecode.

`worker_environment` is what a worker gets to see of the parent's: what it needs to run, no secrets.

Bytecode lies beside the packages, or in a folder of Kernelwright's own. Python compiles a module at
its first import and keeps the result beside it. Some installers leave that to the first import (uv
does), and our workers cannot do it: packages are read-only behind a wall, and the program itself
never imports torch. Each start would compile two thousand files anew. There `filling` imports what
workers import once, outside of walls, with a folder of ours as Python's prefix for bytecode;
workers look there and cannot write. The person's packages stay as they are, and so does a prefix of
the person's own (PYTHONPYCACHEPREFIX), whatever it holds.

Python compares each file's time and size with its source's, so what is out of date is compiled as
if it were not there. Not covered: behind no wall whatever runs can write there, as beside the
packages; and under a prefix the bytecode of what only a user's file imports is not found.
"""

import hashlib
import importlib.util
import os
import site
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path

from kernelwright.tools.languages.base.compile import cache_folder
from kernelwright.tools.runtime import python_path

VARIABLE = "PYTHONPYCACHEPREFIX"
# Imports what workers and guests do: for bytecode, and in a process that they are forked from.
WORKER_IMPORTS = "kernelwright.tools.evaluate.worker.importing"
# What the first import of torch, the first export and the first compilation bring along. Somebody
# may have imported torch once and compiled with it never.
_LOOKED_AT = ("__init__.py", "export/__init__.py", "_inductor/compile_fx.py")
_UNCHECKED, _HEADER_BYTES, _WORD = 1, 16, 2**32


def torch_folder() -> Path | None:
    """Where torch lies, which is not imported for that; None where there is none."""
    try:
        found: ModuleSpec | None = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    return Path(found.origin).parent if found is not None and found.origin else None


def lacking() -> bool:
    """Whether Python, left alone, would compile what workers import at each of their starts."""
    prefix = Path(sys.pycache_prefix) if sys.pycache_prefix else None
    return not _there(prefix)


def own_folder() -> Path:
    """Kernelwright's own folder of bytecode for this Python and this installation of torch."""
    installation = f"{sys.prefix}\0{torch_folder()}"
    name = hashlib.sha256(installation.encode(errors="surrogateescape")).hexdigest()[:12]
    return cache_folder().with_name("bytecode") / f"{sys.implementation.cache_tag}-{name}"


def filled() -> bool:
    """Whether our own folder holds what workers import, and none of it is out of date."""
    return _there(own_folder())


def wanted() -> bool:
    """Whether our own folder is to be used: bytecode is lacking, and nobody chose another place."""
    return sys.pycache_prefix is None and lacking()


def pycache_prefix() -> Path | None:
    """Where workers look for bytecode; None where that is beside the packages."""
    if sys.pycache_prefix:
        return Path(sys.pycache_prefix)
    return own_folder() if wanted() and filled() else None


def _there(prefix: Path | None) -> bool:
    """Whether the bytecode of torch is up to date, under a prefix or beside torch."""
    torch = torch_folder()
    sources = [torch / name for name in _LOOKED_AT] if torch is not None else []
    return all(_fresh(source, prefix) for source in sources if source.exists())


def _fresh(source: Path, prefix: Path | None) -> bool:
    """Whether Python would use the bytecode of a source, by the header that Python reads."""
    # Workers run without -O, whatever the program was started with.
    name = Path(importlib.util.cache_from_source(source, optimization="")).name
    folder = source.parent / "__pycache__"
    if prefix is not None:
        folder = prefix / source.parent.relative_to(source.anchor)
    try:
        with (folder / name).open("rb") as file:
            header = file.read(_HEADER_BYTES)
        stated = source.stat()
    except OSError:
        return False
    if len(header) < _HEADER_BYTES or header[:4] != importlib.util.MAGIC_NUMBER:
        return False
    flags, time, size = (int.from_bytes(header[at : at + 4], "little") for at in (4, 8, 12))
    if flags & _UNCHECKED:  # by the source's hash, if at all
        return True
    return (time, size) == (int(stated.st_mtime) % _WORD, stated.st_size % _WORD)


_NAMES = {
    "PATH", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TERM", "LD_LIBRARY_PATH",
    "VIRTUAL_ENV", "CC", "CXX", VARIABLE,
}  # fmt: skip
_PREFIXES = (
    "LC_", "CUDA_", "NVIDIA_", "OMP_", "GOMP_", "KMP_", "MKL_", "TORCH_", "TORCHINDUCTOR_",
    "PYTORCH_", "TRITON_", "NCCL_",
)  # fmt: skip
_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")
# glibc hands freed memory back by rules that depend on what lies on top of the heap, so the same
# eager module paid for thousands of page faults a call in one process and for none in the next
# (layer norm and GELU: 16.0 ms alone, 3.7 ms beside a candidate). What is smaller than 32 MiB is
# kept; what is larger is fresh for everybody.
_MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "MALLOC_TOP_PAD_": str(2**28),
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
}


def worker_environment(
    scratch: Path, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """An allow-list of the environment, with home and every cache moved into `scratch`.

    Inductor compiles in the worker itself: its pool of processes would outlive a killed worker.
    """
    source = os.environ if environment is None else environment
    kept = {name: value for name, value in source.items() if _allowed(name)}
    return (
        _bytecode()
        | kept
        | _MEMORY
        | {
            "PYTHONPATH": python_path(source.get("PYTHONPATH", "")),
            "PYTHONUNBUFFERED": "1",
            "HOME": str(_folder(scratch / "home")),
            "KERNELWRIGHT_HOME": str(scratch / "home"),
            # Packages that were installed for the user are still found.
            "PYTHONUSERBASE": site.getuserbase(),
            "TMPDIR": str(_folder(scratch / "tmp")),
            "TORCHINDUCTOR_CACHE_DIR": str(_folder(scratch / "inductor")),
            "TRITON_CACHE_DIR": str(_folder(scratch / "triton")),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
    )


def _bytecode() -> dict[str, str]:
    prefix = pycache_prefix()
    return {VARIABLE: str(prefix)} if prefix is not None else {}


def _allowed(name: str) -> bool:
    if any(word in name.upper() for word in _SECRETS):
        return False
    return name in _NAMES or name.startswith(_PREFIXES)


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
