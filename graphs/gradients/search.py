"""Searches a module's backward behind its forward, with a share of the same budget.

The backward is traced in a worker and written as a module file, and an ordinary search is made
over it: it is verified against float64 and timed beside eager PyTorch like any task. So is the
forward of the step's own that keeps what the backward needs, where it has one. Neither is compared
with torch.compile, as a region of a model is not: a whole step is, by the export's verify.py. What
came of it is kept with the forward's run, and an export of that run then has all.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from kernelwright.graphs.regions.judge import RegionJudge, beside_eager_alone
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.options.run_terms import opened
from kernelwright.graphs.search.run import start_search
from kernelwright.graphs.search.summary import BACKWARD_TERM, BackwardSearch, material_of
from kernelwright.profiles.load import Models, SearchProfile
from kernelwright.tools.archive import Archive, default_home
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.base.kind import ExecutorChoice
from kernelwright.tools.evaluate.rules import Depth, Rules
from kernelwright.tools.export.gradients import gradients_of, why_not_own
from kernelwright.tools.types import Refusal, TracePolicy, Verdict, Verification
from kernelwright.tools.types.backward import Backward
from kernelwright.tools.types.run import Summary
from kernelwright.tools.types.training import TrainingSummary

# Of what may be spent, the step's part: it is what was asked for, and two searches where the step
# has a forward of its own. Of that, then, the backward's, which has twice the products.
_SHARE = 0.65
_BACKWARD_SHARE = 0.6


def shares(profile: SearchProfile) -> tuple[SearchProfile, SearchProfile]:
    """What the forward may spend, and what its backward."""
    return _part(profile, 1 - _SHARE), _part(profile, _SHARE)


def _part(profile: SearchProfile, share: float) -> SearchProfile:
    tokens = None if profile.tokens is None else max(1, int(profile.tokens * share))
    spending = {"tokens": tokens, "usd": None if profile.usd is None else profile.usd * share}
    changed = profile.model_copy(update={"seconds": profile.seconds * share, **spending})
    return SearchProfile.model_validate(changed.model_dump())


def step_share(whole: SearchProfile, share: SearchProfile, forward: Summary) -> SearchProfile:
    """What the step may spend behind its forward: of seconds that hold everything, what is left.

    Args:
        whole: what both may spend.
        share: the step's share of it.
        forward: what came of the forward's search.
    """
    if whole.seconds_hold != "everything":
        return share
    return share.model_copy(update={"seconds": max(1.0, whole.seconds - forward.seconds)})


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
    evidence: Depth = "full",
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
        evidence: what certifying adds.

    Returns:
        The same summary with what is known of a training step.
    """
    archive = Archive.open(summary.run, home)
    try:
        record = archive.record()
        if why := _why_not(summary):
            found = BackwardSearch(why=why)
        else:
            rules = Rules.of(evidence).within(profile.seconds * (1 - _BACKWARD_SHARE))
            async with (
                opened(executor, record.target, choice, seed, rules) as judge,
                beside_eager_alone(judge),
            ):
                folder = archive.folder / "backward"
                seen = await judge.backward(record.task)
                found = BackwardSearch(backward=seen.backward, why=seen.failure)
                begin = partial(
                    start_search,
                    policy=TracePolicy(allow=record.task.allow),
                    target=record.target,
                    seed=seed,
                    home=home or default_home(),
                    executor=RegionJudge(judge),
                    models=models,
                    control=control,
                    fresh=fresh,
                    modes=False,  # an export calls the plans of a step launch by launch
                    evidence=evidence,
                )
                if seen.backward is not None:
                    found = await _both(seen.backward, folder, record.task.name, profile, begin)
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


class Begin(Protocol):
    """A search over a file under a profile."""

    async def __call__(self, path: Path, *, profile: SearchProfile) -> Summary | Refusal:
        """Its summary, or why the file cannot be a task."""


async def _both(
    backward: Backward, folder: Path, name: str, profile: SearchProfile, begin: Begin
) -> BackwardSearch:
    """Search the step's own forward, where it has one, then its backward.

    Args:
        backward: the files of both.
        folder: where to write them.
        name: of the task.
        profile: what both may spend.
        begin: begins a search over one of them.
    """
    forward = ""
    home = folder.parent.parent.parent
    if backward.forward:
        first, profile = _part(profile, 1 - _BACKWARD_SHARE), _part(profile, _BACKWARD_SHARE)
        ended = await begin(_written(folder, f"{name}_forward", backward.forward), profile=first)
        if why := _nothing(ended, "forward that keeps what the backward needs", home):
            return BackwardSearch(backward=backward, why=why)
        assert isinstance(ended, Summary)
        if ended.status == "stopped":
            return BackwardSearch(backward=backward, why="the search was stopped before it")
        forward = ended.run
    ended = await begin(_written(folder, f"{name}_backward", backward.source), profile=profile)
    run = "" if isinstance(ended, Refusal) else ended.run
    why = _nothing(ended, "backward", home)
    return BackwardSearch(run=run, forward=forward, backward=backward, why=why)


def _nothing(ended: Summary | Refusal, what: str, home: Path) -> str:
    """Why a search over one of the step's files came to nothing; "" where it found a candidate."""
    if isinstance(ended, Refusal):
        return ended.sentence
    if ended.best is not None:
        return ""
    if ended.status == "stopped":
        return f"the search of the {what} was stopped"
    archive = Archive.open(ended.run, home)
    try:
        judged = [standing.evaluation.verification for standing in archive.standings()]
    finally:
        archive.close()
    return none_correct(judged, what, ended.seconds)


def none_correct(judged: Sequence[Verification], what: str, seconds: float) -> str:
    """Why none of a search's candidates serves: what the judge found, or that there was no time.

    Args:
        judged: of every candidate that was judged.
        what: they were for.
        seconds: that the search took.
    """
    if not judged:
        return f"no candidate for the {what} was judged in {seconds:.0f} s"
    right = [one for one in judged if one.verdict is Verdict.CORRECT]
    if right:
        why = right[0].apart or "none of them was timed"
        return f"{len(right)} of {len(judged)} candidates for the {what} were right, but {why}"
    first = judged[0]
    reason = f"{first.verdict.value.replace('_', ' ')}: {' '.join(first.reason.split())[:200]}"
    if len(judged) == 1:
        return f"the only candidate for the {what} is no use, {reason}"
    return f"none of {len(judged)} candidates for the {what} is correct, the first {reason}"


def _written(folder: Path, name: str, source: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    return path


def training(archive: Archive, found: BackwardSearch) -> TrainingSummary:
    """A training step by the best kernels of both runs beside the reference's."""
    if found.why or found.backward is None:
        return TrainingSummary(run=found.run, why=found.why)
    material = material_of(archive, forced=True)
    known = gradients_of(material)
    if known.training is None:
        return TrainingSummary(run=found.run, why=why_not_own(material))
    inner = Archive.open(found.run, archive.folder.parent.parent)
    try:
        ended = inner.record().summary
    finally:
        inner.close()
    status = ended.status if ended is not None else ""
    return known.training.model_copy(update={"run": found.run, "status": status})
