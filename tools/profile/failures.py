"""Why there are no counters, read from what ncu said, and what would help at the least cost."""

import re

from kernelwright.tools.types.profile import Missing

# The first that fits; texts as Nsight Compute prints them.
_KNOWN = (
    (
        r"ERR_NVGPUCTRPERM|permission to access NVIDIA GPU Performance Counters",
        "this user may not read the GPU's performance counters",
        "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0",
    ),
    (
        r"out of memory|OutOfMemory|Failed to (?:save|restore|back ?up) .*memory",
        "memory ran out while the launch was replayed",
        "free memory of the device, or profile a smaller shape",
    ),
    (
        r"driver resource was unavailable|ProfilerInUse|DCGM|already (?:being )?profil",
        "another profiler holds the counters",
        "stop it, or pause DCGM: dcgmi profiling --pause",
    ),
    (
        r"LibraryNotLoaded|InterfaceVersionMismatch|driver is not compatible|"
        r"[Ff]ailed to initialize the profiler|not supported on|UnsupportedGpu|InsufficientDriver",
        "Nsight Compute does not work with this driver or device",
        "install the Nsight Compute of the driver's CUDA version",
    ),
)
_NOTHING = "No kernels were profiled"
_ERROR = re.compile(r"^==ERROR== *(.+)$", re.MULTILINE)
_SETTLED = "KERNELWRIGHT_NCU names the one to use"


def failure(output: str) -> Missing:
    """Why ncu wrote no counters."""
    for pattern, why, remedy in _KNOWN:
        if re.search(pattern, output):
            return counters_missing(why, remedy)
    if _NOTHING in output and not _ERROR.search(output):
        return nothing_launched()
    said = _ERROR.search(output)
    words = said[1].strip() if said else _last_line(output)
    return counters_missing(f"Nsight Compute failed: {words[:200]}", f"try it by hand; {_SETTLED}")


def nothing_launched() -> Missing:
    """It worked, and there was nothing to count."""
    return counters_missing(
        "the candidate launched no kernel in its profiled call", "none is needed"
    )


def not_found() -> Missing:
    """There is no ncu here."""
    return counters_missing(
        "Nsight Compute (ncu) was not found",
        "install it (it comes with the CUDA toolkit), or set KERNELWRIGHT_NCU to its path",
    )


def too_slow(limit_s: float) -> Missing:
    """It was stopped."""
    return counters_missing(
        f"Nsight Compute did not finish within {limit_s:g} s and was stopped",
        "none is needed: another candidate is tried anew",
    )


def unreadable(problem: str) -> Missing:
    """It ended well, but what it printed makes no sense."""
    return counters_missing(
        f"what Nsight Compute printed cannot be read: {problem}",
        f"Nsight Compute 2025.3 is known to work; {_SETTLED}",
    )


def counters_missing(why: str, remedy: str) -> Missing:
    """A missing step of counters."""
    return Missing(step="counters", why=why, remedy=remedy)


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
