"""A few persistent compiler processes, started when first needed, and what a compile comes to.

That is an object that can be loaded, or the reason there is none. Each thread of the pool owns one
child. A compile that exceeds its time is killed with its whole process group, and the next compile
gets a new child. Nothing here knows a language.
"""

import atexit
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Generic, TypeVar

from kernelwright.tools.runtime import give_way
from kernelwright.tools.types import CompileReport, LanguageName, Value, Verdict


class Built(Value):
    """A compiled kernel.

    `artifact` is a cubin, a shared object or the like in the cache; `seconds` is what this call
    cost, so it is small when `cached`. `log` is the compiler's own words from when it really ran.
    """

    language: LanguageName
    artifact: Path
    functions: tuple[str, ...]
    reports: tuple[CompileReport, ...] = ()
    log: str = ""
    cached: bool = False
    seconds: float = 0.0


class CompileFailure(Value):
    """Why a candidate has no object: compile_error, invalid_plan (the contract) or timed_out.

    `message` is one sentence, `log` the compiler's own words.
    """

    verdict: Verdict
    message: str
    log: str = ""
    seconds: float = 0.0


class CompileRefusedError(Exception):
    """Raised when a compile ends without an object; becomes a CompileFailure."""

    def __init__(self, message: str, log: str = "", verdict: Verdict = Verdict.COMPILE_ERROR):
        super().__init__(message)
        self.message = message
        self.log = log
        self.verdict = verdict


_CHILD = Path(__file__).with_name("compiler_process.py")
_MAX_PROCESSES = 8
# What one compile may take; a template bomb must fail, not push the machine into swap.
MEMORY_BYTES = 6 << 30

Request = Mapping[str, object]
Result = TypeVar("Result")


class Answer(Value):
    """What a child says about one request."""

    ok: bool
    log: str
    lacks: str = ""
    knows: tuple[str, ...] = ()


class Compiler:
    """One child process, replaced when it has died; `compiler_process.py` is what it runs."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, commands: Sequence[Sequence[str]], folder: Path, timeout_s: float) -> Answer:
        """Run commands in a folder, one after another, until one fails.

        Raises:
            CompileRefusedError: When they take too long or one dies of its input.
        """
        request = {"kind": "commands", "commands": commands, "folder": str(folder)}
        return self.ask(request, timeout_s)

    def ask(self, request: Request, timeout_s: float) -> Answer:
        """Send one request and wait for its answer.

        Raises:
            CompileRefusedError: When the compile takes too long or the compiler dies of it.
        """
        process = self._alive()
        try:
            limited = {**request, "memory_bytes": MEMORY_BYTES}
            line = _exchange(process, json.dumps(limited).encode() + b"\n", timeout_s)
        except TimeoutError:
            self.kill()
            words = f"the compile took longer than {timeout_s:g} s and was stopped"
            raise CompileRefusedError(words, verdict=Verdict.TIMED_OUT) from None
        if not line:
            status = self.kill()
            raise CompileRefusedError(f"the compiler died of this source (status {status})")
        answer = Answer.model_validate_json(line)
        if "out of memory" in answer.log:
            self.kill()
        return answer

    def interrupt(self) -> None:
        """End the child from another thread; the one that waits for it sees it dead."""
        process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def kill(self) -> int | None:
        """End the child and all that it started; its exit status."""
        process, self._process = self._process, None
        if process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                # A half-written request cannot be flushed into a dead process.
                with contextlib.suppress(OSError):
                    stream.close()
        return process.wait()

    def _alive(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.kill()
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_CHILD), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                # NVRTC looks for quoted headers here first: not where the person happens to be.
                cwd=_CHILD.parent / "include",
            )
            give_way(self._process.pid)
        return self._process


class Pool:
    """Runs jobs in threads, each with a compiler of its own."""

    def __init__(self, processes: int):
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="compile")
        self._own = threading.local()
        self._compilers: list[Compiler] = []

    def submit(self, job: Callable[[Compiler], Result]) -> "Ticket[Result]":
        """Queue a job; the ticket gives its result and can end it."""
        ticket: Ticket[Result] = Ticket()

        def run() -> Result:
            ticket.compiler = self._compiler()
            try:
                return job(ticket.compiler)
            finally:
                ticket.compiler = None

        ticket.future = self._threads.submit(run)
        return ticket

    def close(self) -> None:
        """End every child and wait for the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for compiler in self._compilers:
            compiler.interrupt()
        self._threads.shutdown(wait=True)
        for compiler in self._compilers:
            compiler.kill()

    def _compiler(self) -> Compiler:
        if not hasattr(self._own, "compiler"):
            self._own.compiler = Compiler()
            self._compilers.append(self._own.compiler)
        compiler: Compiler = self._own.compiler
        return compiler


class Ticket(Generic[Result]):
    """A job under way."""

    future: Future[Result]
    compiler: Compiler | None = None

    def cancel(self) -> None:
        """End the job, whether it waits or compiles."""
        compiler = self.compiler
        if not self.future.cancel() and compiler is not None:
            compiler.interrupt()


_lock = threading.Lock()
_pool: Pool | None = None


def pool() -> Pool:
    """The process's pool, made on first use."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = Pool(min(_MAX_PROCESSES, os.cpu_count() or 1))
        return _pool


def shutdown_compilers() -> None:
    """End every compiler process of this process; the next compile starts new ones."""
    global _pool
    with _lock:
        closing, _pool = _pool, None
    if closing is not None:
        closing.close()


atexit.register(shutdown_compilers)


def _exchange(process: subprocess.Popen[bytes], line: bytes, timeout_s: float) -> bytes:
    """Write one line and read one; empty when the process died, TimeoutError when it is late."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(line)
        process.stdin.flush()
    except OSError:
        return b""
    deadline = time.monotonic() + timeout_s
    received = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not received.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                return b""
            received += part
    return received
