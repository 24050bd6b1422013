"""One guest, started and watched by the program; the judge holds the other end of its socket."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from pathlib import Path

from tools.evaluate.foreign.host.books import Books, books
from tools.evaluate.process.ended import Ended
from tools.evaluate.process.environment import worker_environment
from tools.evaluate.process.memory import machine_bytes
from tools.evaluate.rules import Rules

_KEPT_OUTPUT_BYTES = 16_384


class GuestProcess:
    """A started guest. Use `start`; `descriptor` is the judge's end of the conversation."""

    def __init__(
        self, process: asyncio.subprocess.Process, judge_end: socket.socket, rules: Rules
    ) -> None:
        self._process = process
        self._judge_end = judge_end
        self._rules = rules
        self._output = bytearray()
        self._how = "exited"
        self._held_bytes = 0
        self._limit_s = 0.0
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._watch())]

    @classmethod
    async def start(cls, scratch: Path, rules: Rules) -> "GuestProcess":
        """Start a guest in a folder of its own; it waits for its memory."""
        ours, theirs = socket.socketpair()
        environment = worker_environment(scratch)
        environment["TORCH_EXTENSIONS_DIR"] = str(scratch / "extensions")
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "tools.evaluate.foreign.guest"),
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                env=environment,
                cwd=scratch,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(process, ours, rules)

    @property
    def descriptor(self) -> int:
        """The judge's end, to be inherited by the judge."""
        return self._judge_end.fileno()

    def books(self) -> Books:
        """What it used up to now."""
        return books(self._process.pid)

    async def stop(self, how: str, limit_s: float) -> Ended:
        """End it if it still runs; how it ended.

        Args:
            how: `timed_out`, or `exited` when it went by itself.
            limit_s: the time that was too long.
        """
        if how == "exited":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 5.0)
        if self._process.returncode is None:
            self._how, self._limit_s = "timed_out", limit_s
        await self._kill()
        return Ended.model_validate(
            {
                "how": self._how,
                "status": self._process.returncode,
                "stage": None,
                "output": self._output.decode(errors="replace").strip(),
                "limit_s": self._limit_s,
                "amount": self._held_bytes,
            }
        )

    async def aclose(self) -> None:
        """End it and everything in its process group."""
        await self._kill()
        self._judge_end.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            await self._process.wait()

    async def _watch(self) -> None:
        """End it when its family holds too much memory."""
        limit = int(machine_bytes() * self._rules.memory_fraction)
        while True:
            held = (await asyncio.to_thread(self.books)).held_bytes
            if held > limit:
                self._how, self._held_bytes = "out_of_memory", held
                await self._kill()
                return
            await asyncio.sleep(self._rules.memory_poll_s)

    async def _listen(self) -> None:
        """Keep the tail of the output; a pipe that nobody empties would stop the guest."""
        stream = self._process.stdout
        while stream is not None and (part := await stream.read(65_536)):
            self._output += part
            del self._output[:-_KEPT_OUTPUT_BYTES]
