"""What hides files behind a wall where bubblewrap is missing.

Landlock leaves what bubblewrap would bind, and nothing else; where a kernel lacks that too, mounts
cover homes and the best-known secrets at least.
"""

import ctypes
import sys
from pathlib import Path

from kernelwright.tools.runtime import SOURCES

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# From here on Landlock lets files be moved between folders, as compilers' caches do.
_LANDLOCK, _LANDLOCK_OLDEST = 444, 2
# Of the system's, for whom mounts hide what Landlock does not.
_SECRETS = (
    "/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/kubernetes", "/run/secrets",
    "/run/docker.sock",
)  # fmt: skip
_COVERED = (
    ".ssh", ".aws", ".azure", ".config", ".docker", ".gnupg", ".kube", ".netrc", ".git-credentials",
    ".pypirc", ".npmrc", ".huggingface", ".cache/huggingface/token", ".bash_history",
)  # fmt: skip


def landlock() -> bool:
    """Whether this kernel hides files from a process that asks for it."""
    version: int = ctypes.CDLL(None, use_errno=True).syscall(_LANDLOCK, None, ctypes.c_size_t(0), 1)
    return version >= _LANDLOCK_OLDEST


def covered(needed: list[Path]) -> list[str]:
    """Homes in which nothing lies that is needed, where keys usually lie, secrets of the system."""
    homes = [Path("/root"), *sorted(Path("/home").glob("*"))]
    inside = [place.resolve() for place in (*needed, Path(sys.executable))]
    whole = [home for home in homes if not any(place.is_relative_to(home) for place in inside)]
    places = [Path.home() / name for name in _COVERED] + [Path(name) for name in _SECRETS]
    kept = [place for place in places if not any(place.is_relative_to(home) for home in whole)]
    return [str(place.resolve()) for place in (*whole, *kept) if _there(place)]


def _there(place: Path) -> bool:
    try:
        return place.exists()
    except OSError:  # in a folder that this user may not enter
        return False


def _is_imported(place: Path) -> bool:
    """Whether Python looks for it in the folder that it lies in: a file, or a package."""
    if place.is_file() or (place / "__init__.py").exists():
        return True
    beside = (place.parent / name for name in ("pyproject.toml", "setup.py", "setup.cfg"))
    return place.parent.name == "src" or any(map(Path.exists, beside))


def open_places(
    scratch: Path, needed: list[Path], readable: tuple[Path, ...], device: str
) -> dict[str, list[str]]:
    """What Landlock leaves, by what may be done with it (see `launch.hide`).

    The folder that a file or package lies in is listed with all that lies below it, names alone:
    Python looks there for modules.

    Args:
        scratch: The one folder that can be written.
        needed: What every process reads: system, Python, ourselves.
        readable: What this one may read beside that.
        device: `cuda` leaves the device's nodes.
    """
    nodes = [Path("/dev") / name for name in _DEVICES]
    nodes += sorted(Path("/dev").glob("nvidia*")) if device == "cuda" else []
    kinds = {
        "read": [*needed, *readable, Path("/proc")],
        # A GPU's driver names its threads.
        "write": [scratch, *nodes, Path("/proc/self")],
        "share": [Path("/dev/shm")],
        "list": [SOURCES, *(place.parent for place in readable if _is_imported(place))],
    }
    return {
        kind: list(dict.fromkeys(str(place) for place in places)) for kind, places in kinds.items()
    }
