"""The command line of bubblewrap: an empty root into which only what is needed is bound.

Everything is read-only but the scratch folder and small file systems in memory on /tmp and
/dev/shm. Home, other runs, other processes, sockets of services and the network are not there.

Of a project that is let in, its history and what looks like credentials stay out of sight
(`tools.tasks.project`).

Which wall stands between code of others and this machine, found by starting a process.

Three kinds. `bubblewrap`: an empty root with read-only bindings, no network, own processes. Of our
own `namespaces` where that is missing: no network, own processes, nothing writable but the
scratch. `none`: a plain process that is ended with its descendants, and is labelled so. Without
bubblewrap, Landlock (Linux 5.19 and later, needs no privileges) hides the same files from both: all
but the system, Python, ourselves and what belongs to the task. Each is tried once a program: a
process behind it tells what it can reach, and the label says just that.

`KERNELWRIGHT_ISOLATION` chooses: `auto` (the best that works), `require` (bubblewrap, or nothing
runs), `off` (plain processes). How to start a process behind the wall: `walled.start_walled`.
"""

import json
import logging
import os
import shutil
import site
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

from kernelwright.tools.evaluate.rules import Defence, Rules
from kernelwright.tools.evaluate.sandbox.bytecode import pycache_prefix, worker_environment
from kernelwright.tools.evaluate.sandbox.hiding import covered, landlock, open_places
from kernelwright.tools.runtime import SOURCES, home
from kernelwright.tools.tasks.project import secrets
from kernelwright.tools.types import EnvironmentLacksError, Isolation, Value, WallKind

_SYSTEM = ("/usr", "/nix/store", "/opt", "/sys")
# What compilers of kernels and of torch.compile call, wherever a system keeps it.
_TOOLS = ("cc", "gcc", "g++", "c++", "clang", "clang++", "ld", "as", "nvcc", "ptxas")
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
    line += _out_of_sight(readable, scratch)
    for name in _SETTINGS:
        line += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    if device == "cuda":
        for node in sorted(Path("/dev").glob("nvidia*")):
            line += ["--dev-bind", str(node), str(node)]
    return [*line, "--bind", str(scratch), str(scratch), "--chdir", str(scratch)]


def _out_of_sight(readable: Iterable[Path], scratch: Path) -> list[str]:
    """An empty folder or file on each secret; a device would say that it may not be read."""
    line: list[str] = []
    for place in _secrets(readable):
        if place.is_dir():
            line += ["--tmpfs", str(place)]
        else:
            empty = scratch / ".empty"
            empty.touch()
            line += ["--ro-bind", str(empty), str(place)]
    return line


def _secrets(readable: Iterable[Path]) -> list[Path]:
    """In what is let in of a person's; our own folders have none."""
    places = [place for place in readable if not place.is_relative_to(home())]
    return [secret for place in places if place.is_dir() for secret in secrets(place)]


def interpreter() -> list[Path]:
    """Python, its packages and ourselves; never a folder that holds the home."""
    listed = [sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages()]
    listed += [site.getusersitepackages(), str(Path(sys.executable).resolve().parents[1])]
    listed += [str(pycache_prefix() or "")]  # compiled, modules take a third as long to import
    here = str(Path.cwd())  # what lies where the person happens to stand is not ours to show
    listed += [entry for entry in sys.path if Path(entry).is_absolute() and entry != here]
    listed = [entry for entry in listed if not _is_everybodys(Path(entry))]
    listed += [part for name in _LIBRARIES for part in os.environ.get(name, "").split(":")]
    listed += toolchains()
    package = SOURCES / "kernelwright"  # in a checkout its parts are links to folders beside it
    ours = [package, *((package / part).resolve() for part in ("tools", "profiles"))]
    places = [Path(entry) for entry in listed if entry and Path(entry) != SOURCES]
    return [*ours, *(place for place in places if not holds_home(place))]


def _is_everybodys(place: Path) -> bool:
    """Whether all who are here put their files there, as into /tmp, where a script may lie."""
    try:
        return bool(place.stat().st_mode & stat.S_ISVTX)
    except OSError:
        return False


def toolchains() -> list[str]:
    """The folders of the compilers that are found by name, or that `CC` and `CXX` name."""
    named = [*_TOOLS, *filter(None, (os.environ.get(name) for name in ("CC", "CXX")))]
    tools = [Path(found) for name in named if (found := shutil.which(name))]
    # A tool lies in `bin`, and what it calls and links beside that.
    roots = [place.parents[1] for tool in tools for place in (tool.absolute(), tool.resolve())]
    return [str(root) for root in dict.fromkeys(roots) if root != Path("/")]


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


CHOICE = "KERNELWRIGHT_ISOLATION"
LAUNCHER = Path(__file__).with_name("launch.py")
MEMORY_FILES_BYTES = 1 << 30
NO_CORE = {"CORE": 0}
_TRIAL_S = 20.0
_REMEDY = "apt-get install bubblewrap"
# What our own wall can do without, the best first, where a driver does not start behind it: a
# namespace of users (only root can), read-only files, giving up root's privileges.
_PARTS: tuple[tuple[str, ...], ...] = (
    (), ("users",), ("files",), ("users", "files"), ("users", "privileges"),
    ("users", "files", "privileges"),
)  # fmt: skip
# Runs behind a wall: what can be reached from there?
_LOOK = """
import json, os, socket, sys
port, marker = int(sys.argv[1]), sys.argv[2]
def tried(what):
    try:
        what()
    except OSError:
        return False
    return True
def driver():
    import ctypes
    return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
print(json.dumps({
    "network": tried(lambda: socket.create_connection(("127.0.0.1", port), 2)),
    "reads": tried(lambda: open(marker).close()),
    "writes": tried(lambda: open(marker, "r+").close()),
    "device": sys.argv[3] != "cuda" or (tried(driver) and driver()),
    "processes": os.getppid() != 1 or any(int(n) > 64 for n in os.listdir("/proc") if n.isdigit()),
}))
"""


class Reach(Value):
    """What a process behind a wall could reach when it tried."""

    network: bool
    reads: bool
    writes: bool
    processes: bool
    device: bool


class Wall(Value):
    """A wall that was seen to work.

    `strict` says whether bubblewrap knows its newer options, `without` which parts were left out
    because the device's driver does not start behind them (see `_PARTS`), `hides` whether Landlock
    hides files, where bubblewrap is missing.
    """

    kind: Literal[WallKind.BUBBLEWRAP, WallKind.NAMESPACES, WallKind.NONE]
    isolation: Isolation
    strict: bool = False
    without: tuple[str, ...] = ()
    hides: bool = False


log = logging.getLogger(__name__)


def wall(device: str = "cpu") -> Wall:
    """The wall of this program for work on a device, tried at the first call (some 0.1 s).

    Raises:
        EnvironmentLacksError: `require` was chosen, and bubblewrap is missing or does not work.
        ValueError: the choice is none of the three.
    """
    return _chosen(os.environ.get(CHOICE, "auto") or "auto", device)


def standing(rules: Rules, device: str) -> Wall:
    """This program's wall, or none where the rules take it away (see `wall` for errors)."""
    return wall(device) if rules.has(Defence.SANDBOX) else plain_wall("switched off")


def bubblewrap_lacks(device: str) -> str:
    """Why files of people who trust each other with nothing cannot run here; "" where they can."""
    try:
        if wall(device).kind is WallKind.BUBBLEWRAP:
            return ""
    except EnvironmentLacksError as error:
        return f"but {error}"
    if os.environ.get(CHOICE) == "off":
        return f"but {CHOICE}=off switches it off: unset it"
    if found() is None:
        return f"which is not installed: {_REMEDY}"
    return "which does not work here (inside a container, user namespaces must be allowed)"


def required() -> bool:
    """Whether nothing of others may run outside bubblewrap."""
    return os.environ.get(CHOICE) == "require"


@cache
def _chosen(choice: str, device: str) -> Wall:
    if choice not in ("auto", "require", "off"):
        raise EnvironmentLacksError(f"{CHOICE} must be auto, require or off, but it was {choice!r}")
    if choice == "off":
        return plain_wall("switched off")
    tried = _tried_bubblewrap(device)
    if tried is not None:
        return tried
    if choice == "require":
        why = "does not work here" if found() else "is not installed"
        raise EnvironmentLacksError(
            f"{CHOICE}=require, but bubblewrap {why}: {_REMEDY} (inside a container, user "
            "namespaces must be allowed)"
        )
    own = _tried_namespaces(device) or _tried_landlock(device)
    if own is None:
        none = plain_wall("neither bubblewrap nor namespaces nor Landlock work")
        log.warning("code runs in a %s. %s is the remedy", none.isolation.words, _REMEDY)
    return own or none


def plain_wall(why: str) -> Wall:
    """A plain process, and why there is nothing better."""
    words = f"plain process, not isolated ({why}): the network and your files can be reached"
    return Wall(kind=WallKind.NONE, isolation=Isolation(kind=WallKind.NONE, words=words))


def _tried_bubblewrap(device: str) -> Wall | None:
    if found() is None:
        return None
    for strict, without in ((True, ()), (False, ()), (False, ("users",))):
        seen = _look(WallKind.BUBBLEWRAP, strict, without, device)
        if seen is None or not seen.device:
            continue
        if not (seen.network or seen.reads or seen.writes or seen.processes):
            words = "bubblewrap: no network, no other process, no file but system, Python and task"
            isolation = Isolation(kind=WallKind.BUBBLEWRAP, words=words)
            return Wall(
                kind=WallKind.BUBBLEWRAP, isolation=isolation, strict=strict, without=without
            )
    return None


def _tried_namespaces(device: str) -> Wall | None:
    ways = [(hides, without) for hides in (True, False) for without in _PARTS]
    for hides, without in ways:
        if hides and not landlock():
            continue
        seen = _look(WallKind.NAMESPACES, False, without, device, hides)
        if seen is None or not seen.device or seen.network or seen.processes:
            continue
        if hides and (seen.reads or seen.writes):
            continue
        words = "namespaces: no network, no other process, "
        words += "files can be written" if seen.writes else "files are read-only but not hidden"
        if hides:
            words = f"namespaces and Landlock, no bubblewrap: no network, no other process, {_SEEN}"
        words += "; root's privileges are kept" if "privileges" in without else ""
        isolation = Isolation(kind=WallKind.NAMESPACES, words=words)
        return Wall(kind=WallKind.NAMESPACES, isolation=isolation, without=without, hides=hides)
    return None


_SEEN = "no file but system, Python and task"


def _tried_landlock(device: str) -> Wall | None:
    """A plain process that sees the files of its task alone."""
    seen = _look(WallKind.NONE, False, (), device, hides=True) if landlock() else None
    if seen is None or not seen.device or seen.reads or seen.writes:
        return None
    words = f"Landlock, no bubblewrap: {_SEEN}; not isolated otherwise: the network can be reached"
    isolation = Isolation(kind=WallKind.NONE, words=words)
    return Wall(kind=WallKind.NONE, isolation=isolation, hides=True)


def _look(
    kind: WallKind, strict: bool, without: tuple[str, ...], device: str, hides: bool = False
) -> Reach | None:
    """Start a process behind a wall and hear what it reached; None when it does not start."""
    with (
        tempfile.TemporaryDirectory(prefix="kernelwright-wall-") as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        scratch, marker = Path(folder) / "scratch", Path(folder) / "marker"
        scratch.mkdir()
        marker.touch()
        reading, writing = os.pipe()
        arguments = (str(server.getsockname()[1]), str(marker), device)
        line = command(
            kind,
            (sys.executable, "-I", "-S", "-c", _LOOK, *arguments),
            scratch=scratch,
            status_fd=writing,
            strict=strict,
            without=without,
            device=device,
            hides=hides,
        )
        try:
            done = subprocess.run(
                line, capture_output=True, timeout=_TRIAL_S, pass_fds=(writing,), check=False,
                cwd=scratch, env=worker_environment(scratch),
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None
        finally:
            os.close(reading)
            os.close(writing)
    try:
        return Reach.model_validate_json(done.stdout)
    except ValueError:
        return None


def command(
    kind: WallKind,
    argv: tuple[str, ...],
    *,
    scratch: Path,
    status_fd: int,
    strict: bool,
    without: tuple[str, ...] = (),
    readable: tuple[Path, ...] = (),
    device: str = "cpu",
    limits: dict[str, int] | None = None,
    hides: bool = False,
    ready_fd: int | None = None,
) -> list[str]:
    """The whole command line: the wall, the launcher, what is to run.

    With `ready_fd` nothing is run: the launcher says there that the wall stands.
    """
    needed = [*map(Path, (*_SYSTEM, *_MERGED)), *interpreter()]
    needed += [Path("/etc") / name for name in _SETTINGS]
    settings = {
        "wall": kind.value,
        "without": without,
        "status_fd": status_fd,
        "parent": os.getpid(),
        "scratch": str(scratch),
        "covered": _covered([scratch, *needed], readable) if kind is WallKind.NAMESPACES else [],
        "open_places": open_places(scratch, needed, readable, device) if hides else None,
        "shared_bytes": MEMORY_FILES_BYTES,
        "limits": NO_CORE | (limits or {}),
        "ready_fd": ready_fd,
    }
    launch = [sys.executable, "-I", "-S", str(LAUNCHER), json.dumps(settings), *argv]
    if kind is not WallKind.BUBBLEWRAP:
        return launch
    outside = arguments(
        scratch,
        readable=readable,
        device=device,
        memory_bytes=MEMORY_FILES_BYTES,
        strict=strict,
        users="users" not in without,
    )
    return [*outside, "--", *launch]


def _covered(needed: list[Path], readable: tuple[Path, ...]) -> list[str]:
    """What mounts hide of homes, of the system, and of the folders that may be read."""
    inside = [str(place.resolve()) for place in _secrets(readable)]
    return [*covered([*needed, *readable]), *inside]
