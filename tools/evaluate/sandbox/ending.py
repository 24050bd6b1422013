"""How what runs behind the wall comes to its end: by itself, out of time, or over a limit.

`Ended` says it in words that a person or a coder can act on. `until_over` watches the tree of
processes from outside: memory, number of processes, files in the scratch. A limit on address space
would stop CUDA, which reserves far more than it uses, and one on the number of processes does not
hold for root; so all three are polled. Not covered: memory on a GPU, which torch reports itself.
"""

import asyncio
import os
import re
import signal
from pathlib import Path
from typing import Literal

from kernelwright.tools.evaluate.messages import Stage
from kernelwright.tools.evaluate.sandbox.walled import Walled
from kernelwright.tools.types.value import Value

_WORDS = {
    signal.SIGSEGV: "a segmentation fault",
    signal.SIGBUS: "a bus error",
    signal.SIGABRT: "an abort",
    signal.SIGFPE: "an arithmetic exception (such as a division of integers by zero)",
    signal.SIGILL: "an illegal instruction",
    signal.SIGKILL: "being killed (most likely for want of memory)",
}
# What a dying process's traceback begins with, and its innermost frame: the last two parts of the
# file's path, the line and the function.
_FATAL = re.compile(
    r"\(most recent call first\):\s*(?P<collecting>Garbage-collecting\s*)?"
    r'File "(?:[^"\n]*/)?(?P<file>[^"/\n]+/[^"/\n]+)", line (?P<line>\d+) in (?P<name>\w+)'
)


class Ended(Value):
    """A worker that will not answer any more.

    `status` is its exit status as `subprocess` counts (negative for a signal); `stage` the last
    thing it said it would do; `amount` what it used of what it used too much of.
    """

    how: Literal[
        "timed_out", "exited", "out_of_memory", "too_many_processes", "disk_filled", "forged",
        "stalled",
    ]  # fmt: skip
    status: int | None
    stage: Stage | None
    output: str = ""
    limit_s: float = 0.0
    amount: int = 0

    @property
    def signal(self) -> signal.Signals | None:
        """The signal that ended it, if one did."""
        if self.status is None or self.status >= 0:
            return None
        return signal.Signals(-self.status)

    @property
    def place(self) -> str:
        """Where Python was when a signal ended it, by its own last words; "" where unknown."""
        found = _FATAL.search(self.output) if self.signal is not None else None
        if found is None:
            return ""
        collecting = ", collecting garbage" if found["collecting"] else ""
        return f"{found['file']}:{found['line']} in {found['name']}{collecting}"

    @property
    def words(self) -> str:
        """What happened, as the end of a sentence that begins with the culprit."""
        if self.how == "timed_out":
            return f"did not finish within {self.limit_s:.3g} s and was stopped"
        if self.how == "stalled":
            return (
                f"did nothing for {self.limit_s:.3g} s, neither computing nor reading or writing, "
                "and was stopped (--load-seconds gives it longer)"
            )
        if self.how == "out_of_memory":
            return f"used {self.amount / 2**30:.1f} GiB of memory and was stopped"
        if self.how == "too_many_processes":
            return f"had {self.amount} processes running and was stopped"
        if self.how == "disk_filled":
            return f"wrote {self.amount / 2**30:.1f} GiB of files and was stopped"
        if self.how == "forged":
            return "said something on the judge's own line that the judge did not write"
        if self.status is None:
            return "was ended from outside"
        if self.signal is not None:
            return f"ended with {_WORDS.get(self.signal, self.signal.name)}"
        return f"ended its process with exit status {self.status}"


_FILES_EVERY = 20  # polls: a scratch folder holds hundreds of files


class Limits(Value):
    """What a tree may use."""

    memory_bytes: int
    processes: int
    scratch_bytes: int
    poll_s: float


class Excess(Value):
    """Which limit was passed, and what was used then."""

    how: Literal["out_of_memory", "too_many_processes", "disk_filled"]
    amount: int


async def until_over(walled: Walled, scratch: Path, limits: Limits) -> Excess:
    """Wait until the tree uses more than it may."""
    polls = 0
    while True:
        running = walled.processes()
        if len(running) > limits.processes:
            return Excess(how="too_many_processes", amount=len(running))
        if (held := walled.held_bytes(running)) > limits.memory_bytes:
            return Excess(how="out_of_memory", amount=held)
        if polls % _FILES_EVERY == 0 and (size := files_bytes(scratch)) > limits.scratch_bytes:
            return Excess(how="disk_filled", amount=size)
        polls += 1
        await asyncio.sleep(limits.poll_s)


def files_bytes(folder: Path) -> int:
    """What the files below a folder take on the disk; links are not followed."""
    total = 0
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue  # it was removed while it was read
    return total
