"""Starts a process behind the wall, knows all that it started, and ends all of it.

    walled = await start_walled(Enclosure(argv=(...), scratch=folder, environment={...}))
    status = await walled.wait()      # as `subprocess` counts: negative for a signal
    await walled.end()                # afterwards nothing of it is left, whatever it did

Its standard output and error come as one stream, `walled.output`; other pipes or sockets are
handed over by `descriptors`. `Ended` says how a worker came to its end, in words that a person or a
coder can act on. Not here: what is said over its sockets, limits in time.

`until_over` watches the tree from outside: memory, number of processes, files in the scratch. A
limit on address space would stop CUDA, which reserves far more than it uses, and one on the number
of processes does not hold for root; so all three are polled. Not covered: memory on a GPU, which
torch reports itself.
"""

import asyncio
import atexit
import contextlib
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from kernelwright.tools.evaluate.messages import Stage
from kernelwright.tools.evaluate.sandbox.process_tree import gone, held_bytes, tree
from kernelwright.tools.evaluate.sandbox.walls import Wall, command, wall
from kernelwright.tools.runtime import give_way, lowered
from kernelwright.tools.types import Isolation, WallKind
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
    r"\(most recent call first\):\s*"
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
        return f"{found['file']}:{found['line']} in {found['name']}" if found else ""

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


_ENDING_S = 3.0
_DEATH_S = 10.0
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
    whether the GPU is there. `file_bytes` is the most that one file may hold.
    """

    argv: tuple[str, ...]
    scratch: Path
    environment: Mapping[str, str]
    readable: tuple[Path, ...] = ()
    descriptors: tuple[int, ...] = ()
    device: str = "cpu"
    file_bytes: int = _FILE_BYTES


async def start_walled(enclosure: Enclosure, behind: Wall | None = None) -> "Walled":
    """Start it behind this program's wall, or behind another one that works here.

    Raises:
        EnvironmentLacksError: a wall is demanded that does not work here.
        OSError: the process cannot be started.
    """
    chosen = behind or wall(enclosure.device)
    scratch = enclosure.scratch.absolute()
    scratch.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    argv = command(
        chosen.kind,
        enclosure.argv,
        scratch=scratch,
        status_fd=writing,
        strict=chosen.strict,
        without=chosen.without,
        readable=enclosure.readable,
        device=enclosure.device,
        limits={"FSIZE": enclosure.file_bytes},
        hides=chosen.hides,
    )
    low = lowered(argv)
    loop = asyncio.get_running_loop()
    # What `create_subprocess_exec` does, but that we keep the transport, which must be closed.
    creating = asyncio.create_task(
        loop.subprocess_exec(
            lambda: asyncio.subprocess.SubprocessStreamProtocol(_OUTPUT_BYTES, loop),
            *low,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(writing, *enclosure.descriptors),
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
    finally:
        os.close(writing)
    if creating.exception() is not None:
        os.close(reading)
    walled = Walled(*await creating, reading, chosen)
    give_way(walled.pid, began_low=low != tuple(argv))
    return walled


class Walled:
    """A started tree of processes."""

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
        _LIVE[self.pid] = behind.kind is WallKind.NONE

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
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return not self._ended and self._process.returncode is None

    def processes(self) -> tuple[int, ...]:
        """Every process of the tree that runs now, wall and launcher included."""
        return () if self._ended else tree(self.pid)

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
        left = tree(self.pid)
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
        self._read_status()
        os.close(self._status_fd)
        if not self.output.at_eof():
            await asyncio.sleep(_POLL_S)  # whoever listens reads what is left
        # One that is still open when the program's loop ends complains about that to the person.
        self._transport.close()
        self._ended = True
        _LIVE.pop(self.pid, None)

    async def _exit(self) -> None:
        """Return once the outermost process has ended.

        asyncio's own `wait` also waits for the end of its output, whose pipe any process that was
        forked meanwhile may hold, a compile server for one: it may never return.
        """
        while self._process.returncode is None:  # noqa: ASYNC110  # asyncio tells it no event
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
