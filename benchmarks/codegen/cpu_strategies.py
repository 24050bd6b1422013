"""Compares every CPU strategy of the playbook with eager and torch.compile on the examples.

For each example, each strategy of its heaviest loop is compiled under its default setting and a
few others, checked against the float64 reference, and timed in turns with both baselines, so
that a change of the machine's load hits all alike. Ratios are medians of paired ratios: baseline
over candidate. A run is short; it guides tuning and is no published figure.

    python benchmarks/codegen/cpu_strategies.py --only softmax swiglu --settings 6
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch

from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.cpp import CppEmitter
from kernelwright.tools.codegen.ir import Loop, Program, Strategy
from kernelwright.tools.codegen.library.assemble import assemble
from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.hardware import detect
from kernelwright.tools.languages import (
    CompileFailure,
    compile_candidate,
    load_candidate,
    new_candidate,
    parse_kernel,
    shutdown_compilers,
    with_settings,
)
from kernelwright.tools.tasks import Reference, draw, trace
from kernelwright.tools.types import Candidate, Refusal, Task, TracePolicy

Timed = Callable[[], object]


def heaviest(program: Program) -> Loop | None:
    """The loop with the most positions."""
    return max(program.loops, key=lambda loop: loop.rows * max(1, loop.columns), default=None)


def candidates(program: Program, settings: int) -> list[tuple[str, Candidate]]:
    """(label, candidate) for every strategy of the heaviest loop and some settings of each."""
    hardware, emitter = detect("cpu"), CppEmitter()
    loop, made = heaviest(program), []
    if loop is None:
        return []
    for strategy in emitter.strategies(loop, hardware):
        made += _settled(program, loop, strategy, settings, emitter, hardware)
    return made


def _settled(program, loop, strategy: Strategy, settings: int, emitter, hardware):
    text = assemble(program, emitter, {loop.name: strategy}, hardware)
    base = new_candidate("cpp", text.kernel, text.plan)
    tried = valid_settings(parse_kernel(text.kernel, "cpp"))
    step = max(1, len(tried) // settings)
    return [
        (f"{strategy.name} {_shown(setting)}", with_settings(base, setting))
        for setting in tried[::step][:settings]
    ]


def _shown(setting) -> str:
    return " ".join(f"{item.name.partition('_')[2]}={item.value}" for item in setting)


async def runners(task: Task, made, weights, device: str = "cpu"):
    """Compiled candidates as callables; what does not compile is printed."""
    ready = []
    for label, candidate in made:
        built = await compile_candidate(candidate, architecture=None, timeout_s=60)
        if isinstance(built, CompileFailure):
            print(f"  {label}: {built.message[:200]}")
            continue
        runner = load_candidate(candidate, built, device)
        runner.prepare(weights)
        ready.append((label, runner))
    return ready


def error(got, truth) -> float:
    """Worst error over all outputs, relative to the largest true value."""
    return max(
        ((g.double() - t.double()).abs().max() / t.double().abs().max().clamp_min(1e-30)).item()
        for g, t in zip(got, truth, strict=True)
    )


def paired(jobs: dict[str, Timed], seconds: float) -> dict[str, list[float]]:
    """Times of every job, taken in turns for about `seconds`."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()
    end, forwards = time.perf_counter() + seconds, True
    while time.perf_counter() < end or len(next(iter(times.values()))) < 5:
        for name in jobs if forwards else reversed(jobs):
            start = time.perf_counter()
            result = jobs[name]()
            times[name].append((time.perf_counter() - start) * 1e3)
            del result
        forwards = not forwards
    return times


def ratio(times: dict[str, list[float]], over: str, under: str) -> float:
    """Median of paired ratios."""
    pairs = zip(times[over], times[under], strict=True)
    return statistics.median(a / b for a, b in pairs)


def compare(path: Path, settings: int, seconds: float) -> None:
    """Prints one example's table."""
    task = trace(path.read_text(), str(path), TracePolicy())
    if isinstance(task, Refusal):
        print(f"{path.stem}: {task.sentence}")
        return
    reference = Reference.build(task, "cpu")
    args = draw(task, "task", 0, "cpu")
    weights = reference.weights()
    truth = reference.double().forward([a.double() if _floats(a) else a for a in args])
    compiled = torch.compile(reference.module)
    jobs: dict[str, Timed] = {
        "eager": lambda: reference.forward(args),
        "compile": lambda: _without_grad(compiled, args),
    }
    errors = {"eager": error(reference.forward(args), truth)}
    made = candidates(lower(task.graph), settings)
    for label, runner in asyncio.run(runners(task, made, weights)):
        errors[label] = error(runner(args, weights), truth)
        jobs[label] = lambda runner=runner: runner(args, weights)
    times = paired(jobs, seconds)
    print(f"{path.stem}: floor bytes {task.bytes_moved / 1e6:.0f} MB")
    for name in jobs:
        over = {base: ratio(times, base, name) for base in ("eager", "compile")}
        print(
            f"  {name:60s} {statistics.median(times[name]):8.3f} ms eager/ {over['eager']:5.2f} "
            f" compile/ {over['compile']:5.2f}  error {errors.get(name, float('nan')):.1e}"
        )


def _floats(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _without_grad(function, args):
    with torch.no_grad():
        return function(*args)


def main() -> None:
    """Every example, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--settings", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4.0)
    arguments = parser.parse_args()
    for path in sorted((ROOT / "examples").glob("*.py")):
        if arguments.only is None or path.stem in arguments.only:
            compare(path, arguments.settings, arguments.seconds)
    shutdown_compilers()


if __name__ == "__main__":
    main()
