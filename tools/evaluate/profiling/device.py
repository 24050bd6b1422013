"""Finalists under compute-sanitizer: accesses out of bounds, races, memory read before written.

A process of its own runs the candidate twice on its task's inputs, once under each tool, all of
them at the same time, behind the wall where the program works there. Where it is absent or a run
does not come back in time, that is said. Not covered: tasks too large to be run some tens of times
slower, unless the candidate takes fewer rows.
"""

import asyncio
import re
import shutil
from pathlib import Path

from kernelwright.tools.evaluate.messages import JudgeRequest, ProfileRequest
from kernelwright.tools.evaluate.profiling.findings import Finding, small, with_findings
from kernelwright.tools.evaluate.profiling.nsight import (
    TRIAL_S,
    child_command,
    needed,
    trial_command,
)
from kernelwright.tools.evaluate.profiling.places import seen
from kernelwright.tools.evaluate.profiling.program import installed, run
from kernelwright.tools.evaluate.sandbox.environment import worker_environment
from kernelwright.tools.evaluate.sandbox.walls import Wall, standing
from kernelwright.tools.types import Evaluation, Task, Verdict

REMEDY = "pip install nvidia-cuda-sanitizer-api, or the CUDA toolkit"
PROGRAM = "compute-sanitizer"
_FINDINGS = {
    "memcheck": (re.compile(r"Invalid __\w+__ (?:read|write|atomic)[^\n]*"), Verdict.OUT_OF_BOUNDS),
    "racecheck": (re.compile(r"(?:Error: )?Race reported[^\n]*"), Verdict.NONDETERMINISTIC),
    "initcheck": (re.compile(r"Uninitialized __\w+__ memory read[^\n]*"), Verdict.NONDETERMINISTIC),
}
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY:")


async def sanitized(request: JudgeRequest, found: Evaluation, folder: Path) -> Evaluation:
    """The evaluation with what the sanitizer says of a correct candidate.

    Args:
        request: what was judged.
        found: what the judge said, including on which shapes the candidate is right.
        folder: for the processes' files; made when needed.
    """
    task, program = small(request.task, found), find_sanitizer()
    if task is None or program is None:
        words = f"{PROGRAM} is not here ({REMEDY})" if task else "the task is too large for it"
        return with_findings(found, [Finding(tool="memcheck", missing=words)])
    wanted = _wanted(request, task)
    limit_s = request.rules.sanitize_s
    looks = (look(program, tool, wanted, folder / tool, limit_s) for tool in _FINDINGS)
    return with_findings(found, await asyncio.gather(*looks))


def find_sanitizer() -> Path | None:
    """On PATH or in the CUDA toolkit."""
    found = shutil.which(PROGRAM) or shutil.which(PROGRAM, path="/usr/local/cuda/bin")
    return Path(found) if found else None


async def look(
    program: Path, tool: str, wanted: ProfileRequest, folder: Path, limit_s: float
) -> Finding:
    """What one tool of the program sees when a candidate runs.

    Args:
        program: The sanitizer.
        tool: `memcheck`, `racecheck` or `initcheck`.
        wanted: What to run.
        folder: The one folder where that may write; made when needed.
        limit_s: When it is stopped.
    """
    asked = _asked(wanted, folder)
    readable = (*needed(wanted), *installed(program))
    # torch asks the driver for what older ones lack, which is no fault of a kernel.
    options = ("--tool", tool, *(("--report-api-errors", "no") if tool == "memcheck" else ()))

    async def under(child: list[str], behind: Wall) -> Finding:
        try:
            done = await run(
                [str(program), *options, *child],
                timeout_s=limit_s,
                environment=worker_environment(folder),
                folder=folder,
                behind=behind,
                readable=readable,
            )
        except OSError as error:
            return Finding(tool=tool, missing=f"{PROGRAM} cannot be started: {error}")
        if done.status is None:
            return Finding(tool=tool, missing=f"no end within {limit_s:g} s")
        return reading(tool, done.output)

    async def tried(behind: Wall) -> bool:
        return not (await under(trial_command(TRIAL_S), behind)).missing

    found, outside = await seen(
        program,
        standing(wanted.rules, "cuda"),
        lambda behind: under(child_command(asked, limit_s), behind),
        worked=lambda finding: not finding.missing,
        trial=tried,
    )
    return found.model_copy(update={"outside": outside})


def reading(tool: str, output: str) -> Finding:
    """What a tool's output says: its first finding, nothing, or that it never came to an end."""
    pattern, verdict = _FINDINGS[tool]
    if finding := pattern.search(output):
        return Finding(tool=tool, words=" ".join(finding[0].split())[:200], verdict=verdict)
    if _SUMMARY.search(output):
        return Finding(tool=tool)
    last = [line.strip("= ") for line in output.splitlines() if line.strip("= ")]
    return Finding(tool=tool, missing=last[-1][:200] if last else "it said nothing")


def _asked(wanted: ProfileRequest, folder: Path) -> Path:
    """The request as a file for the process."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = folder / "request.json"
    asked.write_text(wanted.model_dump_json(), encoding="utf-8")
    return asked


def _wanted(request: JudgeRequest, task: Task) -> ProfileRequest:
    return ProfileRequest(
        task=task,
        hardware=request.hardware,
        rules=request.rules,
        candidate=request.candidate,
        built=request.built,
        seed=request.seed,
    )
