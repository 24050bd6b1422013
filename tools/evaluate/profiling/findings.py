"""What a sanitizer found, and what becomes of the evaluation that it was asked about."""

from collections.abc import Sequence

from kernelwright.tools.tasks.resized import resized
from kernelwright.tools.types import Evaluation, Task, Verdict
from kernelwright.tools.types.value import Value

_LARGEST_BYTES = 64 * 2**20
_FEW_ROWS = 33


class Finding(Value):
    """What one tool found, `words` being its own line and `verdict` what that means.

    `missing` says why it could not look, `outside` why it was not behind the wall.
    """

    tool: str
    words: str = ""
    verdict: Verdict = Verdict.OUT_OF_BOUNDS
    missing: str = ""
    outside: str = ""


def with_findings(found: Evaluation, findings: Sequence[Finding]) -> Evaluation:
    """The evaluation: rejected for the first finding, or with what nobody could look at."""
    checked = found.verification
    guilty = next((item for item in findings if item.words), None)
    if guilty is not None:
        reason = f"{guilty.tool}: {guilty.words}"
        changed = checked.model_copy(update={"verdict": guilty.verdict, "reason": reason})
    else:
        told = ((item.tool, words) for item in findings for words in (item.missing, item.outside))
        gaps = tuple(f"{tool}: {words}" for tool, words in told if words)
        changed = checked.model_copy(update={"not_verified": (*checked.not_verified, *gaps)})
    return found.model_copy(update={"verification": changed})


def small(task: Task, found: Evaluation) -> Task | None:
    """The task itself, or with fewer rows; None where it is too large and takes no others."""
    if task.bytes_moved <= _LARGEST_BYTES:
        return task
    generic = found.verification.shapes.startswith("shape-generic")
    shape = task.tensor_inputs[0].tensor.shape if task.tensor_inputs[0].tensor else ()
    if not generic or not shape or shape[0] <= _FEW_ROWS:
        return None
    return resized(task, {shape[0]: _FEW_ROWS})
