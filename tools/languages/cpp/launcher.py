"""Builds C++ kernels at first use, loads them, and calls them through ctypes without the GIL.

An export holds the end of this text and the judge loads kernels by it. A built library is kept
under a name made of everything that decides what is in it: source, compiler, flags, processor. A
call runs to its end; there is no grid. What is not covered: compilers other than g++ and those that
take its options.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch

from kernelwright.tools.languages.base.export_cache import KernelUnavailableError, cache_folder

# --- exported from here ---


def processor() -> str:
    """What the processor is and can do: a library built with -march=native is for it alone."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    known = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    return "\n".join([platform.machine(), platform.processor(), *known])


def openmp_runtime() -> list[str]:
    """Linker arguments for the OpenMP library that torch has already loaded.

    A second runtime in the process would bring a second pool of threads.
    """
    package = Path(torch.__file__).parent
    for folder in (package / "lib", package.parent / "torch.libs"):
        for library in sorted(folder.glob("libgomp*.so*")):
            return [str(library)]
    return ["-lgomp"]


def known_here(flags: tuple[str, ...]) -> list[str]:
    """The flags; on other machines without those that only compilers for x86-64 know."""
    if platform.machine() == "x86_64":
        return list(flags)
    return [flag for flag in flags if not flag.startswith("-mprefer-vector-width")]


def run_compiler(command: list[str]) -> None:
    """Run one compiler command; KernelUnavailableError carries what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip()[-2000:]
        raise KernelUnavailableError(f"{Path(command[0]).name} failed:\n{words}")


def build_library(
    source: str, header: str, compile_flags: tuple[str, ...], link_flags: tuple[str, ...]
) -> Path:
    """Compile the kernels unless the same library is there already, and return its path."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise KernelUnavailableError(
            "there is no C++ compiler; install g++ (apt-get install g++) or set CXX"
        )
    compiling = known_here(compile_flags)
    linking = [*link_flags, *openmp_runtime(), "-lm"]
    parts = (source, header, *compiling, *linking, compiler, processor())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    folder = cache_folder() or Path(tempfile.mkdtemp(prefix="kernelwright-export-"))
    library = folder / f"{key}.so"
    if library.exists():
        return library
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        Path(scratch, "kernelwright.hpp").write_text(header, encoding="utf-8")
        kernel, compiled, linked = (Path(scratch, f"kernel.{end}") for end in ("cpp", "o", "so"))
        kernel.write_text(source, encoding="utf-8")
        paths = ["-I", scratch, "-c", str(kernel), "-o", str(compiled)]
        run_compiler([compiler, *compiling, *paths])
        run_compiler([compiler, str(compiled), "-o", str(linked), *linking])
        os.replace(linked, library)  # atomic: another process may build the same
    return library


def load_kernels(library: Path, signatures: dict[str, str]) -> SimpleNamespace:
    """The library's functions as attributes.

    Args:
        library: The shared object.
        signatures: For every function, its parameters as letters: `P` a pointer, else the
            letter of the `struct` module for the C type.
    """
    types = {
        "P": ctypes.c_void_p,
        "f": ctypes.c_float,
        "d": ctypes.c_double,
        "?": ctypes.c_bool,
        "i": ctypes.c_int32,
        "I": ctypes.c_uint32,
        "q": ctypes.c_int64,
        "Q": ctypes.c_uint64,
    }
    loaded = ctypes.CDLL(str(library))
    kernels = SimpleNamespace(device=torch.device("cpu"))
    for name, letters in signatures.items():
        function = getattr(loaded, name)
        function.argtypes = [types[letter] for letter in letters]
        function.restype = None
        setattr(kernels, name, function)
    return kernels
