"""How often "faster" or "slower" is claimed of a kernel compared with itself.

For each task a kernel of the playbook is compiled once and loaded twice; both are compared as a
candidate is with a baseline in a precise look, on inputs drawn anew each time, with the noise that
the session's comparison of eager with itself told. At most 5 % of the comparisons may call the
kernel faster than itself. The tasks differ in how long a call takes.

    python benchmarks/timing/aa.py --target cpu --out benchmarks/results/cpu/aa.json
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

FORWARD = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 0.5, dim=-1)

def get_inputs():
    return [torch.randn({rows}, {columns})]
"""
# A few rows, what a cache holds, and what it does not.
SIZES = {
    "cpu": ((64, 256), (512, 1024), (2048, 2048)),
    "cuda": ((256, 256), (4096, 1024), (16384, 4096)),
}


async def ready(target: str, rows: int, columns: int):
    """The task of that size, the device, and the playbook's first kernel for it, compiled."""
    from kernelwright.tools.codegen.library.assemble import assemble
    from kernelwright.tools.codegen.lower import lower
    from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
    from kernelwright.tools.languages import CompileFailure, compile_candidate, new_candidate
    from kernelwright.tools.types import Refusal, TracePolicy

    scratch = Path(tempfile.mkdtemp())
    file = scratch / f"rows_{rows}_{columns}.py"
    file.write_text(FORWARD.format(rows=rows, columns=columns), encoding="utf-8")
    executor = LocalExecutor.create(target, scratch)
    try:
        hardware = await executor.hardware()
        task = await executor.trace(file, TracePolicy())
        assert not isinstance(task, Refusal), task
    finally:
        await executor.aclose()
    program, emitter = lower(task.graph), emitter_for(hardware.kind)
    chosen = {loop.name: emitter.strategies(loop, hardware)[0] for loop in program.loops}
    made = assemble(program, emitter, chosen, hardware)
    candidate = new_candidate(emitter.language, made.kernel, made.plan)
    built = await compile_candidate(candidate, architecture=hardware.architecture, timeout_s=90)
    assert not isinstance(built, CompileFailure), built
    return task, hardware, candidate, built


def emitter_for(kind: str) -> object:
    """The emitter of the language that the device runs."""
    if kind == "cuda":
        from kernelwright.tools.codegen.cuda import CudaEmitter

        return CudaEmitter()
    from kernelwright.tools.codegen.cpp import CppEmitter

    return CppEmitter()


def series(target: str, size: tuple[int, int], count: int, seconds: float) -> list[dict]:
    """Comparisons of one kernel with itself, one after another."""
    from kernelwright.tools.evaluate.rules import Rules
    from kernelwright.tools.evaluate.worker.task_runtime import TaskRuntime
    from kernelwright.tools.languages import load_candidate

    task, hardware, candidate, built = asyncio.run(ready(target, *size))
    rules, found = Rules(), []
    task_runtime = TaskRuntime(task, hardware, rules, seed=0)
    eager = task_runtime.baselines.get("eager")
    own = task_runtime.harness.compare("eager", eager, eager, seconds=rules.calibrate_s)
    noise = abs(own.ratio - 1.0)
    for number in range(count):
        task_runtime = TaskRuntime(task, hardware, rules, seed=number)
        weights = task_runtime.runtime.reference.weights()
        twins = []
        for _ in range(2):
            runner = load_candidate(candidate, built, hardware.kind)
            runner.prepare(weights)
            twins.append(partial(_call, runner, weights))
        harness = task_runtime.harness
        harness.measure(twins[0], seconds=0.05, least=3, most=10)
        started = time.perf_counter()
        compared = harness.compare("itself", twins[0], twins[1], seconds=seconds, noise=noise)
        found.append(
            {
                "size": list(size),
                "outcome": compared.outcome,
                "unsettled": compared.unsettled,
                "clock": compared.clock,
                "ratio": compared.ratio,
                "interval": [compared.ci95_low, compared.ci95_high],
                "noise": noise,
                "noise_applied": compared.noise,
                "pairs": compared.pairs,
                "median_ms": compared.candidate_ms,
                "seconds": time.perf_counter() - started,
                "others_share": compared.conditions.others_share,
                "unsteady": compared.conditions.pairs_unsteady,
            }
        )
    return found


def _call(runner, weights, arguments):
    return runner(arguments, weights)


def main() -> None:
    """Run the series of all sizes, print the shares, and write them with every comparison."""
    from kernelwright.tools.evaluate.rules import Rules

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=Rules().precise_s, help="a comparison")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    sizes = SIZES[given.target]
    started, load = time.perf_counter(), os.getloadavg()[0]
    found = []
    for index, size in enumerate(sizes):
        share = given.count * (index + 1) // len(sizes) - given.count * index // len(sizes)
        found += series(given.target, size, share, given.seconds)
    outcomes = Counter(item["outcome"] for item in found)
    without = Counter(_without_noise(item) for item in found)
    result = {
        "target": given.target,
        "comparisons": len(found),
        "outcomes": outcomes,
        "outcomes_without_the_noise": without,
        "faster_share": outcomes["faster"] / len(found),
        "claimed_share": sum(i["outcome"] == "faster" and not i["unsettled"] for i in found)
        / len(found),
        "pairs_median": median(item["pairs"] for item in found),
        "seconds_median": median(item["seconds"] for item in found),
        "ended_before_the_time": sum(item["seconds"] < given.seconds for item in found),
        "wall_s": time.perf_counter() - started,
        "load_average": [load, os.getloadavg()[0]],
        "rules": Rules().model_dump(mode="json"),
        "found": found,
    }
    brief = {key: value for key, value in result.items() if key not in ("found", "rules")}
    print(json.dumps(brief, indent=2))
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _without_noise(item: dict) -> str:
    low, high = item["interval"]
    return "faster" if low > 1 else "slower" if high < 1 else "not distinguishable"


if __name__ == "__main__":
    main()
