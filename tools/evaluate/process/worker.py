"""One worker process and the conversation with it.

The worker leads its own session, so that a hang is killed with everything it started. It is
lost, not reset: after a timeout, a crash or a cancelled question there is a new one.
Not here: which worker to ask what, and what an end means for a verdict.
"""

import asyncio
import atexit
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.evaluate.messages import MESSAGE, Message, Ready, Reply, Request, Stage
from tools.evaluate.process.ended import Ended
from tools.evaluate.process.environment import worker_environment
from tools.evaluate.process.memory import machine_bytes, until_over
from tools.evaluate.rules import Rules
from tools.evaluate.wire import frame, receive

_KEPT_OUTPUT_BYTES = 16_384
_LIVE: set[int] = set()


@atexit.register
def _end_all() -> None:
    """A program that leaves without closing its executor still leaves no worker behind."""
    for group in tuple(_LIVE):
        _kill_group(group)


class WorkerBrokenError(Exception):
    """A worker failed in a way that is Kernelwright's own fault."""


class WorkerProcess:
    """A started worker. Use `start`, then `ask` one question at a time, then `aclose`."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        rules: Rules,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._rules = rules
        self._output = bytearray()
        self._listener = asyncio.create_task(self._listen())
        self._limit_bytes = int(machine_bytes() * rules.memory_fraction)

    @classmethod
    async def start(
        cls, scratch: Path, rules: Rules, inherited: Sequence[int] = ()
    ) -> "WorkerProcess":
        """Start a worker and wait until it is ready; `inherited` are descriptors it gets as well.

        Raises:
            WorkerBrokenError: it does not come up.
        """
        environment = worker_environment(scratch)
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "tools.evaluate.worker"),
                *(str(theirs.fileno()), str(os.getpid())),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(theirs.fileno(), *inherited),
                env=environment,
                cwd=scratch,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        _LIVE.add(process.pid)
        try:
            reader, writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            _kill_group(process.pid)
            raise
        worker = cls(process, reader, writer, rules)
        first = await worker._converse(None, rules.start_s)
        if isinstance(first, Ended):
            raise WorkerBrokenError(f"a worker {first.words} before it was ready\n{first.output}")
        return worker

    @property
    def pid(self) -> int:
        """The worker's process, which is also its process group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self.pid in _LIVE and self._process.returncode is None

    async def ask(self, request: Request, limit_s: float) -> Reply | Ended:
        """One question. Stages reported on the way replace the limit by their own.

        A cancelled question ends the worker: it would answer the next one with this answer.
        """
        answer = await self._converse(request, limit_s)
        if isinstance(answer, Ready):
            raise ConnectionError("a worker introduced itself twice")
        return answer

    async def aclose(self) -> None:
        """End it and everything in its process group."""
        _kill_group(self.pid)
        self._writer.close()
        with contextlib.suppress(ProcessLookupError):
            await self._process.wait()
        _LIVE.discard(self.pid)
        self._listener.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await self._listener

    async def _converse(self, request: Request | None, limit_s: float) -> Ready | Reply | Ended:
        try:
            answer = await self._exchange(request, limit_s)
        except BaseException:
            await asyncio.shield(self.aclose())
            raise
        if isinstance(answer, Ended) or (isinstance(answer, Reply) and answer.retire):
            await self.aclose()
        return answer

    async def _exchange(self, request: Request | None, limit_s: float) -> Ready | Reply | Ended:
        if request is not None:
            self._writer.write(frame(request.model_dump_json().encode()))
            with contextlib.suppress(ConnectionError):
                await self._writer.drain()
        stage: Stage | None = None
        while True:
            message = await self._next(stage, limit_s)
            if not isinstance(message, Stage):
                return message
            stage, limit_s = message, message.limit_s

    async def _next(self, stage: Stage | None, limit_s: float) -> Message | Ended:
        """The next message, or the first of: too late, too much memory, gone."""
        watch = until_over(self.pid, self._limit_bytes, self._rules.memory_poll_s)
        reading, watching, waiting = (
            asyncio.create_task(self._receive()),
            asyncio.create_task(watch),
            asyncio.create_task(self._process.wait()),
        )
        tasks: set[asyncio.Task[Message | None] | asyncio.Task[int]] = {reading, watching, waiting}
        try:
            await asyncio.wait(tasks, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            # What was said before the end still counts.
            if waiting.done() and not reading.done():
                await asyncio.wait({reading}, timeout=0.2)
            if reading.done() and (message := reading.result()) is not None:
                return message
            if watching.done():
                return await self._end("out_of_memory", stage, held_bytes=watching.result())
            if reading.done():
                await asyncio.wait({waiting}, timeout=5.0)
            if waiting.done():
                return await self._end("exited", stage)
            return await self._end("timed_out", stage, limit_s=limit_s)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _receive(self) -> Message | None:
        try:
            return MESSAGE.validate_json(await receive(self._reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def _end(
        self, how: str, stage: Stage | None, *, limit_s: float = 0.0, held_bytes: int = 0
    ) -> Ended:
        await asyncio.sleep(0)  # the listener reads what is left of the output
        await self.aclose()
        return Ended.model_validate(
            {
                "how": how,
                "status": self._process.returncode,
                "stage": stage,
                "output": self.output,
                "limit_s": limit_s,
                "held_bytes": held_bytes,
            }
        )

    @property
    def output(self) -> str:
        """The end of what the worker wrote to its standard streams."""
        return self._output.decode(errors="replace").strip()

    async def _listen(self) -> None:
        """Keep the tail of the output; a pipe that nobody empties would stop the worker."""
        stream = self._process.stdout
        while stream is not None and (part := await stream.read(65_536)):
            self._output += part
            del self._output[:-_KEPT_OUTPUT_BYTES]


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
