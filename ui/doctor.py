"""What works on this machine, found by doing it: compile a kernel, run it, measure a copy.

A version number proves nothing, so every row is the outcome of an attempt, with the command
that would mend it. Exit status 0 when the main job can run here, 3 when it cannot.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from kernelwright.tools.languages import (
    Built,
    Language,
    compile_candidate,
    default_language,
    languages,
    new_candidate,
)
from kernelwright.tools.types import EnvironmentLacksError, Profile, Value, WallKind
from kernelwright.ui.complaints import Complaint
from kernelwright.ui.model_choice import Choice, chosen_models

Outcome = Literal["works", "missing", "optional"]


class Row(Value):
    """One thing tried: what came of it, in words, and what would mend it."""

    subject: str
    outcome: Outcome
    words: str
    remedy: str = ""


async def cpu_rows() -> AsyncIterator[Row]:
    """A C++ kernel on this CPU, and its counters."""
    from kernelwright.tools.evaluate.executors.probing import probe

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
    from kernelwright.tools.evaluate.executors.probing import probe, sanitized
    from kernelwright.tools.hardware import detect

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
    yield library_row()


def library_row() -> Row:
    """Whether cuBLASLt can be asked directly, as `gemm` compares with it."""
    from kernelwright.tools.evaluate.timing.cublaslt import LibraryLacksError, bindings

    try:
        words = f"answers through nvmath-python: version {bindings().get_version()}"
    except LibraryLacksError as lacks:
        remedy = 'pip install "kernelwright[gemm]"'
        return Row(subject="cuBLASLt", outcome="optional", words=str(lacks), remedy=remedy)
    return Row(subject="cuBLASLt", outcome="works", words=words)


async def architectures_row() -> Row:
    """For which devices CUDA kernels can be compiled here, device or not."""
    from kernelwright.tools.evaluate.executors.probing import architectures

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
    from kernelwright.tools.evaluate.sandbox import bytecode
    from kernelwright.tools.evaluate.sandbox.filling import fill, remedy

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


_COMPILE_TIMEOUT_S = 60.0


def doctor(choice: Choice | None = None) -> int:
    """Print the table; the exit status says whether the main job can run here."""
    rows = asyncio.run(examine(choice))
    print_rows(rows)
    return exit_status(rows)


def exit_status(rows: tuple[Row, ...]) -> int:
    """0 when packages, compiler and a kernel on the device at hand work, else 3."""
    outcomes = {row.subject: row.outcome for row in rows}
    language = default_language("cuda" if outcomes["GPU"] == "works" else "cpu").spec.title
    compiler, kernel = f"{language} compiler", f"{language} kernel"
    needed = (outcomes["Python packages"], outcomes[compiler], outcomes[kernel])
    return 0 if all(outcome == "works" for outcome in needed) else 3


async def examine(choice: Choice | None = None) -> tuple[Row, ...]:
    """Try everything, a model where one is configured; what fails is a row, not an exception."""
    attempts: tuple[tuple[str, Callable[[], Awaitable[Row]]], ...] = (
        ("Python packages", _packages),
        ("GPU", _gpu),
        ("CPU", _cpu),
        *map(_compiler, sorted(languages(), key=lambda language: language.spec.device)),
        ("CUDA architectures", architectures_row),
        ("isolation", _isolation),
        ("bytecode", bytecode_row),
        ("model", lambda: _model(choice or Choice())),
    )
    rows = []
    for subject, attempt in attempts:
        try:
            rows.append(await attempt())
        except (EnvironmentLacksError, Complaint) as error:
            rows.append(Row(subject=subject, outcome="missing", words=str(error)))
        except Exception as error:  # a broken installation may raise anything; it is a finding
            words = f"{type(error).__name__}: {error}"
            rows.append(Row(subject=subject, outcome="missing", words=words))
        if subject == "CUDA architectures":
            rows += await _kernels(rows)
    return tuple(rows)


async def _kernels(before: list[Row]) -> list[Row]:
    """A kernel on each device there is, and what can watch it."""
    gpu = any(row.subject == "GPU" and row.outcome == "works" for row in before)
    devices = [("C++ kernel", cpu_rows)] + [("CUDA kernel", gpu_rows)] * gpu
    rows: list[Row] = []
    for subject, tried in devices:
        try:
            rows += [row async for row in tried()]
        except Exception as error:  # whatever breaks on a strange machine is a finding
            words = f"{type(error).__name__}: {error}"
            rows.append(Row(subject=subject, outcome="missing", words=words))
    if not gpu:
        words = "not tried: there is no device"
        rows.append(Row(subject="Nsight Compute", outcome="optional", words=words))
    return rows


async def _packages() -> Row:
    names = ("torch", "langgraph", "chainlit", "cuda-core", "nvidia-cuda-nvrtc", "optuna")
    found, lost = [], []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            lost.append(name)
    python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    if lost:
        remedy = f"pip install {' '.join(lost)}"
        return Row(
            subject="Python packages",
            outcome="missing",
            words=f"not installed: {', '.join(lost)}",
            remedy=remedy,
        )
    return Row(subject="Python packages", outcome="works", words=", ".join([python, *found]))


async def _gpu() -> Row:
    from kernelwright.tools.hardware.detect import detect_gpu

    gpu, why_not = detect_gpu()
    if gpu is None:
        words = f"none ({why_not}): the CPU is the target here"
        remedy = "nvidia-smi shows whether the driver sees a device"
        return Row(subject="GPU", outcome="optional", words=words, remedy=remedy)
    words = f"{gpu.name}, {gpu.architecture}, {gpu.sm_count} SMs, {gpu.memory_gib:.0f} GiB"
    return Row(subject="GPU", outcome="works", words=words)


async def _cpu() -> Row:
    from kernelwright.tools.hardware import detect

    cpu = detect("cpu")
    words = (
        f"{cpu.name}, {cpu.cores} cores, {cpu.simd_bits}-bit SIMD, {cpu.cache_mib:.0f} MiB cache"
    )
    return Row(subject="CPU", outcome="works", words=words)


def _compiler(language: Language) -> tuple[str, Callable[[], Awaitable[Row]]]:
    subject = f"{language.spec.title} compiler"
    return subject, lambda: _compile(subject, language)


async def _compile(subject: str, language: Language) -> Row:
    """Compile a small kernel for the device here, or for Hopper where there is none."""
    from kernelwright.tools.hardware.detect import detect_gpu

    architecture = None
    if language.spec.device == "cuda":
        gpu, _ = detect_gpu()
        architecture = gpu.architecture if gpu else "sm_90a"
    candidate = new_candidate(language.spec.name, language.spec.probe, language.spec.probe_plan)
    made = await compile_candidate(
        candidate, architecture=architecture, timeout_s=_COMPILE_TIMEOUT_S
    )
    if not isinstance(made, Built):
        return Row(subject=subject, outcome="missing", words=made.message)
    target = f" for {architecture}" if architecture else ""
    return Row(subject=subject, outcome="works", words=f"compiled a kernel{target}")


async def _model(choice: Choice) -> Row:
    """Ask the planner's model, where there is one, whether it is there."""
    from kernelwright.agents.llm.endpoint import probe

    models = chosen_models(choice)
    if models is None:
        words = "none configured: the playbook thinks"
        remedy = "--model NAME --base-url URL, or KERNELWRIGHT_MODEL and KERNELWRIGHT_BASE_URL"
        return Row(subject="model", outcome="optional", words=words, remedy=remedy)
    if models.planner.kind == "manual":
        return Row(subject="model", outcome="works", words="you answer, by files")
    found = await probe(models.planner)
    if found.failure:
        remedy = f"it serves {', '.join(found.served[:5])}" if found.served else ""
        return Row(subject="model", outcome="missing", words=found.failure, remedy=remedy)
    words = f"{models.planner.model} at {models.planner.base_url} said {found.said!r}"
    return Row(subject="model", outcome="works", words=f"{words} in {found.seconds:.1f} s")


async def _isolation() -> Row:
    """Start a process behind the wall for the device here, and hear what it could reach."""
    from kernelwright.tools.evaluate.sandbox.walls import wall
    from kernelwright.tools.hardware import detect

    found = wall(detect("auto").kind).isolation
    if found.kind is WallKind.BUBBLEWRAP:
        return Row(subject="isolation", outcome="works", words=found.words)
    remedy = "apt-get install bubblewrap, without which no chat for several people is started"
    return Row(subject="isolation", outcome="optional", words=found.words, remedy=remedy)


def print_rows(rows: tuple[Row, ...]) -> None:
    """The table, in colours at a terminal."""
    from rich.console import Console
    from rich.table import Table

    colours = {"works": "green", "missing": "red", "optional": "yellow"}
    table = Table(box=None, show_header=False, pad_edge=False)
    for row in rows:
        words = f"{row.words}\n{row.remedy}" if row.remedy else row.words
        mark = f"[{colours[row.outcome]}]{row.outcome}[/]"
        table.add_row(row.subject, mark, words)
    Console().print(table)
