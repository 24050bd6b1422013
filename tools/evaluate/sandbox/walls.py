"""The command line of bubblewrap: an empty root into which only what is needed is bound.

Everything is read-only but the scratch folder and small file systems in memory on /tmp and
/dev/shm. Home, other runs, other processes, sockets of services and the network are not there.

`beside` finds what a user's file needs of the files beside it, so that a wall lets in these and no
others. A file may import modules that lie in its folder, and these may import further ones. A
source that asks where it lies (`__file__`) reads files of its folder, which is then let in as a
whole unless somebody's home would come with it. Not seen: names that are put together at run time.

Which wall stands between code of others and this machine, found by starting a process.

Three kinds. `bubblewrap`: an empty root with read-only bindings, no network, own processes. Of our
own `namespaces` where that is missing: no network, own processes, nothing writable but the
scratch; files can be read. `none`: a plain process that is ended with its descendants, and is
labelled so. Each is tried once a program: a process behind it tells what it can reach, and
the label says just that.

`KERNELWRIGHT_ISOLATION` chooses: `auto` (the best that works), `require` (bubblewrap, or nothing
runs), `off` (plain processes). How to start a process behind the wall: `walled.start_walled`.
"""

import ast
import json
import os
import shutil
import site
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from kernelwright.tools.evaluate.rules import Defence, Rules
from kernelwright.tools.evaluate.sandbox.bytecode import pycache_prefix, worker_environment
from kernelwright.tools.runtime import SOURCES
from kernelwright.tools.types import EnvironmentLacksError, Isolation, Value, WallKind

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


CHOICE = "KERNELWRIGHT_ISOLATION"
LAUNCHER = Path(__file__).with_name("launch.py")
MEMORY_FILES_BYTES = 1 << 30
_TRIAL_S = 20.0
_COVERED = (
    ".ssh", ".aws", ".azure", ".config", ".docker", ".gnupg", ".kube", ".netrc", ".git-credentials",
    ".pypirc", ".npmrc", ".huggingface", ".cache/huggingface/token", ".bash_history",
)  # fmt: skip
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
    because the device's driver does not start behind them (see `_PARTS`).
    """

    kind: Literal[WallKind.BUBBLEWRAP, WallKind.NAMESPACES, WallKind.NONE]
    isolation: Isolation
    strict: bool = False
    without: tuple[str, ...] = ()


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


def required() -> bool:
    """Whether nothing of others may run outside bubblewrap."""
    return os.environ.get(CHOICE) == "require"


@cache
def _chosen(choice: str, device: str) -> Wall:
    if choice not in ("auto", "require", "off"):
        raise ValueError(f"{CHOICE} must be auto, require or off, but it was {choice!r}")
    none = plain_wall(
        "switched off" if choice == "off" else "neither bubblewrap nor namespaces work"
    )
    if choice == "off":
        return none
    tried = _tried_bubblewrap(device)
    if tried is not None:
        return tried
    if choice == "require":
        why = "does not work here" if found() else "is not installed"
        raise EnvironmentLacksError(
            f"{CHOICE}=require, but bubblewrap {why}: {_REMEDY} (inside a container, user "
            "namespaces must be allowed)"
        )
    return _tried_namespaces(device) or plain_wall("neither bubblewrap nor namespaces work")


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
    for without in _PARTS:
        seen = _look(WallKind.NAMESPACES, False, without, device)
        if seen is None or not seen.device or seen.network or seen.processes:
            continue
        words = "namespaces: no network, no other process, "
        words += "files can be written" if seen.writes else "files are read-only but not hidden"
        words += "; root's privileges are kept" if "privileges" in without else ""
        isolation = Isolation(kind=WallKind.NAMESPACES, words=words)
        return Wall(kind=WallKind.NAMESPACES, isolation=isolation, without=without)
    return None


def _look(kind: WallKind, strict: bool, without: tuple[str, ...], device: str) -> Reach | None:
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
) -> list[str]:
    """The whole command line: the wall, the launcher, what is to run."""
    settings = {
        "wall": kind.value,
        "without": without,
        "status_fd": status_fd,
        "parent": os.getpid(),
        "scratch": str(scratch),
        "covered": _covered() if kind is WallKind.NAMESPACES else [],
        "shared_bytes": MEMORY_FILES_BYTES,
        "limits": {"CORE": 0} | (limits or {}),
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


def _covered() -> list[str]:
    """Where a person's keys usually lie, and the door of a container service."""
    home = Path.home()
    places = [home / name for name in _COVERED] + [Path("/run/docker.sock")]
    return [str(place.resolve()) for place in places if place.exists()]
