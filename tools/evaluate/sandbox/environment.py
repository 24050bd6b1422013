"""What a worker gets to see of the parent's environment: what it needs to run, and no secrets."""

import os
import site
from collections.abc import Mapping
from pathlib import Path

from kernelwright.tools.evaluate.sandbox import bytecode

_ROOT = Path(__file__).resolve().parents[3]
_NAMES = {
    "PATH", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TERM", "LD_LIBRARY_PATH",
    "VIRTUAL_ENV", "CC", "CXX", bytecode.VARIABLE,
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
            "PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), source.get("PYTHONPATH", "")))),
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
    prefix = bytecode.pycache_prefix()
    return {bytecode.VARIABLE: str(prefix)} if prefix is not None else {}


def _allowed(name: str) -> bool:
    if any(word in name.upper() for word in _SECRETS):
        return False
    return name in _NAMES or name.startswith(_PREFIXES)


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
