"""What a device does when it is asked to: a kernel runs and is right, and profilers read it.

Rows for `doctor`, each the outcome of an attempt with the one line that would mend it.
"""

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

from tools.nouns import Profile, Value

Outcome = Literal["works", "missing", "optional"]

_PERF = ("perf", "stat", "-x", ",", "-e", "instructions:u,cycles:u", "--", "true")
_PERF_REMEDY = "sysctl kernel.perf_event_paranoid=1"
_PERF_HIDDEN = "a virtual machine may be given its host's; the search works without"
_PERF_S = 20.0


class Row(Value):
    """One thing tried: what came of it, in words, and what would mend it."""

    subject: str
    outcome: Outcome
    words: str
    remedy: str = ""


async def cpu_rows() -> AsyncIterator[Row]:
    """A C++ kernel on this CPU, and its counters."""
    from tools.evaluate.probing import probe

    with tempfile.TemporaryDirectory(prefix="kernelwright-doctor-") as folder:
        found = await probe("cpu", Path(folder))
    yield _ran("C++ kernel", found.problem, found.median_ms)
    yield (
        _step("kernel times (CPU)", found.profile, "times")
        if found.profile
        else _untried("kernel times (CPU)")
    )
    yield await perf_row()


async def gpu_rows() -> AsyncIterator[Row]:
    """A CUDA kernel on this device, and everything that can watch it."""
    from tools.evaluate.probing import probe, sanitized
    from tools.hardware import detect

    with tempfile.TemporaryDirectory(prefix="kernelwright-doctor-") as folder:
        found = await probe("cuda", Path(folder))
        yield _ran("CUDA kernel", found.problem, found.median_ms)
        for subject, step in (("Nsight Compute", "counters"), ("CUPTI", "times")):
            yield _step(subject, found.profile, step) if found.profile else _untried(subject)
        problem = await sanitized(detect("cuda"), Path(folder))
    remedy = "pip install nvidia-cuda-sanitizer-api, or the CUDA toolkit" if problem else ""
    words = problem or "watched a kernel: no errors"
    outcome: Outcome = "optional" if problem else "works"
    yield Row(subject="compute-sanitizer", outcome=outcome, words=words, remedy=remedy)


async def architectures_row() -> Row:
    """For which devices CUDA kernels can be compiled here, device or not."""
    from tools.evaluate.probing import architectures

    made = await architectures()
    good = [name for name, problem in made.items() if not problem]
    bad = [f"{name}: {problem}" for name, problem in made.items() if problem]
    return Row(
        subject="CUDA architectures",
        outcome="works" if good else "missing",
        words=f"compiled for {', '.join(good)}" if good else bad[0],
        remedy=f"not for {'; '.join(bad)}"[:200] if good and bad else "",
    )


async def perf_row() -> Row:
    """Whether perf really counts here; a machine in the cloud often has no counters to show."""
    from tools.evaluate.profiling.program import run

    try:
        done = await run(_PERF, timeout_s=_PERF_S, environment=os.environ, folder=Path("/"))
    except OSError:
        remedy = "apt install linux-perf; the search works without"
        return Row(subject="perf", outcome="optional", words="not found", remedy=remedy)
    counted = instructions(done.output)
    if counted is None:
        hidden = "<not supported>" in done.output
        said = "this machine shows no counters" if hidden else " ".join(done.output.split())[:160]
        remedy = _PERF_HIDDEN if hidden else _PERF_REMEDY
        return Row(subject="perf", outcome="optional", words=said or "no count", remedy=remedy)
    return Row(subject="perf", outcome="works", words=f"counted {counted} instructions of `true`")


def instructions(output: str) -> int | None:
    """The count in what `perf stat -x ,` printed; None where it counted nothing."""
    for line in output.splitlines():
        count, *rest = line.split(",")
        if any(part.startswith("instructions") for part in rest) and count.isdigit():
            return int(count)
    return None


def _ran(subject: str, problem: str, median_ms: float | None) -> Row:
    if problem:
        remedy = "the rows above say what is missing"
        return Row(subject=subject, outcome="missing", words=problem, remedy=remedy)
    taken = f" in {median_ms:.4f} ms" if median_ms is not None else ""
    return Row(subject=subject, outcome="works", words=f"ran{taken} and agreed with PyTorch")


def _step(subject: str, profile: Profile, step: str) -> Row:
    """Whether one step of the profiler brought readings of the kernel."""
    missing = next((item for item in profile.missing if item.step == step), None)
    if missing is not None:
        return Row(subject=subject, outcome="optional", words=missing.why, remedy=missing.remedy)
    if step == "counters":
        (first, *_) = profile.counters
        words = f"counted {first.kernel}: {first.instructions or 0:.0f} instructions"
        return Row(subject=subject, outcome="works", words=words)
    own = next((item for item in profile.times if item.own), None)
    if own is None:
        return Row(subject=subject, outcome="optional", words="recorded other kernels only")
    words = f"recorded {own.kernel}: {own.time_ms:.4f} ms"
    return Row(subject=subject, outcome="works", words=words)


def _untried(subject: str) -> Row:
    return Row(subject=subject, outcome="optional", words="not tried: no kernel ran")
