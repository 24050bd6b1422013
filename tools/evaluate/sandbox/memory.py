"""How much memory there is, and what one process holds of it."""

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup/memory.max")


def machine_bytes() -> int:
    """Memory that this machine, or the control group around us, has at all."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CGROUP.read_text(encoding="utf-8").strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def resident_bytes(pid: int) -> int:
    """What the process holds right now; 0 when it is gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
