"""Watches a tree of processes from outside: memory, number of processes, files in the scratch.

A limit on address space would stop CUDA, which reserves far more than it uses, and one on the
number of processes does not hold for root; so all three are polled. Not covered: memory on a
GPU, which torch reports itself.
"""

import asyncio
import os
from pathlib import Path
from typing import Literal

from kernelwright.tools.evaluate.sandbox.walled import Walled
from kernelwright.tools.types import Value

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
