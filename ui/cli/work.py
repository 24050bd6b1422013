"""Evaluation elsewhere at the command line: choosing an executor, working off bundles.

`work` needs a device and what evaluates on it, and neither a network nor a run.
"""

import asyncio
import fcntl
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.ui.complaints import UNUSABLE, Complaint

if TYPE_CHECKING:
    from kernelwright.tools.evaluate.executors.base.kind import ExecutorChoice
    from kernelwright.tools.evaluate.executors.batch.bundle import Bundle

LOCK = ".working"


def wished(
    executor: str, bundles: Path | None, gpu: str | None, target: str, cluster: str | None = None
) -> "ExecutorChoice":
    """What the options of a search mean.

    Raises:
        Complaint: When they contradict each other, or there is no such executor or GPU.
    """
    from kernelwright.tools.evaluate.executors.base.kind import Options
    from kernelwright.tools.evaluate.executors.registry import executor_kind

    try:
        return executor_kind(executor).chosen(
            executor, Options(target, gpu, bundles, cluster or "")
        )
    except ValueError as error:
        raise Complaint(str(error)) from None


def work(folders: list[Path], target: str) -> int:
    """Fill in bundles, one after another; the exit status is 0 when all of them are done.

    A bundle that cannot be used is said, and the others are worked off all the same.
    """
    from kernelwright.tools.evaluate.executors.batch.bundle import Bundle, BundleError

    bundles: list[Bundle] = []
    status = 0
    for folder in folders:
        try:
            bundles.append(Bundle(folder.absolute()))
        except BundleError as error:
            _say(f"kernelwright: {error}")
            status = UNUSABLE
    if bundles:
        kinds = {bundle.manifest.target for bundle in bundles}
        chosen = next(iter(kinds)) if target == "auto" and len(kinds) == 1 else target
        status = max(status, asyncio.run(_all(bundles, chosen)))
    return status


async def _all(bundles: "list[Bundle]", target: str) -> int:
    from kernelwright.tools.evaluate.executors.batch.bundle import BundleError
    from kernelwright.tools.evaluate.executors.batch.work import work_bundle
    from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
    from kernelwright.tools.runtime import home

    # What torch.compile made is kept from one call to the next, as it takes most of the time.
    scratch = home() / "work"
    scratch.mkdir(parents=True, exist_ok=True)
    executor = LocalExecutor.create(target, scratch)
    status = 0
    try:
        for bundle in bundles:
            manifest, name = bundle.manifest, bundle.folder.name
            _say(f"{name}: {manifest.task.name} of run {manifest.run}")
            try:
                with locked(bundle.folder):
                    done = await work_bundle(bundle, executor, lambda line: _say(f"  {line}"))
                _say(f"{name}: done, {len(done.entries)} results, {done.seconds:.0f} s")
            except BundleError as error:
                _say(f"kernelwright: {error}")
                status = UNUSABLE
    finally:
        await executor.aclose()
    return status


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep others from the same bundle; a lock dies with its process.

    Raises:
        BundleError: When somebody works on it.
    """
    from kernelwright.tools.evaluate.executors.batch.bundle import BundleError

    with ExitStack() as stack:
        try:
            file = stack.enter_context((folder / LOCK).open("w"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BundleError(f"somebody works on {folder} already") from None
        except OSError as error:
            raise BundleError(f"cannot write into {folder}: {error.strerror}") from None
        yield


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
