"""The command line of bubblewrap: an empty root into which only what is needed is bound.

Everything is read-only but the scratch folder and small file systems in memory on /tmp and
/dev/shm. Home, other runs, other processes, sockets of services and the network are not there.

`beside` finds what a user's file needs of the files beside it, so that a wall lets in these and no
others. A file may import modules that lie in its folder, and these may import further ones. A
source that asks where it lies (`__file__`) reads files of its folder, which is then let in as a
whole unless somebody's home would come with it. Not seen: names that are put together at run time.
"""

import ast
import os
import shutil
import site
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from kernelwright.tools.evaluate.sandbox.bytecode import pycache_prefix
from kernelwright.tools.runtime import SOURCES

_SYSTEM = ("/usr", "/nix/store", "/sys")
_MERGED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "nsswitch.conf",
    "passwd", "group", "nvidia", "cufile.json",
)  # fmt: skip
# Root may write to these through a new /proc without any capability.
_COVERED_PROC = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/acpi")
_LIBRARIES = ("LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")


def found() -> str | None:
    """Where bubblewrap is, if it is installed."""
    return shutil.which("bwrap")


def arguments(
    scratch: Path,
    *,
    readable: Iterable[Path],
    device: str,
    memory_bytes: int,
    strict: bool,
    users: bool = True,
) -> list[str]:
    """Everything up to the command.

    Args:
        scratch: the one folder that can be written.
        readable: what is bound read-only beside the system and the interpreter.
        device: `cuda` binds the device's nodes.
        memory_bytes: the size of each file system in memory.
        users: in a user namespace; only root can do without.
        strict: forbid further user namespaces too, which needs bubblewrap 0.8.
    """
    bwrap = found() or "bwrap"
    line = [bwrap, "--unshare-net", "--unshare-pid", "--unshare-ipc"]
    line += ["--unshare-uts", "--unshare-cgroup-try", "--die-with-parent", "--as-pid-1"]
    line += ["--cap-drop", "ALL"]
    size = ["--size", str(memory_bytes)] if strict else []
    line += ["--unshare-user"] if users else []
    line += ["--disable-userns"] if strict and users else []
    line += ["--proc", "/proc", "--dev", "/dev", *size, "--tmpfs", "/dev/shm"]
    line += [*size, "--tmpfs", "/tmp"]
    for place in _COVERED_PROC:
        line += ["--ro-bind-try", place, place]
    for merged in _MERGED:
        if Path(merged).is_symlink():
            line += ["--symlink", os.readlink(merged), merged]
        elif Path(merged).exists():
            line += ["--ro-bind", merged, merged]
    for path in _outermost([*map(Path, _SYSTEM), *interpreter(), *readable]):
        line += ["--ro-bind", str(path), str(path)]
    for name in _SETTINGS:
        line += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    if device == "cuda":
        for node in sorted(Path("/dev").glob("nvidia*")):
            line += ["--dev-bind", str(node), str(node)]
    return [*line, "--bind", str(scratch), str(scratch), "--chdir", str(scratch)]


def interpreter() -> list[Path]:
    """Python, its packages and ourselves; never a folder that holds the home."""
    listed = [sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages()]
    listed += [site.getusersitepackages(), str(Path(sys.executable).resolve().parents[1])]
    listed += [str(pycache_prefix() or "")]  # compiled, modules take a third as long to import
    here = str(Path.cwd())  # what lies where the person happens to stand is not ours to show
    listed += [entry for entry in sys.path if Path(entry).is_absolute() and entry != here]
    listed += [part for name in _LIBRARIES for part in os.environ.get(name, "").split(":")]
    package = SOURCES / "kernelwright"  # in a checkout its parts are links to folders beside it
    ours = [package, *((package / part).resolve() for part in ("tools", "profiles"))]
    places = [Path(entry) for entry in listed if entry and Path(entry) != SOURCES]
    return [*ours, *(place for place in places if not holds_home(place))]


def holds_home(place: Path) -> bool:
    """Whether somebody who may read the place may read the home folder."""
    return Path.home().resolve().is_relative_to(place.resolve())


def _outermost(places: Iterable[Path]) -> list[Path]:
    """Those that exist, without those that lie in others."""
    there = sorted({place.absolute() for place in places if place.exists()}, key=lambda p: p.parts)
    kept: list[Path] = []
    for place in there:
        if not any(place.is_relative_to(other) for other in kept):
            kept.append(place)
    return kept


_MOST_FILES = 200


def beside(source: str, path: str) -> tuple[Path, ...]:
    """Files and folders beside a user's file that its source refers to, sorted."""
    folder = Path(path).absolute().parent
    found: set[Path] = set()
    waiting = [source]
    while waiting and len(found) < _MOST_FILES:
        text = waiting.pop()
        if "__file__" in text and not holds_home(folder):
            return (folder,)
        for name in _imported(text):
            place = _module(folder, name)
            if place is not None and place not in found:
                found.add(place)
                waiting += _sources(place)
    return tuple(sorted(found))


def _imported(source: str) -> Iterator[str]:
    """The first names of what a source imports."""
    try:
        parsed = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # whoever reads the file says what is wrong with it
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def _module(folder: Path, name: str) -> Path | None:
    for place in (folder / f"{name}.py", folder / name):
        if place.exists() and (place.suffix == ".py" or any(place.glob("*.py"))):
            return place
    return None


def _sources(place: Path) -> list[str]:
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))[:_MOST_FILES]
    texts = []
    for file in files:
        try:
            texts.append(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
    return texts
