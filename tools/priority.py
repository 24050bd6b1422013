"""Lets what was started here give way to the program that started it.

Searches keep every processor busy for hours, and the page that shows them must answer all the
same. So workers, guests and compilers run at a lower priority than the program. Times stay fair:
candidate and baseline are compared in one worker, so at one priority.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

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
