"""The actor that stands for one device in a Ray cluster: starts its judge, and passes lines on.

Ray gives it the device (`CUDA_VISIBLE_DEVICES`) and starts it anew where it is lost. The judge is a
process of its own, which gets nothing of Ray's environment: no session folder, no token, no
settings. Killed, an actor takes its judge along, and that its workers.
"""

import asyncio
import contextlib
import os
import sys
import tempfile

from kernelwright.tools.evaluate.executors.cluster.messages import LONGEST_LINE_BYTES
from kernelwright.tools.runtime import python_path

_RAYS = "RAY_"
_THREADS = "OMP_NUM_THREADS"  # which Ray sets to the processors that an actor asked for


def without_ray(environment: dict[str, str], threads: str = "") -> dict[str, str]:
    """An environment without what Ray put there; `threads` is the person's own setting."""
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(_RAYS) and name != _THREADS
    }
    kept["PYTHONPATH"] = python_path(environment.get("PYTHONPATH", ""))
    return kept | ({_THREADS: threads} if threads else {})


class DeviceActor:
    """One device of a cluster. Its methods are called by the broker, one job at a time.

    Args:
        target: `cuda` or `cpu`.
        threads: The person's OMP_NUM_THREADS, "" where there is none.
    """

    def __init__(self, target: str, threads: str = "") -> None:
        self._target, self._threads = target, threads
        self._process: asyncio.subprocess.Process | None = None
        self._greeting = ""
        self._turn = asyncio.Lock()

    async def greet(self) -> str:
        """Who judges here, as text of a `Greeting`; starts the judge.

        Raises:
            RuntimeError: The judge does not start; the message is its last words.
        """
        async with self._turn:
            await self._started()
        return self._greeting

    async def do(self, job: str) -> str:
        """The answer to a job, both as text.

        Raises:
            RuntimeError: The judge ended over it; the next call starts another.
        """
        async with self._turn:
            process = await self._started()
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(job.encode() + b"\n")
                await process.stdin.drain()
            return await self._line(process)

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kernelwright.tools.evaluate.executors.cluster.judge",
            self._target,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env=without_ray(dict(os.environ), self._threads),
            cwd=tempfile.gettempdir(), limit=LONGEST_LINE_BYTES,
        )  # fmt: skip
        self._greeting = await self._line(self._process)
        if not self._greeting.startswith("{"):
            raise RuntimeError(self._greeting)
        return self._process

    async def _line(self, process: asyncio.subprocess.Process) -> str:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            status = await process.wait()
            raise RuntimeError(f"the judge's process ended with status {status}")
        return line.decode().rstrip("\n")
