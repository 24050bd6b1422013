"""What works on this machine, found by doing it: compile a kernel, run it, measure a copy.

A version number proves nothing, so every row is the outcome of an attempt, with the command
that would mend it. Exit status 0 when the main job can run here, 3 when it cannot.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version

from tools.languages import (
    Built,
    Language,
    compile_candidate,
    default_language,
    languages,
    new_candidate,
)
from tools.nouns import EnvironmentLacksError, WallKind
from ui.commands.models import Choice, chosen_models
from ui.complaints import Complaint
from ui.probes import Row, architectures_row, bytecode_row, cpu_rows, gpu_rows

_COMPILE_TIMEOUT_S = 60.0


def doctor(choice: Choice | None = None) -> int:
    """Print the table; the exit status says whether the main job can run here."""
    rows = asyncio.run(examine(choice))
    _print(rows)
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
    names = ("torch", "langgraph", "chainlit", "cuda-core", "nvidia-cuda-nvrtc", "ribs", "optuna")
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
    from tools.hardware.gpu import detect_gpu

    gpu, why_not = detect_gpu()
    if gpu is None:
        words = f"none ({why_not}): the CPU is the target here"
        remedy = "nvidia-smi shows whether the driver sees a device"
        return Row(subject="GPU", outcome="optional", words=words, remedy=remedy)
    words = f"{gpu.name}, {gpu.architecture}, {gpu.sm_count} SMs, {gpu.memory_gib:.0f} GiB"
    return Row(subject="GPU", outcome="works", words=words)


async def _cpu() -> Row:
    from tools.hardware import detect

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
    from tools.hardware.gpu import detect_gpu

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
    from agents.llm.endpoint import probe

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
    from tools.evaluate.process.walls import wall
    from tools.hardware import detect

    found = wall(detect("auto").kind).isolation
    if found.kind is WallKind.BUBBLEWRAP:
        return Row(subject="isolation", outcome="works", words=found.words)
    remedy = "apt-get install bubblewrap"
    return Row(subject="isolation", outcome="optional", words=found.words, remedy=remedy)


def _print(rows: tuple[Row, ...]) -> None:
    from rich.console import Console
    from rich.table import Table

    colours = {"works": "green", "missing": "red", "optional": "yellow"}
    table = Table(box=None, show_header=False, pad_edge=False)
    for row in rows:
        words = f"{row.words}\n{row.remedy}" if row.remedy else row.words
        mark = f"[{colours[row.outcome]}]{row.outcome}[/]"
        table.add_row(row.subject, mark, words)
    Console().print(table)
