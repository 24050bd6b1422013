"""The judge of one device, in a process of its own: does one job after another, line by line.

`python -m kernelwright.tools.evaluate.executors.cluster.judge TARGET` first says who it is, as a
`Greeting`, and then answers every `Job` on its input by an `Answer`. It is started by the actor
that stands for the device, knows nothing of Ray, and ends with whoever started it. Candidates run
as anywhere: in workers behind the wall, which see neither this process nor the cluster.
"""

import asyncio
import ctypes
import fcntl
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

from kernelwright.tools.evaluate.executors.batch.bundle import Probed
from kernelwright.tools.evaluate.executors.cluster.lease import FileLease
from kernelwright.tools.evaluate.executors.cluster.messages import (
    LONGEST_LINE_BYTES,
    Answer,
    Greeting,
    Job,
)
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.walls import wall
from kernelwright.tools.hardware import detect
from kernelwright.tools.hardware.detect import visible_gpu_or_none
from kernelwright.tools.runtime import SOURCES, home, kernelwright_version
from kernelwright.tools.types import (
    Baselines,
    EnvironmentLacksError,
    Evaluation,
    Refusal,
    Task,
    WallKind,
)

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_SCRATCH = "kernelwright-device-"
_SOURCES = (".py", ".j2", ".toml", ".cuh", ".hpp")
_TASKS = 4


def software() -> str:
    """What must be the same on all devices: versions, and a hash of the judge's own sources."""
    package = SOURCES / "kernelwright"
    told = sha256()
    for part in ("tools", "profiles"):
        folder = (package / part).resolve()
        files = {
            file.relative_to(folder).as_posix(): file
            for file in folder.rglob("*")
            if file.suffix in _SOURCES
        }
        for name, file in sorted(files.items()):
            told.update(f"{part}/{name}\0".encode() + file.read_bytes() + b"\0")
    torch = version("torch").partition("+")[0]
    return f"kernelwright {kernelwright_version()} ({told.hexdigest()[:8]}), torch {torch}"


def greeting(target: str) -> Greeting:
    """Who judges here, and whether candidates may run at all.

    Raises:
        EnvironmentLacksError: There is no such device.
    """
    hardware = detect(target)
    node = platform.node()
    return Greeting(
        hardware=hardware,
        node=node,
        unit=_gpu_id() if hardware.kind == "cuda" else f"cpu-{node}",
        software=software(),
        lacks=wall_lacks(hardware.kind),
        pid=os.getpid(),
    )


def wall_lacks(device: str) -> str:
    """Why a candidate could reach the cluster from here; "" where it cannot."""
    try:
        stands = wall(device)
    except EnvironmentLacksError as error:
        return str(error)
    if stands.kind is WallKind.BUBBLEWRAP or (stands.kind is WallKind.NAMESPACES and stands.hides):
        return ""
    return (
        f"on {platform.node()} nothing would keep candidates from the cluster's token and network "
        f"({stands.isolation.words}): apt-get install bubblewrap there"
    )


def _gpu_id() -> str:
    nvml, handle = visible_gpu_or_none()
    if nvml is None:
        return f"gpu-{platform.node()}"
    told: object = nvml.nvmlDeviceGetUUID(handle)
    return told.decode() if isinstance(told, bytes) else str(told)


class Judge:
    """Answers jobs by worker processes of this machine.

    Args:
        greeting: Who it is.
        scratch: A folder of its own.
    """

    def __init__(self, greeting: Greeting, scratch: Path) -> None:
        self._greeting, self._scratch = greeting, scratch
        self._executor: LocalExecutor | None = None
        self._rules: Rules | None = None
        self._tasks: OrderedDict[str, Task] = OrderedDict()

    async def answer(self, job: Job) -> Answer:
        """Do a job; whatever happens, there is an answer."""
        start = time.perf_counter()
        answer = Answer(job=job.id, device=self._words)
        try:
            found = await self._done(job, answer)
        except EnvironmentLacksError as error:
            found = answer.model_copy(update={"lacks": str(error)})
        except Exception as error:  # ours, which another device may not run into
            words = f"{type(error).__name__}: {error}".splitlines()[0][:500]
            found = answer.model_copy(update={"broken": words})
            await self.aclose()
        return found.model_copy(update={"seconds": time.perf_counter() - start})

    async def aclose(self) -> None:
        """End the workers."""
        executor, self._executor = self._executor, None
        if executor is not None:
            await executor.aclose()

    @property
    def _words(self) -> str:
        told = self._greeting
        return f"{told.hardware.name}, {told.unit} of {told.node}, process {told.pid}"

    async def _done(self, job: Job, answer: Answer) -> Answer:
        executor, task = await self._made(job.rules), self._task(job)
        executor.reseed(job.seed)
        if job.baselines is not None:
            executor.remember(task, job.baselines)
        if job.kind == "probe":
            return answer.model_copy(update={"probed": await self._probed(executor, task)})
        if job.candidate is None:
            raise ValueError(f"a {job.kind} without a candidate")
        if job.kind == "profile":
            profile = await executor.profile(task, job.candidate)
            return answer.model_copy(update={"profile": profile})
        found: Evaluation = await executor.evaluate(task, job.candidate, job.kind)
        return answer.model_copy(update={"evaluation": found})

    async def _made(self, rules: Rules) -> LocalExecutor:
        """The executor of these rules; there is one at a time."""
        if self._executor is None or self._rules != rules:
            await self.aclose()
            lease = FileLease(home() / "leases", self._greeting.unit)
            kind = self._greeting.hardware.kind
            self._rules = rules
            self._executor = LocalExecutor.create(kind, self._scratch, rules=rules, lease=lease)
        return self._executor

    def _task(self, job: Job) -> Task:
        known = self._tasks.pop(job.task_key, None)
        task = self._tasks[job.task_key] = known or Task.model_validate_json(job.task)
        while len(self._tasks) > _TASKS:
            self._tasks.popitem(last=False)
        return task

    async def _probed(self, executor: LocalExecutor, task: Task) -> Probed:
        hardware = await executor.hardware()
        audited = await executor.audit(task)
        if isinstance(audited, Refusal):
            return Probed(hardware=hardware, refusal=audited)
        new = audited.warnings[len(task.warnings) :]
        measured = await executor.baselines(task)
        if isinstance(measured, Baselines):
            return Probed(hardware=await executor.hardware(), warnings=new, baselines=measured)
        return Probed(hardware=hardware, warnings=new, refusal=measured)


async def serve(target: str, lines: TextIO) -> None:
    """Greet, then answer every line of the input until it ends."""
    try:
        told = await asyncio.to_thread(greeting, target)
    except EnvironmentLacksError as error:
        _say(lines, str(error))
        return
    _say(lines, told.model_dump_json())
    reader = asyncio.StreamReader(limit=LONGEST_LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    with scratch_folder() as scratch:
        judge = Judge(told, scratch)
        try:
            while line := await reader.readline():
                job = Job.model_validate_json(line)
                _say(lines, (await judge.answer(job)).model_dump_json())
        finally:
            await judge.aclose()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder of one's own, after those were removed that killed processes left behind."""
    base = Path(tempfile.gettempdir())
    for left in base.glob(f"{_SCRATCH}*"):
        with suppress(OSError), (left / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_SCRATCH))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder / "workers"
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _say(lines: TextIO, text: str) -> None:
    lines.write(text + "\n")
    lines.flush()


def main() -> None:
    """The process."""
    # Killed or not, whoever began this takes it along.
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)
        asyncio.run(serve(sys.argv[1], lines))


if __name__ == "__main__":
    main()
