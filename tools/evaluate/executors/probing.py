"""Tries this machine by doing what a search does, with a kernel of a line.

A file is traced, a kernel compiled, launched and compared with PyTorch, then profiled: what works
here is what worked here, whatever versions say. Not covered: speed.
"""

import asyncio
from pathlib import Path
from typing import Literal

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.messages import ProfileRequest
from kernelwright.tools.evaluate.profiling.sanitizers import SanitizerFinding, find_sanitizer, look
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.languages import Built, compile_candidate, default_language, new_candidate
from kernelwright.tools.types import (
    Candidate,
    Evaluation,
    Isolation,
    Profile,
    Refusal,
    Task,
    TracePolicy,
    Value,
    Verdict,
)

Target = Literal["cpu", "cuda"]
# What ships code for the usual devices: Ampere, Ada, Hopper, both Blackwells.
ARCHITECTURES = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
_COMPILE_S, _SANITIZE_S = 60.0, 60.0
_RULES = Rules(profile_s=20.0)

_FILE = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.0 + 1.0

def get_inputs():
    return [torch.randn(1024, 256)]
"""


class Probed(Value):
    """What became of the kernel: `problem` is "" where it ran and was right."""

    problem: str
    isolation: Isolation
    median_ms: float | None = None
    profile: Profile | None = None


def kernel(target: Target) -> Candidate:
    """A candidate whose kernel is one line, to try the machine with."""
    spec = default_language(target).spec
    return new_candidate(spec.name, spec.probe, spec.probe_plan)


async def probe(target: Target, folder: Path) -> Probed:
    """Trace, compile, launch, compare and profile, each as a search does it.

    Args:
        target: On which device.
        folder: A folder of its own.

    Raises:
        EnvironmentLacksError: When the machine misses something; it names the command to run.
    """
    executor = LocalExecutor.create(target, folder / "scratch", rules=_RULES)
    try:
        task = await executor.read(_task_file(folder), TracePolicy())
        if isinstance(task, Refusal):
            return Probed(problem=task.sentence, isolation=executor.isolation)
        return await _judged(executor, task, kernel(target))
    finally:
        await executor.aclose()


async def _judged(executor: LocalExecutor, task: Task, candidate: Candidate) -> Probed:
    evaluation = await executor.evaluate(task, candidate, "screen")
    if problem := _problem(evaluation):
        return Probed(problem=problem, isolation=executor.isolation)
    return Probed(
        problem="",
        isolation=executor.isolation,
        median_ms=evaluation.median_ms,
        profile=await executor.profile(task, candidate),
    )


async def sanitized(hardware: Hardware, folder: Path) -> SanitizerFinding:
    """What compute-sanitizer says of a kernel of a line, or why it cannot watch one here."""
    program = find_sanitizer()
    if program is None:
        return SanitizerFinding(tool="memcheck", missing="not found")
    executor = LocalExecutor(hardware, folder / "scratch", seed=0, rules=_RULES)
    try:
        task = await executor.read(_task_file(folder), TracePolicy())
    finally:
        await executor.aclose()
    built = await compile_candidate(
        kernel("cuda"), architecture=hardware.architecture, timeout_s=_COMPILE_S
    )
    if isinstance(task, Refusal) or not isinstance(built, Built):
        why = task.sentence if isinstance(task, Refusal) else "the kernel does not compile"
        return SanitizerFinding(tool="memcheck", missing=why)
    request = ProfileRequest(
        task=task,
        hardware=hardware,
        rules=_RULES,
        candidate=kernel("cuda"),
        built=built,
        seed=0,
    )
    return await look(program, "memcheck", request, folder / "scratch", _SANITIZE_S)


async def architectures() -> dict[str, str]:
    """For each usual architecture, why a kernel cannot be compiled for it; "" where it can."""
    made = await asyncio.gather(
        *(
            compile_candidate(kernel("cuda"), architecture=name, timeout_s=_COMPILE_S)
            for name in ARCHITECTURES
        )
    )
    return {
        name: "" if isinstance(item, Built) else item.message
        for name, item in zip(ARCHITECTURES, made, strict=True)
    }


def _problem(evaluation: Evaluation) -> str:
    found = evaluation.verification
    return "" if found.verdict is Verdict.CORRECT else f"{found.verdict.value}: {found.reason}"


def _task_file(folder: Path) -> Path:
    path = folder / "probe.py"
    path.write_text(_FILE, encoding="utf-8")
    return path
