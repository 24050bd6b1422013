"""A judge for one command: an executor with a scratch folder, both gone afterwards."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tools.evaluate.executors.base.executor import Executor
from tools.nouns import Baselines, Refusal, Task, TracePolicy
from ui.complaints import refused

if TYPE_CHECKING:
    from tools.evaluate.executors.local.executor import LocalExecutor


@asynccontextmanager
async def judge(target: str) -> AsyncIterator["LocalExecutor"]:
    """The executor of this machine for a target.

    Raises:
        EnvironmentLacksError: When there is no such device.
    """
    from tools.evaluate.executors.local.executor import LocalExecutor

    with tempfile.TemporaryDirectory(prefix="kernelwright-", ignore_cleanup_errors=True) as scratch:
        executor = LocalExecutor.create(target, Path(scratch))
        try:
            yield executor
        finally:
            await executor.aclose()


async def traced(executor: Executor, file: Path, policy: TracePolicy) -> Task:
    """The file as a task; Complaint when it cannot be one."""
    task = await executor.trace(file, policy)
    if isinstance(task, Refusal):
        raise refused(task)
    return task


async def baselines_of(executor: Executor, task: Task) -> Baselines:
    """What PyTorch itself does; Complaint when not even eager runs."""
    measured = await executor.baselines(task)
    if isinstance(measured, Refusal):
        raise refused(measured)
    return measured
