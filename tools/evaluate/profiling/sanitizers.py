"""Finalists under sanitizers, on a GPU and on the CPU, and what becomes of their evaluation.

On a GPU compute-sanitizer sees accesses out of bounds, races, and memory read before written. A
process of its own runs the candidate twice on its task's inputs, once under each tool, all of them
at the same time, behind the wall where the program works there. Where it is absent or a run does
not come back in time, that is said. Not covered: tasks too large to be run some tens of times
slower, unless the candidate takes fewer rows.

On the CPU a finalist is built with the compiler's sanitizers and run once over guarded memory. A
worker records the launches of one call; a program of the kernel alone makes them again behind the
wall, each buffer on its own between guards. Torch is not in it, so that it takes a second or two.
Not covered: the plan, launches of other inputs, races between threads, and library operators.
"""

import asyncio
import re
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from kernelwright.tools.evaluate.messages import JudgeRequest, ProfileRequest, RecordRequest
from kernelwright.tools.evaluate.profiling.nsight import (
    TRIAL_S,
    child_command,
    needed,
    trial_command,
)
from kernelwright.tools.evaluate.profiling.program import installed, run, seen
from kernelwright.tools.evaluate.sandbox.bytecode import worker_environment
from kernelwright.tools.evaluate.sandbox.walls import Wall, standing
from kernelwright.tools.languages import CompileRefusedError, language_of
from kernelwright.tools.languages.cpp.sanitizers import CLEAN
from kernelwright.tools.tasks.inputs.variations import resized
from kernelwright.tools.types import Candidate, EnvironmentLacksError, Evaluation, Task, Verdict
from kernelwright.tools.types.value import Value

_LARGEST_BYTES = 64 * 2**20
_FEW_ROWS = 33


class SanitizerFinding(Value):
    """What one tool found, `words` being its own line and `verdict` what that means.

    `missing` says why it could not look, `outside` why it was not behind the wall.
    """

    tool: str
    words: str = ""
    verdict: Verdict = Verdict.OUT_OF_BOUNDS
    missing: str = ""
    outside: str = ""


def with_findings(found: Evaluation, findings: Sequence[SanitizerFinding]) -> Evaluation:
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
        return with_findings(found, [SanitizerFinding(tool="memcheck", missing=words)])
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
) -> SanitizerFinding:
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

    async def under(child: list[str], behind: Wall) -> SanitizerFinding:
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
            return SanitizerFinding(tool=tool, missing=f"{PROGRAM} cannot be started: {error}")
        if done.status is None:
            return SanitizerFinding(tool=tool, missing=f"no end within {limit_s:g} s")
        return device_reading(tool, done.output)

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


def device_reading(tool: str, output: str) -> SanitizerFinding:
    """What a tool's output says: its first finding, nothing, or that it never came to an end."""
    pattern, verdict = _FINDINGS[tool]
    if finding := pattern.search(output):
        return SanitizerFinding(
            tool=tool, words=" ".join(finding[0].split())[:200], verdict=verdict
        )
    if _SUMMARY.search(output):
        return SanitizerFinding(tool=tool)
    last = [line.strip("= ") for line in output.splitlines() if line.strip("= ")]
    return SanitizerFinding(tool=tool, missing=last[-1][:200] if last else "it said nothing")


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


TOOL = "sanitizer"
_OPTIONS = {
    # Leaks are looked for by another process, which a wall forbids.
    "ASAN_OPTIONS": "detect_leaks=0:print_legend=0:exitcode=86:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=0",
}
_ADDRESS = re.compile(r"ERROR: AddressSanitizer: ([\w-]+)")
_ACCESS = re.compile(r"^((?:READ|WRITE) of size \d+)", re.MULTILINE)
_FRAME = re.compile(r"^\s+#\d+ \S+ in (\w+)[^\n]*?kernel\.cpp:(\d+)", re.MULTILINE)
# The column is missing where two threads reach the same line at once.
_UNDEFINED = re.compile(r"kernel\.cpp:(\d+):(?:\d+:)? runtime error: ([^\n]+)")
_BEYOND = re.compile(r"out of bounds|insufficient space")

Record = Callable[[RecordRequest, Path], Awaitable[str]]


async def sanitized_here(
    request: JudgeRequest, found: Evaluation, folder: Path, record: Record
) -> Evaluation:
    """The evaluation with what the compiler's sanitizers say of a correct candidate.

    Args:
        request: what was judged.
        found: what the judge said, including on which shapes the candidate is right.
        folder: for the program; emptied and made when needed.
        record: has a worker write the launches of one call to a file; says why it could not.
    """
    if not language_of(request.candidate).spec.has_sanitizers:
        return found
    _empty(folder)
    try:
        finding = await _look(request, found, folder, record)
    except (EnvironmentLacksError, OSError) as error:
        finding = SanitizerFinding(tool=TOOL, missing=str(error))
    return with_findings(found, [finding])


async def _look(
    request: JudgeRequest, found: Evaluation, folder: Path, record: Record
) -> SanitizerFinding:
    task = small(request.task, found)
    if task is None:
        return SanitizerFinding(tool=TOOL, missing="the task is too large for it")
    try:
        program = await language_of(request.candidate).build_sanitized(
            request.candidate, folder, timeout_s=request.rules.sanitize_s
        )
    except CompileRefusedError as hides:
        return SanitizerFinding(tool=TOOL, words=hides.message, verdict=hides.verdict)
    if isinstance(program, str):
        return SanitizerFinding(tool=TOOL, missing=program)
    wanted = RecordRequest(
        task=task,
        hardware=request.hardware,
        rules=request.rules,
        candidate=request.candidate,
        built=request.built,
        seed=request.seed,
    )
    launches = folder / "launches"
    if problem := await record(wanted, launches):
        return SanitizerFinding(tool=TOOL, missing=f"one call could not be recorded: {problem}")
    limit_s = request.rules.sanitize_s
    done = await run(
        [str(program), str(launches)],
        timeout_s=limit_s,
        environment=worker_environment(folder) | _OPTIONS,
        folder=folder,
        behind=standing(request.rules, "cpu"),
        device="cpu",
    )
    launches.unlink(missing_ok=True)
    if done.status is None:
        return SanitizerFinding(tool=TOOL, missing=f"no end within {limit_s:g} s")
    return host_reading(done.output, request.candidate)


def _empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def taken(written: Path | None, place: Path) -> str:
    """Move the file that a worker wrote; why that cannot be, or ""."""
    # It could have made a link to what is not its own.
    if written is None or written.is_symlink() or not written.is_file():
        return "the process left no file"
    shutil.move(written, place)
    return ""


def host_reading(output: str, candidate: Candidate) -> SanitizerFinding:
    """What the program said: the first thing found, nothing, or that it never came to an end."""
    if undefined := _UNDEFINED.search(output):
        beyond = _BEYOND.search(undefined[2]) is not None
        return SanitizerFinding(
            tool=TOOL,
            words=f"{undefined[2].strip()[:160]}{_where(candidate, int(undefined[1]))}",
            verdict=Verdict.OUT_OF_BOUNDS if beyond else Verdict.UNDEFINED_BEHAVIOUR,
        )
    address, frame = _ADDRESS.search(output), _FRAME.search(output)
    # What broke elsewhere than in the kernel is nobody's fault here.
    if address and frame:
        access = _ACCESS.search(output)
        size = f", {access[1].lower()}" if access else ""
        where = _where(candidate, int(frame[2]))
        return SanitizerFinding(tool=TOOL, words=f"{address[1]}{size} in {frame[1]}{where}")
    if CLEAN in output:
        return SanitizerFinding(tool=TOOL)
    last = [line.strip() for line in output.splitlines() if line.strip()]
    return SanitizerFinding(tool=TOOL, missing=last[-1][:200] if last else "it said nothing")


def _where(candidate: Candidate, line: int) -> str:
    """The line of the kernel as its author knows it."""
    return f" (line {line})" if 0 < line <= candidate.kernel.count("\n") + 1 else ""
