"""Finalists under compute-sanitizer: accesses out of bounds, races, memory read before written.

A process of its own runs the candidate twice on its task's inputs, once under each tool, all of
them at the same time and after everything was timed. Where the program is absent or a run does not
come back in time, that is said. Not covered: the CPU, where guard bands are all there is; and tasks
too large to be run some tens of times slower, unless the candidate takes fewer rows.
"""

import asyncio
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tools.evaluate.messages import JudgeRequest, ProfileRequest
from tools.evaluate.process.environment import worker_environment
from tools.evaluate.profiling.nsight import child_command
from tools.evaluate.profiling.program import run
from tools.nouns import Evaluation, Task, Verdict
from tools.nouns.value import Value
from tools.tasks.resized import resized

REMEDY = "pip install nvidia-cuda-sanitizer-api, or the CUDA toolkit"
_PROGRAM = "compute-sanitizer"
_LARGEST_BYTES = 64 * 2**20
_FEW_ROWS = 33
_FINDINGS = {
    "memcheck": (re.compile(r"Invalid __\w+__ (?:read|write|atomic)[^\n]*"), Verdict.OUT_OF_BOUNDS),
    "racecheck": (re.compile(r"(?:Error: )?Race reported[^\n]*"), Verdict.NONDETERMINISTIC),
    "initcheck": (re.compile(r"Uninitialized __\w+__ memory read[^\n]*"), Verdict.NONDETERMINISTIC),
}
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY:")


class Finding(Value):
    """What one tool found, `words` being its own line; `missing` why it could not look."""

    tool: str
    words: str = ""
    missing: str = ""

    @property
    def verdict(self) -> Verdict:
        """What the finding means for the candidate."""
        return _FINDINGS[self.tool][1]


async def sanitized(request: JudgeRequest, found: Evaluation, folder: Path) -> Evaluation:
    """The evaluation with what the sanitizer says of a correct candidate.

    Args:
        request: what was judged.
        found: what the judge said, including on which shapes the candidate is right.
        folder: for the processes' files; made when needed.
    """
    task = _small(request.task, generic=found.verification.shapes.startswith("shape-generic"))
    program = _program()
    if task is None or program is None:
        words = f"{_PROGRAM} is not here ({REMEDY})" if task else "the task is too large for it"
        return _with(found, [Finding(tool="memcheck", missing=words)])
    asked = _asked(request, task, folder)
    limit_s = request.rules.sanitize_s
    looks = (_look(program, tool, asked, folder, limit_s) for tool in _FINDINGS)
    return _with(found, await asyncio.gather(*looks))


def _asked(request: JudgeRequest, task: Task, folder: Path) -> Path:
    """The request as a file for the processes."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = ProfileRequest(
        task=task,
        hardware=request.hardware,
        rules=request.rules,
        candidate=request.candidate,
        built=request.built,
        seed=request.seed,
    )
    asked = folder / "sanitize.json"
    asked.write_text(wanted.model_dump_json(), encoding="utf-8")
    return asked


def reading(tool: str, output: str) -> Finding:
    """What a tool's output says: its first finding, nothing, or that it never came to an end."""
    if finding := _FINDINGS[tool][0].search(output):
        return Finding(tool=tool, words=" ".join(finding[0].split())[:200])
    if _SUMMARY.search(output):
        return Finding(tool=tool)
    last = [line.strip("= ") for line in output.splitlines() if line.strip("= ")]
    return Finding(tool=tool, missing=last[-1][:200] if last else "it said nothing")


async def _look(program: Path, tool: str, asked: Path, folder: Path, limit_s: float) -> Finding:
    # torch asks the driver for what older ones lack, which is no fault of a kernel.
    options = ("--tool", tool, *(("--report-api-errors", "no") if tool == "memcheck" else ()))
    command = [str(program), *options, *child_command(asked, limit_s)]
    environment = worker_environment(folder / tool)
    try:
        done = await run(command, timeout_s=limit_s, environment=environment, folder=folder)
    except OSError as error:
        return Finding(tool=tool, missing=f"{_PROGRAM} cannot be started: {error}")
    if done.status is None:
        return Finding(tool=tool, missing=f"no end within {limit_s:g} s")
    return reading(tool, done.output)


def _with(found: Evaluation, findings: Sequence[Finding]) -> Evaluation:
    checked = found.verification
    guilty = next((item for item in findings if item.words), None)
    if guilty is not None:
        reason = f"{guilty.tool}: {guilty.words}"
        changed = checked.model_copy(update={"verdict": guilty.verdict, "reason": reason})
    else:
        missing = tuple(f"{item.tool}: {item.missing}" for item in findings if item.missing)
        not_verified = (*checked.not_verified, *missing)
        changed = checked.model_copy(update={"not_verified": not_verified})
    return found.model_copy(update={"verification": changed})


def _small(task: Task, *, generic: bool) -> Task | None:
    """The task itself, or with fewer rows; None where it is too large and takes no others."""
    if task.bytes_moved <= _LARGEST_BYTES:
        return task
    shape = task.tensor_inputs[0].tensor.shape if task.tensor_inputs[0].tensor else ()
    if not generic or not shape or shape[0] <= _FEW_ROWS:
        return None
    return resized(task, {shape[0]: _FEW_ROWS})


def _program() -> Path | None:
    found = shutil.which(_PROGRAM) or shutil.which(_PROGRAM, path="/usr/local/cuda/bin")
    return Path(found) if found else None
