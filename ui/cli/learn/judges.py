"""The judge of the commands that learn: any executor here, asked briefly and often."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.base.kind import ExecutorChoice, Order
from kernelwright.tools.evaluate.executors.registry import executor_kind
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.languages import default_language
from kernelwright.tools.learning.judging import Judge, Known
from kernelwright.ui.complaints import Complaint

# Thousands of answers are timed, each for as long as tells a half from a whole, and so is PyTorch;
# files are not read here whose torch.compile could be built ahead; and code that keeps a compiler
# for long is no kernel of a page.
RULES = Rules(screen_s=0.05, precise_s=0.15, compile_s=30.0, compile_ahead=False)
# Workers that stand ready beside one that judges on a GPU. A model that has begun to learn writes
# many kernels that read where nothing is, and each of them costs a worker, whose start is seconds.
_SPARES, _CORES_A_SPARE = 4, 4
BASELINES = "baselines.jsonl"
ResultT = TypeVar("ResultT")


class Seat:
    """A judge with the device it judges on.

    Args:
        judge: The judge.
        executor: Who compiles, verifies and times for it.
        device: The device's name.
        beside: Whether other processes may work beside it, as a GPU's times do not mind.
    """

    def __init__(self, judge: Judge, executor: Executor, device: str, *, beside: bool) -> None:
        self.judge, self.executor, self.device = judge, executor, device
        self.beside = beside


def _spares(cores: int) -> int:
    """Workers to stand ready; with few processors one, without which every crash costs a start."""
    return max(1, min(_SPARES, cores // _CORES_A_SPARE))


@asynccontextmanager
async def judging(
    name: str, target: str, known: Path | None, baselines: Path | None = None, seed: int = 0
) -> AsyncIterator[Seat]:
    """A judge over the executor of that name, ended afterwards.

    Args:
        name: The executor's.
        target: Which kind of device.
        known: Where verdicts are kept; None for nowhere.
        baselines: The data set's folder, beside which the times of baselines are kept.
        seed: Of every draw of inputs.

    Raises:
        Complaint: There is no executor of that name, or it answers another day.
        EnvironmentLacksError: There is no such device.
    """
    if name == "batch":
        raise Complaint("--executor batch answers when bundles are back; learning cannot wait so")
    with tempfile.TemporaryDirectory(prefix="kernelwright-", ignore_cleanup_errors=True) as scratch:
        try:
            kind = executor_kind(name)
            order = Order(ExecutorChoice(name=name), target, Path(scratch), seed, RULES)
        except ValueError as error:
            raise Complaint(str(error)) from None
        executor = kind.make(order)
        try:
            hardware = await executor.hardware()
            language = default_language(hardware.kind).spec.name
            times = Known(None if baselines is None else baselines / BASELINES)
            judge = Judge(executor, language, Known(known), times, hardware.name)
            beside = hardware.kind == "cuda"
            if beside:
                executor.stand_by(_spares(os.cpu_count() or 1), compiler=False)
            yield Seat(judge, executor, hardware.name, beside=beside)
        finally:
            await executor.aclose()


def done(work: Coroutine[object, object, ResultT]) -> ResultT:
    """The result of what is asynchronous, for a command that is not."""
    return asyncio.run(work)
