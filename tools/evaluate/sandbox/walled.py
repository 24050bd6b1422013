"""Starts a process behind the wall, knows all that it started, and ends all of it.

    walled = await start_walled(Enclosure(argv=(...), scratch=folder, environment={...}))
    status = await walled.wait()      # as `subprocess` counts: negative for a signal
    await walled.end()                # afterwards nothing of it is left, whatever it did

Its standard output and error come as one stream, `walled.output`; other pipes or sockets are
handed over by `descriptors`. Not here: what is said over its sockets, limits (`ending`).

Without a GPU, behind bubblewrap, a module of ours that many processes run need not be a process of
its own from its start: a fork of a server that has imported everything (`fork_server`) joins the
wall when it stands, 0.1 s instead of seconds.
"""

import asyncio
import atexit
import contextlib
import os
import select
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

from kernelwright.tools.evaluate.sandbox.fork_server import (
    ForkFailedError,
    ForkServer,
    failed,
    fits,
    fork_server,
    job,
)
from kernelwright.tools.evaluate.sandbox.fork_server import joined as has_joined
from kernelwright.tools.evaluate.sandbox.forked import JOINED
from kernelwright.tools.evaluate.sandbox.launch import READY as STANDS
from kernelwright.tools.evaluate.sandbox.process_tree import gone, held_bytes, runs, tree
from kernelwright.tools.evaluate.sandbox.walls import NO_CORE, Wall, command, wall
from kernelwright.tools.runtime import NICENESS, give_way, lowered
from kernelwright.tools.types import Isolation, WallKind
from kernelwright.tools.types.value import Value

_ENDING_S = 3.0
_DEATH_S = 10.0
_SAID_S = 20.0
_POLL_S = 0.02
_FILE_BYTES = 8 << 30
_OUTPUT_BYTES = 1 << 16
_LIVE: dict[int, bool] = {}


@atexit.register
def _end_all() -> None:
    """A program that leaves without closing its executor still leaves no process behind."""
    for group, gently in tuple(_LIVE.items()):
        _signal_group(group, signal.SIGTERM if gently else signal.SIGKILL)


class Enclosure(Value):
    """What runs behind the wall, and what it may reach there.

    `scratch` is its folder, made when missing and the only one it can write; `readable` is bound
    read-only beside the system, Python and its packages and ourselves; it gets
    `environment` and nothing else; `descriptors` stay open under their numbers. `device` decides
    whether the GPU is there. `file_bytes` is the most that one file may hold. `ahead` names a
    module that many such processes import, from which they can be forked (see `fork_server`).
    """

    argv: tuple[str, ...]
    scratch: Path
    environment: Mapping[str, str]
    readable: tuple[Path, ...] = ()
    descriptors: tuple[int, ...] = ()
    device: str = "cpu"
    file_bytes: int = _FILE_BYTES
    ahead: str = ""


async def start_walled(enclosure: Enclosure, behind: Wall | None = None) -> "Walled":
    """Start it behind this program's wall, or behind another one that works here.

    Raises:
        EnvironmentLacksError: a wall is demanded that does not work here.
        OSError: the process cannot be started.
    """
    chosen = behind or wall(enclosure.device)
    scratch = enclosure.scratch.absolute()
    scratch.mkdir(parents=True, exist_ok=True)
    # Imports may ask the driver for devices, and CUDA does not survive a fork after that.
    forks = chosen.kind is WallKind.BUBBLEWRAP and enclosure.device != "cuda"
    if enclosure.ahead and forks and fits(enclosure.argv, enclosure.descriptors):
        server = await fork_server(enclosure.environment, enclosure.ahead)
        if server is not None:
            try:
                return await _forked(enclosure, scratch, chosen, server)
            except ForkFailedError as error:
                failed(str(error))
    reading, writing = os.pipe()
    try:
        line = _line(enclosure, scratch, chosen, writing)
        transport, protocol = await _created(
            line, enclosure, scratch, chosen, (writing, *enclosure.descriptors), reading
        )
    finally:
        os.close(writing)
    return Walled(transport, protocol, reading, chosen)


def _line(
    enclosure: Enclosure, scratch: Path, chosen: Wall, status_fd: int, ready_fd: int | None = None
) -> list[str]:
    return command(
        chosen.kind,
        enclosure.argv,
        scratch=scratch,
        status_fd=status_fd,
        strict=chosen.strict,
        without=chosen.without,
        readable=enclosure.readable,
        device=enclosure.device,
        limits={"FSIZE": enclosure.file_bytes},
        hides=chosen.hides,
        ready_fd=ready_fd,
    )


_Created = tuple[asyncio.SubprocessTransport, asyncio.subprocess.SubprocessStreamProtocol]


async def _created(
    line: list[str],
    enclosure: Enclosure,
    scratch: Path,
    chosen: Wall,
    descriptors: tuple[int, ...],
    reading: int,
    output: int = asyncio.subprocess.PIPE,
) -> _Created:
    """Start the outermost process; where that fails or is cancelled, `reading` is closed."""
    low = lowered(line)
    loop = asyncio.get_running_loop()
    # What `create_subprocess_exec` does, but that we keep the transport, which must be closed.
    creating = asyncio.create_task(
        loop.subprocess_exec(
            lambda: asyncio.subprocess.SubprocessStreamProtocol(_OUTPUT_BYTES, loop),
            *low,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=descriptors,
            env=dict(enclosure.environment),
            cwd=scratch,
            start_new_session=True,
        )
    )
    try:
        # Where creating is cancelled, asyncio waits for the end of its output, and that for good.
        await asyncio.wait({creating})
    except BaseException:
        await asyncio.wait({creating})
        if creating.exception() is None:
            await asyncio.shield(Walled(*creating.result(), reading, chosen).end())
        else:
            os.close(reading)
        raise
    if creating.exception() is not None:
        os.close(reading)
    transport, protocol = await creating
    give_way(transport.get_pid(), began_low=low != tuple(line))
    return transport, protocol


async def _forked(
    enclosure: Enclosure, scratch: Path, chosen: Wall, server: ForkServer
) -> "Walled":
    """The wall first, then a fork that joins it."""
    with Pipe() as status, Pipe(both_ways=True) as stands, Pipe() as joined, Pipe() as told:
        line = _line(enclosure, scratch, chosen, status.writing, stands.writing)
        transport, protocol = await _created(
            line, enclosure, scratch, chosen, (stands.writing,), status.kept(), told.writing
        )
        walled = Walled(transport, protocol, status.reading, chosen)
        try:
            await walled.hear(told.kept())
            if await stands.said() != STANDS:
                raise ForkFailedError("the wall does not stand")
            if len(running := tree(walled.pid)) < 2:
                raise ForkFailedError("the wall fell")
            wanted = job(
                enclosure.argv,
                first=running[-1],
                environment=enclosure.environment,
                folder=scratch,
                limits=NO_CORE | {"FSIZE": enclosure.file_bytes},
                niceness=max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0)),
                numbers=enclosure.descriptors,
            )
            own = (status.writing, stands.reading, joined.writing, told.writing)
            given = (*own, *enclosure.descriptors)
            walled.fork = await server.fork(wanted, given)
            give_way(walled.fork)
            if (word := await joined.said()) != JOINED:
                raise ForkFailedError(word.decode(errors="replace") or "a fork ended as it began")
            has_joined()
        except BaseException:
            await asyncio.shield(walled.end())
            raise
    return walled


class Pipe:
    """A pipe whose ends are closed when it is left, but for a reading end that somebody keeps."""

    def __init__(self, *, both_ways: bool = False) -> None:
        ends = socket.socketpair() if both_ways else ()
        self.reading, self.writing = [end.detach() for end in ends] or os.pipe()
        self._open = {self.reading, self.writing}

    def __enter__(self) -> "Pipe":
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close what is still open."""
        for end in tuple(self._open):
            self._close(end)

    def kept(self) -> int:
        """The reading end, which is the caller's from now on."""
        self._open.discard(self.reading)
        return self.reading

    async def said(self) -> bytes:
        """What comes first, once others alone can write; empty where it never will.

        Raises:
            ForkFailedError: nothing comes for too long.
        """
        self._close(self.writing)
        loop = asyncio.get_running_loop()
        came = asyncio.Event()
        loop.add_reader(self.reading, came.set)
        try:
            async with asyncio.timeout(_SAID_S):
                await came.wait()
        except TimeoutError:
            raise ForkFailedError("nothing was heard of it") from None
        finally:
            loop.remove_reader(self.reading)
        return os.read(self.reading, select.PIPE_BUF)

    def _close(self, end: int) -> None:
        if end in self._open:
            self._open.remove(end)
            os.close(end)


class Walled:
    """A started tree of processes.

    Attributes:
        fork: Where a fork has joined it (`fork_server`), the process that waits for it outside of
            the wall, in a session of its own; else 0.
    """

    def __init__(
        self,
        transport: asyncio.SubprocessTransport,
        protocol: asyncio.subprocess.SubprocessStreamProtocol,
        status_fd: int,
        behind: Wall,
    ) -> None:
        self._transport = transport
        loop = asyncio.get_running_loop()
        self._process = asyncio.subprocess.Process(transport, protocol, loop)
        self._status_fd = status_fd
        self._wall = behind
        self._status: int | None = None
        self._ended = False
        self._ending = asyncio.Lock()
        self._heard: asyncio.StreamReader | None = None
        self._hearing: asyncio.BaseTransport | None = None
        self.fork = 0
        _LIVE[self.pid] = behind.kind is WallKind.NONE

    async def hear(self, descriptor: int) -> None:
        """Take its output from a pipe of which the descriptor is the reading end."""
        loop = asyncio.get_running_loop()
        self._heard = heard = asyncio.StreamReader(_OUTPUT_BYTES)
        self._hearing, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(heard), os.fdopen(descriptor, "rb", buffering=0)
        )

    @property
    def pid(self) -> int:
        """The outermost process, which leads a session of its own."""
        return self._process.pid

    @property
    def isolation(self) -> Isolation:
        """How it is kept apart."""
        return self._wall.isolation

    @property
    def output(self) -> asyncio.StreamReader:
        """What it writes to its standard output and error."""
        found = self._heard or self._process.stdout
        assert found is not None
        return found

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        is_there = not self.fork or runs(self.fork)
        return not self._ended and self._process.returncode is None and is_there

    def processes(self) -> tuple[int, ...]:
        """Every process of the tree that runs now, wall and launcher included.

        Who waits for a fork outside of the wall is not: all its memory is the server's.
        """
        return () if self._ended else tree(self.pid) + self._forked()[1:]

    def _forked(self) -> tuple[int, ...]:
        return tree(self.fork) if self.fork else ()

    def held_bytes(self, running: tuple[int, ...] | None = None) -> int:
        """Memory that the whole tree holds; what is shared between its processes once."""
        return held_bytes(self.processes() if running is None else running)

    def pause(self) -> None:
        """Let the whole tree stand still; one that forks meanwhile is stopped with its children."""
        stopped: set[int] = set()
        while left := set(self.processes()) - stopped:
            for pid in left:
                _signal(pid, signal.SIGSTOP)
            stopped |= left

    def resume(self) -> None:
        """Let it go on."""
        for pid in self.processes():
            _signal(pid, signal.SIGCONT)

    async def wait(self) -> int | None:
        """How the command ended, once it has: negative for a signal; None when nobody saw it."""
        await self._exit()
        self._read_status()
        return self._status

    @property
    def status(self) -> int | None:
        """How the command ended, if that is known."""
        return self._status

    async def end(self) -> None:
        """End everything; returns when nothing of it is left, or after some seconds.

        Several may ask for it at once; each returns when it is done.
        """
        async with self._ending:
            if not self._ended:
                await self._end()

    async def _end(self) -> None:
        left = tree(self.pid) + self._forked()
        self._read_status()
        if self._wall.kind is WallKind.NONE and self._process.returncode is None:
            # The launcher alone finds those that left the group.
            _signal_group(self.pid, signal.SIGCONT)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._exit(), _ENDING_S)
        _signal_group(self.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._exit(), _DEATH_S)
        await gone(left, _DEATH_S)
        if not self.fork:  # whoever waits for a fork tells of our killing it
            self._read_status()
        os.close(self._status_fd)
        if (output := self._heard or self._process.stdout) is not None and not output.at_eof():
            await asyncio.sleep(_POLL_S)  # whoever listens reads what is left
        # One that is still open when the program's loop ends complains about that to the person.
        self._transport.close()
        if self._hearing is not None:
            self._hearing.close()
        self._ended = True
        _LIVE.pop(self.pid, None)

    async def _exit(self) -> None:
        """Return once the outermost process has ended.

        asyncio's own `wait` also waits for the end of its output, whose pipe any process that was
        forked meanwhile may hold, a compile server for one: it may never return.
        """
        while self._process.returncode is None:
            if self.fork and not runs(self.fork):
                _signal_group(self.pid, signal.SIGKILL)  # killed itself, it took no wall down
            await asyncio.sleep(_POLL_S)

    def _read_status(self) -> None:
        if self._status is not None or self._ended:
            return
        os.set_blocking(self._status_fd, False)
        with contextlib.suppress(BlockingIOError):
            if told := os.read(self._status_fd, 32):
                self._status = os.waitstatus_to_exitcode(int(told))


def _signal(pid: int, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, how)


def _signal_group(pid: int, how: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, how)
