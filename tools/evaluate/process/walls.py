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

from tools.evaluate.executor import EnvironmentLacksError
from tools.evaluate.process import bubblewrap
from tools.nouns import Isolation, Value, WallKind

CHOICE = "KERNELWRIGHT_ISOLATION"
LAUNCHER = Path(__file__).with_name("launch.py")
MEMORY_FILES_BYTES = 1 << 30
_TRIAL_S = 20.0
_COVERED = (
    ".ssh", ".aws", ".azure", ".config", ".docker", ".gnupg", ".kube", ".netrc", ".git-credentials",
    ".pypirc", ".npmrc", ".huggingface", ".cache/huggingface/token", ".bash_history",
)  # fmt: skip
_REMEDY = "apt-get install bubblewrap"
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
print(json.dumps({
    "network": tried(lambda: socket.create_connection(("127.0.0.1", port), 2)),
    "reads": tried(lambda: open(marker).close()),
    "writes": tried(lambda: open(marker, "r+").close()),
    "processes": os.getppid() != 1 or any(int(n) > 64 for n in os.listdir("/proc") if n.isdigit()),
}))
"""


class Reach(Value):
    """What a process behind a wall could reach when it tried."""

    network: bool
    reads: bool
    writes: bool
    processes: bool


class Wall(Value):
    """A wall that was seen to work; `strict` says whether bubblewrap knows its newer options."""

    kind: Literal[WallKind.BUBBLEWRAP, WallKind.NAMESPACES, WallKind.NONE]
    isolation: Isolation
    strict: bool = False


def wall() -> Wall:
    """The wall of this program, tried at the first call (some 0.1 s).

    Raises:
        EnvironmentLacksError: `require` was chosen, and bubblewrap is missing or does not work.
        ValueError: the choice is none of the three.
    """
    return _chosen(os.environ.get(CHOICE, "auto") or "auto")


@cache
def _chosen(choice: str) -> Wall:
    if choice not in ("auto", "require", "off"):
        raise ValueError(f"{CHOICE} must be auto, require or off, but it was {choice!r}")
    none = plain_wall(
        "switched off" if choice == "off" else "neither bubblewrap nor namespaces work"
    )
    if choice == "off":
        return none
    tried = _tried_bubblewrap()
    if tried is not None:
        return tried
    if choice == "require":
        why = "does not work here" if bubblewrap.found() else "is not installed"
        raise EnvironmentLacksError(
            f"{CHOICE}=require, but bubblewrap {why}: {_REMEDY} (inside a container, user "
            "namespaces must be allowed)"
        )
    return _tried_namespaces() or plain_wall("neither bubblewrap nor namespaces work")


def plain_wall(why: str) -> Wall:
    """A plain process, and why there is nothing better."""
    words = f"plain process, not isolated ({why}): the network and your files can be reached"
    return Wall(kind=WallKind.NONE, isolation=Isolation(kind=WallKind.NONE, words=words))


def _tried_bubblewrap() -> Wall | None:
    if bubblewrap.found() is None:
        return None
    for strict in (True, False):
        seen = _look(WallKind.BUBBLEWRAP, strict)
        if seen is not None and not (seen.network or seen.reads or seen.writes or seen.processes):
            words = "bubblewrap: no network, no other process, no file but system, Python and task"
            isolation = Isolation(kind=WallKind.BUBBLEWRAP, words=words)
            return Wall(kind=WallKind.BUBBLEWRAP, isolation=isolation, strict=strict)
    return None


def _tried_namespaces() -> Wall | None:
    seen = _look(WallKind.NAMESPACES, False)
    if seen is None or seen.network or seen.processes or seen.writes:
        return None
    words = "namespaces: no network, no other process, files are read-only but not hidden"
    isolation = Isolation(kind=WallKind.NAMESPACES, words=words)
    return Wall(kind=WallKind.NAMESPACES, isolation=isolation)


def _look(kind: WallKind, strict: bool) -> Reach | None:
    """Start a process behind a wall and hear what it reached; None when it does not start."""
    with (
        tempfile.TemporaryDirectory(prefix="kernelwright-wall-") as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        scratch, marker = Path(folder) / "scratch", Path(folder) / "marker"
        scratch.mkdir()
        marker.touch()
        reading, writing = os.pipe()
        arguments = (str(server.getsockname()[1]), str(marker))
        line = command(
            kind,
            (sys.executable, "-I", "-S", "-c", _LOOK, *arguments),
            scratch=scratch,
            status_fd=writing,
            strict=strict,
        )
        try:
            done = subprocess.run(
                line, capture_output=True, timeout=_TRIAL_S, pass_fds=(writing,), check=False,
                cwd=scratch, env={"PATH": os.environ.get("PATH", "")},
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
    readable: tuple[Path, ...] = (),
    device: str = "cpu",
    limits: dict[str, int] | None = None,
) -> list[str]:
    """The whole command line: the wall, the launcher, what is to run."""
    settings = {
        "wall": kind.value,
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
    )
    return [*outside, "--", *launch]


def _covered() -> list[str]:
    """Where a person's keys usually lie, and the door of a container service."""
    home = Path.home()
    places = [home / name for name in _COVERED] + [Path("/run/docker.sock")]
    return [str(place.resolve()) for place in places if place.exists()]
