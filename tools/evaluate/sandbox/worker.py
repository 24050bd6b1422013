"""One worker process and the conversation with it, and what its end means.

It runs behind a wall, and everything that it starts ends with it. It is lost, not reset: after a
timeout, a crash or a cancelled question there is a new one. Its end is a verdict for a candidate, a
refusal for a file. Not here: which worker to ask what.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from kernelwright.tools.evaluate.messages import (
    MESSAGE,
    JudgeRequest,
    Message,
    Ready,
    Reply,
    Request,
    Stage,
)
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.bytecode import WORKER_IMPORTS, worker_environment
from kernelwright.tools.evaluate.sandbox.ending import Ended, Excess, Limits, until_over
from kernelwright.tools.evaluate.sandbox.filling import fill
from kernelwright.tools.evaluate.sandbox.process_tree import machine_bytes, until_still
from kernelwright.tools.evaluate.sandbox.walled import Enclosure, Walled, start_walled
from kernelwright.tools.evaluate.sandbox.walls import standing
from kernelwright.tools.evaluate.wire import (
    TOKEN_BYTES,
    UNASKED,
    ForgedError,
    frame,
    opened,
    receive,
)
from kernelwright.tools.languages import CompileFailure
from kernelwright.tools.languages.base.compile import cache_folder
from kernelwright.tools.types import (
    Candidate,
    Conditions,
    EnvironmentLacksError,
    Evaluation,
    Isolation,
    Refusal,
    StageTimes,
    Verdict,
    Verification,
)

_OUTSIDE_MEMORY = (signal.SIGSEGV, signal.SIGBUS)
_TOLD_LINES = 3


def evaluation_of(request: JudgeRequest, ended: Ended, isolation: Isolation) -> Evaluation:
    """The evaluation of a candidate during which the worker was lost."""
    stage = ended.stage
    words = stage.words if stage else "it was taken up"
    at_fault = stage is not None and stage.blame == "candidate"
    # No damage by chance writes a whole frame, so whoever did it, the result is worth nothing.
    forged = ended.how == "forged"
    damaged = " (after the candidate had run: it may have damaged memory)"
    after = "" if at_fault or forged else damaged
    eager = request.baselines.named("eager") if request.baselines else None
    usual = ""
    if ended.how == "timed_out" and eager and eager.measurement:
        usual = f"; PyTorch takes {eager.measurement.median_ms:.3g} ms"
    verification = Verification(
        verdict=verdict_of(ended) if at_fault or forged else Verdict.CRASHED,
        reason=f"the worker {ended.words} while {words}{after}{usual}{_said(ended)}",
        isolation=isolation,
    )
    return Evaluation(
        candidate=request.candidate.id,
        verification=verification,
        reports=request.built.reports,
        compiler_log=request.built.log,
        stages=StageTimes(compile_s=request.built.seconds),
    )


def not_compiled(candidate: Candidate, failure: CompileFailure, isolation: Isolation) -> Evaluation:
    """The evaluation of a candidate that never ran."""
    return Evaluation(
        candidate=candidate.id,
        verification=Verification(
            verdict=failure.verdict, reason=failure.message, isolation=isolation
        ),
        compiler_log=failure.log,
        stages=StageTimes(compile_s=failure.seconds),
    )


def isolated(evaluation: Evaluation, isolation: Isolation) -> Evaluation:
    """The evaluation with how its worker was kept apart, which the worker cannot know."""
    verification = evaluation.verification.model_copy(update={"isolation": isolation})
    return evaluation.model_copy(update={"verification": verification})


def accompanied(evaluation: Evaluation, strangers: int | None) -> Evaluation:
    """The evaluation with how many other processes used the device, as the parent saw it."""
    if strangers is None:
        return evaluation

    def seen(conditions: Conditions) -> Conditions:
        return conditions.model_copy(update={"other_processes": strangers})

    screen = evaluation.screen
    if screen is not None:
        screen = screen.model_copy(update={"conditions": seen(screen.conditions)})
    comparisons = tuple(
        item.model_copy(update={"conditions": seen(item.conditions)})
        for item in evaluation.comparisons
    )
    return evaluation.model_copy(update={"screen": screen, "comparisons": comparisons})


def verdict_of(ended: Ended) -> Verdict:
    """The verdict when the candidate is to blame."""
    if ended.how == "timed_out":
        return Verdict.TIMED_OUT
    if ended.how == "forged":
        return Verdict.CHEATING
    # The judge's own kill is SIGKILL as well, after whatever it was for.
    killed_by_the_kernel = ended.how == "exited" and ended.signal is signal.SIGKILL
    if ended.how == "out_of_memory" or killed_by_the_kernel:
        return Verdict.OUT_OF_MEMORY
    return Verdict.ILLEGAL_ACCESS if ended.signal in _OUTSIDE_MEMORY else Verdict.CRASHED


def refusal_of(ended: Ended, doing: str) -> Refusal:
    """Why a user's file cannot be a task, when it took the worker with it."""
    return Refusal(sentence=f"The process {doing} {ended.words}.", detail=ended.output)


def _said(ended: Ended) -> str:
    """The last words of a worker that aborted, such as the allocator's complaint."""
    if ended.signal is not signal.SIGABRT:
        return ""
    lines = [line for line in ended.output.splitlines() if line and not line.startswith("  ")]
    return f": {' / '.join(lines[:_TOLD_LINES])[:300]}" if lines else ""


_KEPT_OUTPUT_BYTES = 16_384
_NO_SETTINGS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Patience:
    """How long a worker may do nothing at all, and who is told that it still works or waits.

    `tell` gets the seconds that have passed, and whether the worker computes just now.
    """

    still_s: float
    tell: Callable[[float, bool], None]


class WorkerBrokenError(Exception):
    """A worker failed in a way that is Kernelwright's own fault."""


class WorkerLateError(WorkerBrokenError, EnvironmentLacksError):
    """A worker had too little of the machine to become ready: nobody's fault, and said so."""


class WorkerProcess:
    """A started worker. Use `start`, then `ask` one question at a time, then `aclose`."""

    def __init__(
        self,
        walled: Walled,
        scratch: Path,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        rules: Rules,
        readable: tuple[Path, ...],
    ) -> None:
        self.readable = readable
        self._walled = walled
        self._scratch = scratch
        self._reader = reader
        self._writer = writer
        self._token = UNASKED
        self._output = bytearray()
        self._began: frozenset[int] = frozenset()
        self._listener = asyncio.create_task(self._listen())
        self._limits = Limits(
            memory_bytes=int(machine_bytes() * rules.memory_fraction),
            processes=rules.processes_max,
            scratch_bytes=rules.scratch_bytes,
            poll_s=rules.memory_poll_s,
        )

    @property
    def scratch(self) -> Path:
        """The only folder that it can write, where it also stands."""
        return self._scratch

    @classmethod
    async def start(
        cls,
        scratch: Path,
        rules: Rules,
        inherited: Sequence[int] = (),
        *,
        device: str = "cpu",
        readable: tuple[Path, ...] = (),
        settings: Mapping[str, str] = _NO_SETTINGS,
    ) -> "WorkerProcess":
        """Start a worker and wait until it is ready.

        Args:
            scratch: its folder, for caches.
            rules: the judge's figures.
            inherited: descriptors that it gets as well.
            device: whether it needs the GPU.
            readable: what it may read beside the system, Python, ourselves and compiled objects.
            settings: further variables of its environment.

        Raises:
            WorkerBrokenError: it does not come up.
            WorkerLateError: not in time.
        """
        await fill()
        objects = cache_folder()
        objects.mkdir(parents=True, exist_ok=True)
        readable = (objects, *readable)
        ours, theirs = socket.socketpair()
        try:
            walled = await start_walled(
                Enclosure(
                    argv=_command(theirs.fileno()),
                    scratch=scratch,
                    environment={**worker_environment(scratch), **settings},
                    readable=readable,
                    descriptors=(theirs.fileno(), *inherited),
                    device=device,
                    ahead=WORKER_IMPORTS,
                ),
                behind=standing(rules, device),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            reader, writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            await asyncio.shield(walled.end())
            raise
        worker = cls(walled, scratch, reader, writer, rules, readable)
        first = await worker._converse(None, rules.start_s)
        if isinstance(first, Ended):
            words = f"a worker {first.words} before it was ready"
            if first.how == "timed_out":
                raise WorkerLateError(f"{words}: others keep this machine busy; try again later")
            raise WorkerBrokenError(f"{words}\n{first.output}")
        worker._began = frozenset(walled.processes())
        return worker

    @property
    def pid(self) -> int:
        """The outermost process of its tree."""
        return self._walled.pid

    @property
    def isolation(self) -> Isolation:
        """How it is kept apart."""
        return self._walled.isolation

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self._walled.alive

    def processes(self) -> tuple[int, ...]:
        """Every process that belongs to it now."""
        return self._walled.processes()

    def pause(self) -> None:
        """Let it and all that it started stand still, the time of its question running on."""
        self._walled.pause()

    def resume(self) -> None:
        """Let it go on."""
        self._walled.resume()

    def strays(self) -> tuple[int, ...]:
        """Those that were started by what it was asked to run, and still run."""
        return tuple(pid for pid in self.processes() if pid not in self._began)

    async def ask(
        self, request: Request, limit_s: float, patience: Patience | None = None
    ) -> Reply | Ended:
        """One question. Stages reported on the way replace the limit by their own.

        A cancelled question ends the worker: it would answer the next one with this answer.
        """
        answer = await self._converse(request, limit_s, patience)
        if isinstance(answer, Ready):
            return await self._end("forged", None)  # it introduced itself before
        return answer

    async def aclose(self) -> None:
        """End it and everything that it started."""
        await self._walled.end()
        self._writer.close()
        self._listener.cancel()
        # Not awaited itself: its cancellation could not be told from one of whoever is here.
        await asyncio.wait({self._listener})

    async def _converse(
        self, request: Request | None, limit_s: float, patience: Patience | None = None
    ) -> Ready | Reply | Ended:
        stalling = asyncio.create_task(self._stalled(patience))
        try:
            answer = await self._exchange(request, limit_s, stalling)
        except BaseException:
            await asyncio.shield(self.aclose())
            raise
        finally:
            stalling.cancel()
        if isinstance(answer, Ended) or (isinstance(answer, Reply) and answer.retire):
            await self.aclose()
        return answer

    async def _stalled(self, patience: Patience | None) -> float:
        """Return once it did nothing for too long, with how long that was; else never."""
        if patience is None:
            await asyncio.get_running_loop().create_future()
        else:
            await until_still(self.processes, patience.still_s, patience.tell)
        return patience.still_s if patience is not None else 0.0

    async def _exchange(
        self, request: Request | None, limit_s: float, stalling: "asyncio.Task[float]"
    ) -> Ready | Reply | Ended:
        if request is not None:
            self._token = os.urandom(TOKEN_BYTES)
            self._writer.write(frame(self._token + request.model_dump_json().encode()))
            with contextlib.suppress(ConnectionError):
                await self._writer.drain()
        stage: Stage | None = None
        while True:
            message = await self._next(stage, limit_s, stalling)
            if not isinstance(message, Stage):
                return message
            stage, limit_s = message, message.limit_s

    async def _next(
        self, stage: Stage | None, limit_s: float, stalling: "asyncio.Task[float]"
    ) -> Message | Ended:
        """The next message, or the first of: too late, too much of something, gone."""
        reading, watching, waiting = (
            asyncio.create_task(self._receive()),
            asyncio.create_task(until_over(self._walled, self._scratch, self._limits)),
            asyncio.create_task(self._walled.wait()),
        )
        tasks: set[
            asyncio.Task[Message | None] | asyncio.Task[Excess] | asyncio.Task[int | None]
        ] = {reading, watching, waiting}
        try:
            await asyncio.wait(
                {*tasks, stalling}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            # What was said before the end still counts.
            if waiting.done() and not reading.done():
                await asyncio.wait({reading}, timeout=0.2)
            if reading.done() and isinstance(reading.exception(), ForgedError):
                return await self._end("forged", stage)
            if reading.done() and (message := reading.result()) is not None:
                return message
            if watching.done():
                excess = watching.result()
                return await self._end(excess.how, stage, amount=excess.amount)
            if reading.done():
                await asyncio.wait({waiting}, timeout=5.0)
            if waiting.done():
                return await self._end("exited", stage)
            if stalling.done():
                return await self._end("stalled", stage, limit_s=stalling.result())
            return await self._end("timed_out", stage, limit_s=limit_s)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _receive(self) -> Message | None:
        """The next message; None when there will be none."""
        try:
            token, said = opened(await receive(self._reader))
            if token != self._token:
                raise ForgedError("a message that answers nothing that was asked")
            return MESSAGE.validate_json(said)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except ValidationError as error:
            raise ForgedError("a message of no known kind") from error

    async def _end(
        self, how: str, stage: Stage | None, *, limit_s: float = 0.0, amount: int = 0
    ) -> Ended:
        await asyncio.sleep(0)  # the listener reads what is left of the output
        await self.aclose()
        return Ended.model_validate(
            {
                "how": how,
                "status": self._walled.status,
                "stage": stage,
                "output": self.output,
                "limit_s": limit_s,
                "amount": amount,
            }
        )

    @property
    def output(self) -> str:
        """The end of what the worker wrote to its standard streams."""
        return self._output.decode(errors="replace").strip()

    async def _listen(self) -> None:
        """Keep the tail of the output; a pipe that nobody empties would stop the worker."""
        while part := await self._walled.output.read(65_536):
            self._output += part
            del self._output[:-_KEPT_OUTPUT_BYTES]


def _command(descriptor: int) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", "kernelwright.tools.evaluate.worker", str(descriptor))
