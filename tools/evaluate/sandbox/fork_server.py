"""This program's side of the fork servers: one for each environment that workers are started in.

    server = await fork_server(environment, ahead)   # started at the first call, some seconds
    pid = await server.fork(job, descriptors)        # 20 ms

What a process starts with and a fork cannot change (flags of libraries, Python's paths) makes
another server; folders of the worker's own do not. A server that is lost is started anew at the
next call. It ends when this program does, however that ends: its socket is
closed then. Where one cannot be had, or a fork cannot join, a worker starts as a process of its own
(`walled`), after three in a row each one does.

Memory: a server holds some 350 MB, which its forks share. `KERNELWRIGHT_FORKS=off` starts none.
"""

import array
import asyncio
import atexit
import contextlib
import fcntl
import json
import logging
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernelwright.tools.evaluate.sandbox.forked import DESCRIPTORS_MAX, MESSAGE_BYTES, READY, Job
from kernelwright.tools.languages.base.compile import cache_folder
from kernelwright.tools.runtime import give_way

CHOICE = "KERNELWRIGHT_FORKS"
_MODULE = "kernelwright.tools.evaluate.sandbox.forked"
# Read by whoever needs them when they are needed, not when torch is imported.
_OF_ONE_WORKER = frozenset(
    {"HOME", "KERNELWRIGHT_HOME", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR",
     "TORCH_EXTENSIONS_DIR", "PATH", "TERM", "TZ", "USER", "LOGNAME", "LANGUAGE", "VIRTUAL_ENV"}
)  # fmt: skip
_FAILURES_MAX = 3
_SERVERS_MAX = 4  # each holds memory
_OWN_DESCRIPTORS = 4  # wait status, the wall's first process, the word that it joined, its output
_READY_S, _FORK_S, _END_S = 120.0, 20.0, 2.0
_POLL_S = 0.02

log = logging.getLogger(__name__)


class ForkFailedError(Exception):
    """The server is gone, or does not answer."""


class ForkServer:
    """A started server; see `fork_server`."""

    def __init__(self, environment: Mapping[str, str], ahead: str) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
        command = (
            sys.executable,
            "-P",
            "-m",
            _MODULE,
            str(theirs.fileno()),
            ahead,
            str(os.getpid()),
        )
        # torch makes this folder as it is imported; the first worker's may be gone by then.
        own = {**environment, "TORCHINDUCTOR_CACHE_DIR": str(cache_folder())}
        try:
            with _sealed_python() as python:
                self._process = subprocess.Popen(
                    command, executable=f"/proc/self/fd/{python}", env=own, cwd="/",
                    pass_fds=(theirs.fileno(), python), start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )  # fmt: skip
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        give_way(self._process.pid)
        self._socket = ours
        self._turn = threading.Lock()
        self._is_ready = False
        self._asked = 0

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    async def fork(self, job: Job, descriptors: Sequence[int]) -> int:
        """Have it fork; the process that was made, in a session of its own.

        Raises:
            ForkFailedError: it did not answer.
        """
        asking = asyncio.ensure_future(asyncio.to_thread(self._fork, job, descriptors))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            await asyncio.wait({asking})  # until then its descriptors must stay what they are
            raise

    async def ready(self) -> None:
        """Wait until it has imported what it imports (for errors see `fork`).

        No thread waits: one that nobody can end would hold up the end of an interrupted program.
        """
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        try:
            async with asyncio.timeout(_READY_S):
                while True:
                    if self._is_ready or poll.poll(0):
                        break
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise ForkFailedError("it imports torch for too long") from None
        await asyncio.to_thread(self._ready)

    def _ready(self) -> None:
        with self._turn:
            if not self._is_ready:
                self._is_ready = self._heard(_READY_S) == READY
            if not self._is_ready:
                raise ForkFailedError("it ended while it imported torch")

    def _fork(self, job: Job, descriptors: Sequence[int]) -> int:
        numbers = array.array("i", descriptors)
        with self._turn:
            self._asked += 1
            said = json.dumps({**job, "number": self._asked}).encode()
            try:
                self._socket.settimeout(_FORK_S)
                self._socket.sendmsg([said], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)])
            except OSError as error:
                raise ForkFailedError(str(error)) from error
            while True:
                number, _, pid = self._heard(_FORK_S).partition(b" ")
                if not pid.isdigit():
                    raise ForkFailedError("it has ended")
                if int(number) == self._asked:  # an earlier one was answered too late
                    return int(pid)

    def _heard(self, within_s: float) -> bytes:
        """What it says next; its forks go on where it is late."""
        self._socket.settimeout(within_s)
        try:
            return self._socket.recv(MESSAGE_BYTES)
        except OSError as error:
            raise ForkFailedError(str(error)) from error

    def end(self) -> None:
        """End it; its forks end with it. While it imports it looks at nothing, and has none."""
        self._socket.close()
        if self._is_ready:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)
                return
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def _sealed_python() -> Iterator[int]:
    """Python in memory that nobody can write to, as a descriptor.

    A fork's `/proc/self/exe` leads to the file that its server began with, past the wall's
    read-only mounts; it must not be the one that everybody runs (as runc does since CVE-2019-5736).
    """
    descriptor = os.memfd_create("python", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        place = os.path.realpath(sys.executable)
        with open(place, "rb") as source, open(descriptor, "wb", closefd=False) as copy:
            shutil.copyfileobj(source, copy)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        yield descriptor
    finally:
        os.close(descriptor)


_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_servers: dict[tuple[object, ...], ForkServer] = {}
_starting = threading.Lock()
_failures: list[str] = []


async def fork_server(environment: Mapping[str, str], ahead: str) -> ForkServer | None:
    """The server whose forks have this environment, ready; None where none can be had.

    Args:
        environment: of the worker.
        ahead: The module that the server imports and whose `main` it calls before any fork.
    """
    if len(_failures) >= _FAILURES_MAX or os.environ.get(CHOICE) == "off":
        return None
    lasting = {name: value for name, value in environment.items() if name not in _OF_ONE_WORKER}
    key = (ahead, tuple(sorted(lasting.items())))
    try:
        with _starting:
            for known in [known for known, server in _servers.items() if not server.alive]:
                _servers.pop(known).end()
            server = _servers.get(key)
            if server is None and len(_servers) == _SERVERS_MAX:
                return None
            if server is None:
                server = _servers[key] = ForkServer(environment, ahead)
        await server.ready()
    except (ForkFailedError, OSError) as error:
        failed(str(error))
        return None
    return server


def failed(why: str) -> None:
    """A worker starts as a process of its own; all do once several in a row could not be forked."""
    log.info("a worker is not forked: %s", why)
    _failures.append(why)
    if len(_failures) == _FAILURES_MAX:
        log.warning("workers are not forked any more, so each takes seconds to start: %s", why)


def joined() -> None:
    """A fork has joined its wall: whatever failed before it was in passing."""
    _failures.clear()


def fits(argv: Sequence[str], descriptors: Sequence[int]) -> bool:
    """Whether a command is one that a fork can become: this Python, and a module of ours."""
    return (
        tuple(argv[:3]) == (sys.executable, "-P", "-m") and len(descriptors) + 3 < DESCRIPTORS_MAX
    )


def job(
    argv: Sequence[str],
    *,
    first: int,
    environment: Mapping[str, str],
    folder: Path,
    limits: Mapping[str, int],
    niceness: int,
    numbers: Sequence[int],
) -> Job:
    """What a fork is to become (see `forked.Job`); the command is one that `fits`."""
    return Job(
        number=0,
        first=first,
        module=argv[3],
        arguments=list(argv[4:]),
        environment={**environment, "PWD": str(folder)},  # as bubblewrap has it
        folder=str(folder),
        limits=dict(limits),
        niceness=niceness,
        heeds_interrupts=signal.getsignal(signal.SIGINT) != signal.SIG_IGN,
        numbers=list(numbers),
    )


@atexit.register
def end_all() -> None:
    """A server whose socket is closed ends by itself; waiting for it leaves no zombie."""
    for server in _servers.values():
        server.end()
    _servers.clear()
