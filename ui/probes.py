"""What a device does when it is asked to: a kernel runs and is right, and profilers read it.

Rows for `doctor`, each the outcome of an attempt with the one line that would mend it.
"""

import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

from tools.nouns import Profile, Value

Outcome = Literal["works", "missing", "optional"]


class Row(Value):
    """One thing tried: what came of it, in words, and what would mend it."""

    subject: str
    outcome: Outcome
    words: str
    remedy: str = ""


async def cpu_rows() -> AsyncIterator[Row]:
    """A C++ kernel on this CPU, and its counters."""
    from tools.evaluate.executors.probing import probe

    with tempfile.TemporaryDirectory(prefix="kernelwright-doctor-") as folder:
        found = await probe("cpu", Path(folder))
    yield _ran("C++ kernel", found.problem, found.median_ms)
    if found.profile is None:
        for subject in ("kernel times (CPU)", "CPU counters"):
            yield _untried(subject)
        return
    yield _step("kernel times (CPU)", found.profile, "times")
    yield counters_row(found.profile)


async def gpu_rows() -> AsyncIterator[Row]:
    """A CUDA kernel on this device, and everything that can watch it."""
    from tools.evaluate.executors.probing import probe, sanitized
    from tools.hardware import detect

    with tempfile.TemporaryDirectory(prefix="kernelwright-doctor-") as folder:
        found = await probe("cuda", Path(folder))
        yield _ran("CUDA kernel", found.problem, found.median_ms)
        for subject, step in (("Nsight Compute", "counters"), ("CUPTI", "times")):
            yield _step(subject, found.profile, step) if found.profile else _untried(subject)
        finding = await sanitized(detect("cuda"), Path(folder))
    problem = finding.missing or finding.words
    remedy = "pip install nvidia-cuda-sanitizer-api, or the CUDA toolkit" if problem else ""
    words = problem or f"watched a kernel: no errors{_aside(finding.outside)}"
    outcome: Outcome = "optional" if problem else "works"
    yield Row(subject="compute-sanitizer", outcome=outcome, words=words, remedy=remedy)


async def architectures_row() -> Row:
    """For which devices CUDA kernels can be compiled here, device or not."""
    from tools.evaluate.executors.probing import architectures

    made = await architectures()
    good = [name for name, problem in made.items() if not problem]
    bad = [f"{name}: {problem}" for name, problem in made.items() if problem]
    return Row(
        subject="CUDA architectures",
        outcome="works" if good else "missing",
        words=f"compiled for {', '.join(good)}" if good else bad[0],
        remedy=f"not for {'; '.join(bad)}"[:200] if good and bad else "",
    )


async def bytecode_row() -> Row:
    """Whether Python finds what workers import compiled, or compiles it at each of their starts."""
    from tools.evaluate.process import bytecode
    from tools.evaluate.process.filling import fill, remedy

    chosen = f"in {sys.pycache_prefix}" if sys.pycache_prefix else "beside the packages"
    if not bytecode.lacking():
        return Row(subject="bytecode", outcome="works", words=f"of torch, {chosen}")
    await fill()
    words = f"none of torch {chosen}"
    if (prefix := bytecode.pycache_prefix()) is not None and bytecode.wanted():
        words += f"; workers read Kernelwright's own in {prefix}"
        return Row(subject="bytecode", outcome="works", words=words, remedy=remedy())
    words += ": every worker starts seconds later"
    return Row(subject="bytecode", outcome="optional", words=words, remedy=remedy())


def counters_row(profile: Profile) -> Row:
    """Whether the processors counted the kernel; the cloud's often have no counters to show."""
    host = profile.host
    if host is None:
        return _untried("CPU counters")
    if host.instructions is not None and host.cycles:
        words = f"counted probe: {host.instructions:.0f} instructions, "
        words += f"{host.instructions / host.cycles:.2f} a cycle"
        return Row(subject="CPU counters", outcome="works", words=words)
    missing = next(item for item in profile.missing if item.step == "counters")
    return Row(subject="CPU counters", outcome="optional", words=missing.why, remedy=missing.remedy)


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
        words += _aside(profile.outside)
        return Row(subject=subject, outcome="works", words=words)
    own = next((item for item in profile.times if item.own), None)
    if own is None:
        return Row(subject=subject, outcome="optional", words="recorded other kernels only")
    words = f"recorded {own.kernel}: {own.time_ms:.4f} ms"
    return Row(subject=subject, outcome="works", words=words)


def _aside(outside: str) -> str:
    """That a tool was not behind the wall, where that is so."""
    return f" ({outside})" if outside else ""


def _untried(subject: str) -> Row:
    return Row(subject=subject, outcome="optional", words="not tried: no kernel ran")
