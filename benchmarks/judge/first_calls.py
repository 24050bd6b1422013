"""Counts processes whose first call of one of MKL's functions is less exact than its second.

Each process is a fork that has started no thread yet, and calls every function twice on the same
values with several threads; answers of other bits in the first are counted. `--resolved` lets one
thread call them before, as the processes of the judge do (`tools/evaluate/vector_math.py`).

    python benchmarks/judge/first_calls.py --processes 3000 --beside 12 [--resolved]
"""

import argparse
import json
import os
from collections import Counter
from pathlib import Path

import torch

from kernelwright.tools.evaluate.process_setup import FUNCTIONS, resolve_vector_math

_THREADS = 8


def inexact(values: torch.Tensor) -> dict[str, float]:
    """The functions whose two answers differ, with the largest relative difference."""
    found = {}
    for name in FUNCTIONS:
        first, second = (getattr(torch, name)(values) for _ in range(2))
        if not torch.equal(first, second):
            found[name] = ((first - second) / second).abs().max().item()
    return found


def begun(values: torch.Tensor) -> tuple[int, int]:
    """A process at work: where its answer is read, and its number."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        torch.set_num_threads(_THREADS)
        os.write(writing, json.dumps(inexact(values)).encode())
        os._exit(0)
    os.close(writing)
    return reading, process


def answer(reading: int, process: int) -> dict[str, float]:
    """What a process found."""
    os.waitpid(process, 0)
    with os.fdopen(reading) as told:
        return dict(json.load(told))


def main() -> None:
    """Start, count, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=3000)
    parser.add_argument("--beside", type=int, default=12, help="how many run at a time")
    parser.add_argument("--resolved", action="store_true")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    if chosen.resolved:
        resolve_vector_math()
    values = torch.rand(64, 257, generator=torch.Generator().manual_seed(3)) * 0.8 + 0.1
    running: list[tuple[int, int]] = []
    functions: Counter[str] = Counter()
    affected, worst = 0, 0.0
    for number in range(chosen.processes + chosen.beside):
        if number < chosen.processes:
            running.append(begun(values))
        if number >= chosen.beside:
            found = answer(*running.pop(0))
            functions.update(found.keys())
            affected += bool(found)
            worst = max(worst, *found.values()) if found else worst
    row = {
        "processes": chosen.processes, "beside": chosen.beside, "resolved": chosen.resolved,
        "affected": affected, "worst_relative": worst, "functions": dict(functions),
        "processors": os.cpu_count(), "torch": torch.__version__,
    }  # fmt: skip
    if chosen.json is not None:
        with chosen.json.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
    print(json.dumps(row))


if __name__ == "__main__":
    main()
