"""Which wall stands between code of others and this machine, found by starting a process.

Three kinds. `bubblewrap`: an empty root with read-only bindings, no network, own processes. Of our
own `namespaces` where that is missing: no network, own processes, nothing writable but the
scratch; files can be read. `none`: a plain process that is ended with its descendants, and is
labelled so. Each is tried once a program: a process behind it tells what it can reach, and
the label says just that.

`KERNELWRIGHT_ISOLATION` chooses: `auto` (the best that works), `require` (bubblewrap, or nothing
runs), `off` (plain processes). How to start a process behind the wall: `walled.start_walled`.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Literal

from kernelwright.tools.evaluate.rules import Defence, Rules
from kernelwright.tools.evaluate.sandbox import bubblewrap
from kernelwright.tools.evaluate.sandbox.bytecode import worker_environment
from kernelwright.tools.types import EnvironmentLacksError, Isolation, Value, WallKind

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
        why = "does not work here" if bubblewrap.found() else "is not installed"
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
    if bubblewrap.found() is None:
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
    outside = bubblewrap.arguments(
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
