"""Where a run is evaluated: by which executor, chosen by name, here or elsewhere.

What was chosen is a term of the run, so that a resume knows it without being told.
"""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kernelwright.tools.archive import Archive, RunError, RunRecord, Target
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.base.kind import ExecutorChoice, Order
from kernelwright.tools.evaluate.executors.registry import DEFAULT, EXECUTORS, executor_kind
from kernelwright.tools.evaluate.rules import Rules

TERM = "executor"


class KeptChoice(ExecutorChoice):
    """The choice of a run, as its archive holds it: with whether the device is elsewhere."""

    remote: bool = True


@asynccontextmanager
async def opened(
    given: Executor | None,
    target: Target,
    choice: ExecutorChoice | None = None,
    seed: int = 0,
    rules: Rules | None = None,
) -> AsyncIterator[Executor]:
    """The given executor, which stays its owner's; or one that is made, closed at the end.

    Args:
        given: An executor of somebody's, if any.
        target: Which kind of device.
        choice: Which one is made; worker processes on this machine if None.
        seed: Of what a far host draws by chance.
        rules: The judge's figures, for one on this machine.
    """
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="kernelwright-", ignore_cleanup_errors=True) as scratch:
        wanted = choice or ExecutorChoice(name=DEFAULT)
        order = Order(wanted, target, Path(scratch), seed, rules)
        executor = executor_kind(wanted.name).make(order)
        try:
            yield executor
        finally:
            await executor.aclose()


def attach(executor: Executor, archive: Archive, choice: ExecutorChoice | None) -> None:
    """Tell an executor whom it works for, and keep with the run how it is evaluated."""
    remote = executor.capabilities.remote
    if not remote and (choice is None or choice.name == DEFAULT):
        return
    hardware = archive.record().hardware
    known = choice or ExecutorChoice(name="batch", hardware=hardware)
    kept = KeptChoice(
        name=known.name, hardware=known.hardware, bundles=known.bundles, remote=remote
    )
    archive.record_term(TERM, kept.model_dump_json())
    bundles = Path(known.bundles) / archive.id if known.bundles else archive.folder / "bundles"
    executor.attach(archive.id, bundles)


def choice_of(archive: Archive, record: RunRecord) -> ExecutorChoice | None:
    """How a run goes on; the device is what it is known to be now. None for the default.

    Raises:
        RunError: When the run was evaluated by an executor that is not registered here.
    """
    kept = kept_choice(archive)
    if kept is None:
        return None
    if kept.name not in EXECUTORS:
        raise RunError(f"run {archive.id} needs the executor {kept.name!r}, which is not here")
    return ExecutorChoice(name=kept.name, hardware=record.hardware, bundles=kept.bundles)


def kept_choice(archive: Archive) -> KeptChoice | None:
    """What a run keeps of its executor; None where it is this machine's own."""
    stored = archive.term(TERM)
    return None if stored is None else KeptChoice.model_validate_json(stored)
