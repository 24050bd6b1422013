"""How many threads of a kernel fit on a multiprocessor, and which resource is the limit.

The rules are those of the CUDA C++ Programming Guide (Occupancy Calculator): registers are given
out to warps in units of 256, shared memory in units of 128 bytes with 1 KiB kept by the system
for every block.
"""

from kernelwright.profiles.load import Hardware
from kernelwright.tools.types import CompileReport, Value

_WARP = 32
_REGISTER_UNIT = 256
_SHARED_UNIT_BYTES = 128
_SHARED_RESERVED_BYTES = 1024


class Occupancy(Value):
    """Resident threads as a share of what the multiprocessor holds, and the limiting resource."""

    fraction: float
    blocks_per_sm: int
    limit: str


def occupancy(
    report: CompileReport, threads: int, hardware: Hardware, *, dynamic_bytes: int = 0
) -> Occupancy | None:
    """Occupancy of a kernel launched with blocks of `threads`; None where limits are unknown.

    `dynamic_bytes` is the launch's dynamic shared memory, which no compile report knows.
    """
    if hardware.threads_per_sm is None or hardware.registers_per_sm is None or threads < 1:
        return None
    warps = -(-threads // _WARP)
    limits = {
        "threads": hardware.threads_per_sm // (warps * _WARP),
        "blocks": hardware.blocks_per_sm or 16,
    }
    if report.registers:
        per_warp = _round_up(report.registers * _WARP, _REGISTER_UNIT)
        limits["registers"] = hardware.registers_per_sm // per_warp // warps
    if hardware.shared_kib_per_sm:
        asked = (report.shared_bytes or 0) + dynamic_bytes
        used = _round_up(asked, _SHARED_UNIT_BYTES) + _SHARED_RESERVED_BYTES
        limits["shared memory"] = hardware.shared_kib_per_sm * 1024 // used
    limit, blocks = min(limits.items(), key=lambda item: item[1])
    fraction = min(1.0, blocks * warps * _WARP / hardware.threads_per_sm)
    return Occupancy(fraction=fraction, blocks_per_sm=blocks, limit=limit)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
