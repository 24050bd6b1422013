"""What waiting threads cost where several processes take turns on few processors.

A process of its own for each way of waiting times one operator that runs in parallel, six of them
in a row, and the same in one (`x * 2 * 2 * 2 * 2 * 2 * 2` and `x * 64`): back to back, as a
program that has the machine to itself, and after a pause, as a guest that is told to go. The ways
are OpenMP's own, the same with each thread on a processor of its own, a short spin, and asleep, as
threads in guests of foreign code wait.

    python benchmarks/timing/waking.py --out waking.json
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kernelwright.tools.evaluate.foreign.host.guest_process import ASLEEP
from kernelwright.tools.evaluate.sandbox.bytecode import worker_environment
from kernelwright.tools.evaluate.timing.statistics import median, percentile
from kernelwright.tools.types.value import Value

WAYS = {
    "usual": {},
    "bound": {"OMP_PROC_BIND": "true"},  # each thread to a processor: shows what the others lack
    "short spin": {"GOMP_SPINCOUNT": "1000"},
    "asleep": dict(ASLEEP),
}
PAUSE_S = 0.02
SIZES_KB = (256, 1024, 4096)


class Taken(Value):
    """Milliseconds a call: the median, and the middle half."""

    way: str
    what: str
    kb: int
    pause_ms: float
    median_ms: float
    p25_ms: float
    p75_ms: float


def measured(way: str) -> list[Taken]:
    """Every call of this process, whose environment says how its threads wait."""
    import torch

    found = []
    for kb in SIZES_KB:
        x = torch.randn(kb * 256)
        out = torch.empty_like(x)
        calls: dict[str, Callable[[], object]] = {
            "tanh": lambda x=x, out=out: torch.tanh(x, out=out),
            "six products": lambda x=x: x * 2 * 2 * 2 * 2 * 2 * 2,
            "one product": lambda x=x: x * 64,
        }
        for what, call in calls.items():
            for pause_s, count in ((0.0, 300), (PAUSE_S, 60)):
                samples = timed(call, count, pause_s)
                found.append(
                    Taken(
                        way=way,
                        what=what,
                        kb=kb,
                        pause_ms=pause_s * 1e3,
                        median_ms=median(samples),
                        p25_ms=percentile(samples, 25),
                        p75_ms=percentile(samples, 75),
                    )
                )
    return found


def timed(call: Callable[[], object], count: int, pause_s: float) -> list[float]:
    """Milliseconds of each call after warm-up, with a pause before each."""
    for _ in range(10):
        call()
    samples = []
    for _ in range(count):
        if pause_s:
            time.sleep(pause_s)
        start = time.perf_counter_ns()
        call()
        samples.append((time.perf_counter_ns() - start) / 1e6)
    return samples


def elsewhere(way: str, scratch: Path) -> list[Taken]:
    """The same in a process that waits so, with a worker's environment else."""
    environment = {**worker_environment(scratch), **WAYS[way]}
    command = [sys.executable, __file__, "--way", way]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return [Taken.model_validate(item) for item in json.loads(done.stdout)]


def main() -> None:
    """Print a table and write the figures, with the machine's load before and after."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--out", type=Path)
    words.add_argument("--way", help=argparse.SUPPRESS)
    asked = words.parse_args()
    if asked.way:
        print(json.dumps([taken.model_dump() for taken in measured(asked.way)]))
        return
    loads = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(prefix="waking-") as scratch:
        found = [taken for way in WAYS for taken in elsewhere(way, Path(scratch))]
    loads.append(os.getloadavg()[0])
    for t in found:
        half = f"({t.p25_ms:.3f} to {t.p75_ms:.3f})"
        print(f"{t.way:10} {t.what:12} {t.kb:4} KB {t.pause_ms:3.0f} {t.median_ms:7.3f} {half}")
    if asked.out:
        record = {"loads": loads, "taken": [taken.model_dump() for taken in found]}
        asked.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
