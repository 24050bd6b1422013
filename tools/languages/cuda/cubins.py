"""Compiles an export's CUDA kernels at first use, and keeps the cubin for the next process.

An export holds the end of this text beside the launcher; it uses nothing of Kernelwright's, and no
driver. NVRTC takes 3 to 4 s of a processor (an AMD EPYC, for sm_90a) for the kernels of twelve
layers in float32 and 8 s for a diffusion block's backward, which every process would spend. What is
not covered: kernels that need separate linking.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import tempfile
from pathlib import Path

from kernelwright.tools.languages.base.export_cache import cache_folder

# --- exported from here ---

CUDA_PACKAGES = ("cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime")
DIGEST_BYTES = 32  # of what follows, before it: a file that was cut off is as good as none


def cubin_of(source: str, header: str, architecture: str) -> bytes:
    """The kernels' cubin: kept from an earlier process, or compiled and kept.

    Args:
        source: The kernels' text.
        header: The text of kernelwright.cuh, which the kernels include.
        architecture: As NVRTC names it, for example "sm_90a".

    Raises:
        ImportError: When cuda-core is not installed, and the cubin was not kept.
        Exception: NVRTC's own, of what it refuses.
    """
    parts = (source, header, architecture, *map(version_of, CUDA_PACKAGES))
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    folder = cache_folder()
    if folder is None:
        return compile_cubin(source, header, architecture)
    path = folder / f"{key}.cubin"
    cubin = kept_cubin(path)
    if cubin is None:
        cubin = compile_cubin(source, header, architecture)
        with contextlib.suppress(OSError):  # a full disk keeps nothing, and the kernels run
            keep_cubin(path, cubin)
    return cubin


def kept_cubin(path: Path) -> bytes | None:
    """What is kept there; None where it is not there, or not whole."""
    with contextlib.suppress(OSError):
        kept = path.read_bytes()
        digest, cubin = kept[:DIGEST_BYTES], kept[DIGEST_BYTES:]
        return cubin if hashlib.sha256(cubin).digest() == digest else None
    return None


def keep_cubin(path: Path, cubin: bytes) -> None:
    """Write it by one rename: another process may do the same."""
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        made = Path(scratch, path.name)
        made.write_bytes(hashlib.sha256(cubin).digest() + cubin)
        os.replace(made, path)


def version_of(package: str) -> str:
    """A package's version; nothing where it is not installed, or CUDA is installed otherwise."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return ""


def compile_cubin(source: str, header: str, architecture: str) -> bytes:
    """Compile with NVRTC; needs no GPU. Arguments and errors are those of `cubin_of`."""
    from cuda import pathfinder
    from cuda.core import Program, ProgramOptions

    found = (pathfinder.find_nvidia_header_directory(name) for name in ("cudart", "cccl"))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kernelwright.cuh").write_text(header, encoding="utf-8")
        options = ProgramOptions(
            name="kernel.cu",
            std="c++17",
            arch=architecture,
            include_path=[folder, *(str(path) for path in found if path)],
            lineinfo=True,
            no_source_include=True,
        )
        code = Program(source, code_type="c++", options=options).compile("cubin").code
    return bytes(code)
