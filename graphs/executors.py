"""Where a run is evaluated: on this machine, or by bundles that somebody carries to another.

What was chosen is a term of the run, so that a resume knows it without being told.
"""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from profiles.load import Hardware
from tools.archive import Archive, RunRecord, Target
from tools.evaluate.executor import Executor, FarExecutor
from tools.evaluate.rules import Rules
from tools.nouns import Value

TERM = "executor"


class Batch(Value):
    """The wish for bundles.

    Attributes:
        hardware: The device they are for, from a profile; what it really is they tell.
        bundles: The folder they are written to; "" for one in the run's own folder.
    """

    hardware: Hardware
    bundles: str = ""


@asynccontextmanager
async def opened(
    given: Executor | None,
    target: Target,
    batch: Batch | None = None,
    seed: int = 0,
    rules: Rules | None = None,
) -> AsyncIterator[Executor]:
    """The given executor, which stays its owner's; or one of our own, closed at the end.

    `rules` are for one of our own on this machine.
    """
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="kernelwright-", ignore_cleanup_errors=True) as scratch:
        executor = _made(target, batch, seed, Path(scratch), rules)
        try:
            yield executor
        finally:
            await executor.aclose()


def attach(executor: Executor, archive: Archive, batch: Batch | None) -> None:
    """Tell an executor whose device is elsewhere whom it works for, and the run how it works."""
    if not isinstance(executor, FarExecutor):
        return
    known = batch or Batch(hardware=archive.record().hardware)
    archive.record_term(TERM, known.model_dump_json())
    bundles = Path(known.bundles) / archive.id if known.bundles else archive.folder / "bundles"
    executor.attach(archive.id, bundles)


def batch_of(archive: Archive, record: RunRecord) -> Batch | None:
    """How a run goes on that was begun with bundles; the device is what it is known to be now."""
    stored = archive.term(TERM)
    if stored is None:
        return None
    return Batch.model_validate_json(stored).model_copy(update={"hardware": record.hardware})


def _made(
    target: Target, batch: Batch | None, seed: int, scratch: Path, rules: Rules | None
) -> Executor:
    if batch is not None:
        from tools.evaluate.batch.executor import BatchExecutor

        return BatchExecutor(batch.hardware, scratch, seed=seed)
    from tools.evaluate.local import LocalExecutor

    return LocalExecutor.create(target, scratch, rules=rules)
