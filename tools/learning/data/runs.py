"""The judged candidates of recorded runs as attempts, each in the shortest contract that holds it.

A candidate whose plan only allocates and launches is put into the short contract, its tunables at
the values that were judged; any other is told in full, kernel and plan. A candidate that corrects
another one that failed is kept with what the judge had said. Runs over tasks that prove little, and
what cannot be read, are left out, and counted.
"""

from collections.abc import Mapping
from pathlib import Path

from kernelwright.tools.archive import Archive, RunError, RunRecord, Standing, run_folders
from kernelwright.tools.learning.contract.launches import Interface, interface
from kernelwright.tools.learning.contract.prompts import Failure, question
from kernelwright.tools.learning.contract.shortening import in_full, shortened
from kernelwright.tools.learning.data.records import Attempt, Problem, Provenance
from kernelwright.tools.memory import key_of
from kernelwright.tools.runtime import kernelwright_version
from kernelwright.tools.types import Analysis, Task, Value
from kernelwright.tools.types.graph import base
from kernelwright.tools.types.graph import words as name_set

_VIEWS = name_set(
    "view reshape permute transpose expand unsqueeze squeeze getitem clone t slice alias"
)
_FAILED_CHARACTERS = 1500


class FromRuns(Value):
    """What runs hold; `left_out` says of each run that was not taken why."""

    attempts: tuple[Attempt, ...] = ()
    problems: tuple[Problem, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()


def from_runs(home: Path) -> FromRuns:
    """Everything to learn from in a data folder."""
    attempts: list[Attempt] = []
    problems: dict[str, Problem] = {}
    left_out: list[tuple[str, str]] = []
    for folder in run_folders(home):
        try:
            found, problem = _of_run(folder)
        except (RunError, ValueError) as error:
            left_out.append((folder.name, str(error)))
            continue
        attempts += found
        problems.setdefault(problem.key, problem)
    return FromRuns(
        attempts=tuple(attempts), problems=tuple(problems.values()), left_out=tuple(left_out)
    )


def family_of(task: Task) -> str:
    """What a task is kept together with: all tasks of the same set of operators."""
    names = {base(node.op).strip("_") for node in task.graph.nodes}
    computing = sorted(names - _VIEWS - {"input", "weight", "constant"})
    return "+".join(computing) or "copy"


def _of_run(folder: Path) -> tuple[list[Attempt], Problem]:
    archive = Archive.open(folder)
    try:
        record = archive.record()
        key = key_of(record.task)
        if key is None or record.task.project is not None:
            raise ValueError("its task is no single file that is traced as a whole")
        if any(badge.proves_little for badge in record.task.badges):
            raise ValueError("being right on its task proves little")
        analyses = {item.round: item for item in archive.analyses()}
        attempts = _attempts(record, key.exact, archive.standings(), analyses)
    finally:
        archive.close()
    problem = Problem(
        name=f"{record.task.name}-{key.exact[:8]}",
        key=key.exact,
        family=family_of(record.task),
        task=record.task,
    )
    return attempts, problem


def _attempts(
    record: RunRecord,
    key: str,
    standings: tuple[Standing, ...],
    analyses: Mapping[int, Analysis],
) -> list[Attempt]:
    """The judged candidates of a run; those that correct another one come behind it."""
    names, known = interface(record.task), {one.candidate.id: one for one in standings}
    found = []
    for standing in standings:
        analysis = analyses.get(standing.round)
        found.append(_attempt(record, key, standing, names, analysis))
        failed = next((known[name] for name in standing.candidate.parents if name in known), None)
        if failed is not None and not _is_correct(failed) and _is_correct(standing):
            found.append(_repair(record, key, standing, failed, names))
    return found


def _is_correct(standing: Standing) -> bool:
    return standing.evaluation.verdict.value == "correct"


def _attempt(
    record: RunRecord,
    key: str,
    standing: Standing,
    names: Interface | None,
    analysis: Analysis | None,
) -> Attempt:
    candidate, evaluation = standing.candidate, standing.evaluation
    short = shortened(candidate, names) if names is not None else None
    return Attempt(
        id=f"{record.id}/{candidate.id}",
        task=key,
        family=family_of(record.task),
        contract="full" if short is None else "short",
        language=candidate.language,
        question=question(record.task, None if short is None else names, candidate.language),
        answer=short or in_full(candidate),
        verdict=evaluation.verdict,
        reason=words_of(standing),
        speedup=_speedup(record, standing),
        analysis=analysis.implies if analysis else "",
        provenance=Provenance(
            source="run",
            run=record.id,
            author=candidate.origin,
            device=record.hardware.name,
            version=kernelwright_version(),
            effort=standing.effort,
        ),
    )


def _repair(
    record: RunRecord, key: str, standing: Standing, failed: Standing, names: Interface | None
) -> Attempt:
    """The corrected candidate as an answer to the failed one."""
    made = _attempt(record, key, standing, names, None)
    short = made.contract == "short" and names is not None
    before = shortened(failed.candidate, names) if short and names is not None else None
    failure = Failure(answer=before or in_full(failed.candidate), words=words_of(failed))
    asked = question(
        record.task, names if before else None, failed.candidate.language, failure=failure
    )
    return made.model_copy(
        update={
            "id": f"{made.id}/repair",
            "question": asked,
            "answer": made.answer if before else in_full(standing.candidate),
            "contract": "short" if before else "full",
            "repairs": f"{record.id}/{failed.candidate.id}",
        }
    )


def words_of(standing: Standing) -> str:
    """The verdict in the judge's words, with the end of a compiler's; "" for a correct one."""
    if _is_correct(standing):
        return ""
    evaluation = standing.evaluation
    log = evaluation.compiler_log[-_FAILED_CHARACTERS:]
    words = evaluation.verdict.words
    return "\n".join(filter(None, (f"{words}: {evaluation.verification.reason}", log)))


def _speedup(record: RunRecord, standing: Standing) -> float | None:
    """Of the hardest baseline it was compared with, else by what was screened."""
    evaluation = standing.evaluation
    if not _is_correct(standing):
        return None
    if evaluation.hardest is not None:
        return evaluation.hardest.ratio
    try:
        best = record.baselines.best.measurement if record.baselines is not None else None
    except LookupError:
        return None
    ms = evaluation.median_ms
    return best.median_ms / ms if best is not None and ms else None
