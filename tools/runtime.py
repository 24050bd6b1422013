"""What every process of Kernelwright needs to know of itself: version, data folder, priority.

The version is known also when it runs from a checkout that was never installed. The data folder
holds runs, caches and measured ceilings of this user.

Python's collector of cycles is kept out of imports. Everything that a library brings is made at
once and lives as long as the process, and while it is made the collector looks at all of it again
and again: a sixth of what torch and its exporter take.

What was started here gives way to the program that started it. Searches keep every processor busy
for hours, and the page that shows them must answer all the same. So workers, guests and compilers
run at a lower priority than the program. Times stay fair: candidate and baseline are compared in
one worker, so at one priority.
"""

import contextlib
import gc
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from platformdirs import user_data_path

# The folder that holds the package: a checkout, or site-packages. Not resolved, as a checkout's
# package reaches its parts by links.
SOURCES = Path(__file__).absolute().parents[2]
_PYPROJECT = SOURCES / "pyproject.toml"


def kernelwright_version() -> str:
    """The installed distribution's version, else the checkout's with "+source" behind it."""
    try:
        return version("kernelwright")
    except PackageNotFoundError:
        stated = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["version"]
        return f"{stated}+source"


def home() -> Path:
    """`KERNELWRIGHT_HOME`, else the user's data folder of this platform; not created here."""
    chosen = os.environ.get("KERNELWRIGHT_HOME")
    return Path(chosen).expanduser() if chosen else user_data_path("kernelwright")


def python_path(given: str) -> str:
    """The PYTHONPATH with which another process finds this Kernelwright.

    A checkout is named only where this process found it by its path: once installed it is found by
    its one name, and naming the checkout would put its `tools` before a person's own.
    """
    by_path = any(Path(entry or ".").absolute() == SOURCES for entry in sys.path)
    return os.pathsep.join(filter(None, (str(SOURCES) if by_path else "", given)))


@contextlib.contextmanager
def imports_out_of_sight() -> Iterator[None]:
    """Import inside of this; afterwards the collector never looks at what was made meanwhile.

    Nothing is collected first, which would itself take half a second: the cycles that imports
    leave behind are a few hundred objects, once.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Nothing looks for cycles inside of this: for work that makes a great many values at once.

    Lowering a network in ten forms makes hundreds of thousands of expressions, which are let go
    of together without any search: looking through them took a third of it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


NICENESS = 5


def lowered(argv: Sequence[str]) -> tuple[str, ...]:
    """The command that starts this one low from its first moment.

    A process that is forked in the very moment in which `give_way` lowers its group would stay
    as high as its parent was. Without `nice` the command stays as it is.
    """
    steps = NICENESS - os.getpriority(os.PRIO_PROCESS, 0)
    nice = shutil.which("nice")
    return (nice, "-n", str(steps), *argv) if nice and steps > 0 else tuple(argv)


def give_way(pid: int, *, began_low: bool = False) -> None:
    """Lower the priority of a process that leads its own session, and of what it starts.

    It ends up no higher than this program, nor lower because this one was started low. What
    `lowered` starts lowers itself, by so much from what it finds: lowered here a moment before, it
    would end up twice as low, and two guests that are compared would be unlike. Linux weighs
    sessions against each other before the processes in them where it groups by session
    (`sched_autogroup`); there a process's niceness alone would change nothing for the page.

    Args:
        pid: of the session's leader.
        began_low: whether `lowered` starts it.
    """
    if not began_low:
        with contextlib.suppress(OSError):  # it has ended already
            own = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PGRP, pid, max(NICENESS, own))
    with contextlib.suppress(OSError):  # sessions are not grouped here, or not ours to change
        wanted = max(NICENESS, session_niceness(os.getpid()) or 0)
        Path(f"/proc/{pid}/autogroup").write_text(str(wanted), encoding="ascii")


def session_niceness(pid: int) -> int | None:
    """The niceness of the whole session of a process; None where sessions are not grouped."""
    try:
        told = Path(f"/proc/{pid}/autogroup").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"nice (-?\d+)", told)
    return int(found.group(1)) if found else None
