"""A finalist on the CPU, built with the compiler's sanitizers and run once over guarded memory.

A worker records the launches of one call; a program of the kernel alone makes them again behind
the wall, each buffer on its own between guards. Torch is not in it, so that it takes a second or
two. Not covered: the plan, launches of other inputs, races between threads, and library operators.
"""

import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from kernelwright.tools.evaluate.messages import JudgeRequest, RecordRequest
from kernelwright.tools.evaluate.profiling.findings import Finding, small, with_findings
from kernelwright.tools.evaluate.profiling.program import run
from kernelwright.tools.evaluate.sandbox.environment import worker_environment
from kernelwright.tools.evaluate.sandbox.walls import standing
from kernelwright.tools.languages import language_of
from kernelwright.tools.languages.cpp.sanitizers import CLEAN
from kernelwright.tools.types import Candidate, EnvironmentLacksError, Evaluation, Verdict

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
        finding = Finding(tool=TOOL, missing=str(error))
    return with_findings(found, [finding])


async def _look(request: JudgeRequest, found: Evaluation, folder: Path, record: Record) -> Finding:
    task = small(request.task, found)
    if task is None:
        return Finding(tool=TOOL, missing="the task is too large for it")
    program = await language_of(request.candidate).build_sanitized(
        request.candidate, folder, timeout_s=request.rules.sanitize_s
    )
    if isinstance(program, str):
        return Finding(tool=TOOL, missing=program)
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
        return Finding(tool=TOOL, missing=f"one call could not be recorded: {problem}")
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
        return Finding(tool=TOOL, missing=f"no end within {limit_s:g} s")
    return reading(done.output, request.candidate)


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


def reading(output: str, candidate: Candidate) -> Finding:
    """What the program said: the first thing found, nothing, or that it never came to an end."""
    if undefined := _UNDEFINED.search(output):
        beyond = _BEYOND.search(undefined[2]) is not None
        return Finding(
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
        return Finding(tool=TOOL, words=f"{address[1]}{size} in {frame[1]}{where}")
    if CLEAN in output:
        return Finding(tool=TOOL)
    last = [line.strip() for line in output.splitlines() if line.strip()]
    return Finding(tool=TOOL, missing=last[-1][:200] if last else "it said nothing")


def _where(candidate: Candidate, line: int) -> str:
    """The line of the kernel as its author knows it."""
    return f" (line {line})" if 0 < line <= candidate.kernel.count("\n") + 1 else ""
