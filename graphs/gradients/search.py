"""Searches a module's backward behind its forward, with a share of the same budget.

The backward is traced in a worker and written as a module file, and an ordinary search is made
over it: it is verified against float64, timed and certified like any task. What came of it is kept
with the forward's run, and an export of that run then has both.
"""

from pathlib import Path

from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.options.run_terms import opened
from kernelwright.graphs.search.run import start_search
from kernelwright.graphs.search.summary import BACKWARD_TERM, BackwardSearch, material_of
from kernelwright.profiles.load import Models, SearchProfile
from kernelwright.tools.archive import Archive, default_home
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.base.kind import ExecutorChoice
from kernelwright.tools.export.gradients import gradients_of
from kernelwright.tools.types import Refusal, TracePolicy
from kernelwright.tools.types.backward import Backward
from kernelwright.tools.types.run import Summary
from kernelwright.tools.types.training import TrainingSummary

# Of what may be spent, the backward's part; which of the two gains more is not known before.
_SHARE = 0.5


def shares(profile: SearchProfile) -> tuple[SearchProfile, SearchProfile]:
    """What the forward may spend, and what its backward."""
    return _part(profile, 1 - _SHARE), _part(profile, _SHARE)


def _part(profile: SearchProfile, share: float) -> SearchProfile:
    tokens = None if profile.tokens is None else max(1, int(profile.tokens * share))
    spending = {"tokens": tokens, "usd": None if profile.usd is None else profile.usd * share}
    changed = profile.model_copy(update={"seconds": profile.seconds * share, **spending})
    return SearchProfile.model_validate(changed.model_dump())


async def with_backward(
    summary: Summary,
    profile: SearchProfile,
    *,
    seed: int = 0,
    home: Path | None = None,
    models: Models | None = None,
    choice: ExecutorChoice | None = None,
    executor: Executor | None = None,
    control: Control | None = None,
    fresh: bool = False,
) -> Summary:
    """Search the backward of a run that has ended, and keep what came of it with that run.

    Args:
        summary: of the forward's search.
        profile: what may be spent.
        seed: of everything that is drawn by chance.
        home: where runs live.
        models: who thinks; the playbook by default.
        choice: which executor is made where none is given.
        executor: who evaluates.
        control: the handle by which to stop it.
        fresh: begin with nothing out of the library of kernels.

    Returns:
        The same summary with what is known of a training step.
    """
    archive = Archive.open(summary.run, home)
    try:
        record = archive.record()
        if why := _why_not(summary):
            found = BackwardSearch(why=why)
        else:
            async with opened(executor, record.target, choice, seed) as judge:
                folder = archive.folder / "backward"
                seen = await judge.backward(record.task)
                found = BackwardSearch(backward=seen.backward, why=seen.failure)
                if seen.backward is not None:
                    ended = await start_search(
                        _written(folder, record.task.name, seen.backward.source),
                        TracePolicy(allow=record.task.allow),
                        record.target,
                        profile,
                        seed=seed,
                        home=home or default_home(),
                        executor=judge,
                        models=models,
                        control=control,
                        fresh=fresh,
                        modes=False,  # an export calls the backward's plan launch by launch
                    )
                    found = _ended(ended, seen.backward)
        archive.record_term(BACKWARD_TERM, found.model_dump_json())
        summary = summary.model_copy(update={"training": training(archive, found)})
        archive.record_summary(summary, record.status)
        return summary
    finally:
        archive.close()


def _why_not(summary: Summary) -> str:
    if summary.status in ("stopped", "waiting", "failed"):
        return f"the search of the forward ended as {summary.status!r}"
    return "" if summary.best is not None else "no kernels were found for the forward"


def _ended(ended: Summary | Refusal, backward: Backward) -> BackwardSearch:
    """What came of the search over the backward's file."""
    if isinstance(ended, Refusal):
        return BackwardSearch(backward=backward, why=ended.sentence)
    why = "" if ended.best is not None else "no candidate for the backward was correct"
    return BackwardSearch(run=ended.run, backward=backward, why=why)


def _written(folder: Path, name: str, source: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}_backward.py"
    path.write_text(source, encoding="utf-8")
    return path


def training(archive: Archive, found: BackwardSearch) -> TrainingSummary:
    """A training step by the best kernels of both runs beside the reference's."""
    if found.why or found.backward is None:
        return TrainingSummary(run=found.run, why=found.why)
    known = gradients_of(material_of(archive, forced=True))
    if known.training is None:
        why = known.refused or "the backward needs what the forward's kernels are not given"
        return TrainingSummary(run=found.run, why=why)
    inner = Archive.open(found.run, archive.folder.parent.parent)
    try:
        ended = inner.record().summary
    finally:
        inner.close()
    status = ended.status if ended is not None else ""
    return known.training.model_copy(update={"run": found.run, "status": status})
