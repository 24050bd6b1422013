"""Times the same CPU kernels built with other compiler flags, in turns in one process.

For each example, every strategy of its heaviest loop under its default setting is compiled twice,
without and with the flags, checked against float64, and timed in turns with eager. `gain` is the
median of paired ratios: without over with. The intervals between order statistics say how sure it
is. For deciding on a flag, on the machine at hand. The flags come last, so that they also undo one
that the project gives by itself.

    python benchmarks/codegen/compiler_flags.py --flags=-mprefer-vector-width=512 --only softmax
"""

import argparse
import asyncio
import os
import statistics
import tempfile
from pathlib import Path
from unittest.mock import patch

from cpu_strategies import candidates, error, paired, runners
from torch import Tensor

from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.languages import shutdown_compilers
from kernelwright.tools.tasks import Reference, draw, trace
from kernelwright.tools.types import Refusal, TracePolicy

ROOT = Path(__file__).resolve().parents[2]


def built(task, made, weights, flags: str):
    """The candidates as callables, compiled with these flags behind all others."""
    with tempfile.TemporaryDirectory() as folder:
        command = Path(folder, "g++")
        command.write_text(f'#!/bin/sh\nexec {os.environ.get("CXX", "g++")} "$@" {flags}\n')
        command.chmod(0o755)
        with patch.dict(os.environ, CXX=str(command)):
            return asyncio.run(runners(task, made, weights))


def interval(ratios: list[float]) -> tuple[float, float]:
    """About 95 %, between order statistics of the median."""
    ordered, count = sorted(ratios), len(ratios)
    away = int(0.98 * count**0.5)
    low, high = max(0, count // 2 - away), min(count - 1, count // 2 + away)
    return ordered[low], ordered[high]


def compare(path: Path, flags: str, settings: int, seconds: float) -> None:
    """Prints one example's rows."""
    task = trace(path.read_text(), str(path), TracePolicy())
    if isinstance(task, Refusal):
        print(f"{path.stem}: {task.sentence}")
        return
    reference = Reference.build(task, "cpu")
    args, weights = draw(task, "task", 0, "cpu"), reference.weights()
    wide = [a.double() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
    truth = reference.double().forward(wide)
    made = candidates(lower(task.graph), settings)
    jobs = {"eager": lambda: reference.forward(args)}
    for kind, added in (("without", ""), ("with", flags)):
        for label, runner in built(task, made, weights, added):
            assert error(runner(args, weights), truth) < 1e-4, label
            jobs[f"{label} {kind}"] = lambda runner=runner: runner(args, weights)
    times = paired(jobs, seconds)
    print(path.stem, f"eager {statistics.median(times['eager']):.3f} ms", flush=True)
    for name in [name for name in jobs if name.endswith(" with")]:
        other = name.removesuffix(" with") + " without"
        ratios = [a / b for a, b in zip(times[other], times[name], strict=True)]
        low, high = interval(ratios)
        print(
            f"  {name.removesuffix(' with'):60s} {statistics.median(times[other]):8.3f} -> "
            f"{statistics.median(times[name]):.3f} ms, gain {statistics.median(ratios):.2f} "
            f"[{low:.2f}, {high:.2f}]",
            flush=True,
        )


def main() -> None:
    """Every example, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flags", required=True)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--settings", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=8.0)
    words = parser.parse_args()
    for path in sorted((ROOT / "examples").glob("*.py")):
        if words.only is None or path.stem in words.only:
            compare(path, words.flags, words.settings, words.seconds)
    shutdown_compilers()


if __name__ == "__main__":
    main()
