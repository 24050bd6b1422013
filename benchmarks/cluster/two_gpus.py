"""A suite on one GPU and on two of one host, by the same command: how much of the time is left.

    python benchmarks/cluster/two_gpus.py FOLDER --match 19-58 --one 0 --two 1,2 --out two_gpus.json
    python benchmarks/cluster/two_gpus.py SOME_FOLDER --write 40 --out two_gpus.json

Runs `kernelwright bench FOLDER --gpus ...` twice, one after the other, or beside each other on GPUs
of their own with `--beside` (which the processors must have room for). Both begin with an empty
cache of their own, so that neither finds what the other compiled. Torch's bytecode is made before
both: the first search of a machine makes it where the installation lacks it. The seconds are those
of the command from its start to its end, imports and the first worker's start included; the tasks'
own seconds, summed, stand beside them, as a suite ends with whatever file takes longest. With
`--write` the folder is filled first with as many random modules, of all families that
`kernelwright learn` draws from, the same ones every time.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernelwright.graphs.suite import read
from kernelwright.tools.evaluate.sandbox import bytecode
from kernelwright.tools.evaluate.sandbox.filling import fill
from kernelwright.tools.learning.writing.families import modules


def main() -> None:
    """Run both, and say what came of it."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("folder", type=Path)
    words.add_argument("--match", action="append", default=[], help="as of `kernelwright bench`")
    words.add_argument("--write", type=int, default=0, help="random modules into the folder")
    words.add_argument("--one", default="0", help="the GPU of the first run")
    words.add_argument("--two", default="0,1", help="the GPUs of the second")
    words.add_argument("--two-first", action="store_true", help="in this order")
    words.add_argument("--beside", action="store_true", help="both at the same time")
    words.add_argument("--seconds-per-task", type=float, default=1.0)
    words.add_argument("--out", type=Path, required=True)
    asked = words.parse_args()
    if asked.write:
        asked.folder.mkdir(parents=True, exist_ok=True)
        held_out = modules(asked.write // 3, 7, held_out=True)
        for module in (*modules(asked.write - len(held_out), 7), *held_out):
            (asked.folder / f"{module.name}.py").write_text(module.source)
    asyncio.run(fill())
    order = (asked.two, asked.one) if asked.two_first else (asked.one, asked.two)
    runs: dict[str, SuiteRun] = {}

    def ran(gpus: str) -> None:
        runs[gpus] = run = suite(asked, gpus)
        print(f"GPUs {run.gpus}: {run.tasks} tasks in {run.seconds:.1f} s", end=", ")
        print(f"{run.task_seconds:.1f} s of tasks, the longest {run.longest_s:.1f} s", flush=True)
        # What there is so far stays, should the other run be cut off.
        told = {"argv": sys.argv[1:], "runs": [asdict(one) for one in runs.values()]}
        asked.out.write_text(json.dumps(told, indent=1) + "\n")

    with ThreadPoolExecutor(2 if asked.beside else 1) as pool:
        list(pool.map(ran, order))
    share = runs[asked.two].seconds / runs[asked.one].seconds
    print(f"two take {share:.3f} of one's time")


@dataclass(frozen=True)
class SuiteRun:
    """What one run took."""

    gpus: str
    tasks: int
    seconds: float
    task_seconds: float
    longest_s: float


def suite(asked: argparse.Namespace, gpus: str) -> SuiteRun:
    """One run of the suite on some GPUs, with a home of its own."""
    with tempfile.TemporaryDirectory() as home:
        out = Path(home) / "results.jsonl"
        command = [
            sys.executable, "-m", "kernelwright", "bench", str(asked.folder), "--gpus", gpus,
            "--search", "quick", "--seconds-per-task", str(asked.seconds_per_task),
            "--evidence", "timing", "--out", str(out), "--run-dir", f"{home}/runs",
            *(word for match in asked.match for word in ("--match", match)),
        ]  # fmt: skip
        environment = {**os.environ, "KERNELWRIGHT_HOME": f"{home}/home", "TMPDIR": home}
        if bytecode.filled():
            own = bytecode.own_folder()
            shutil.copytree(own, Path(home) / "home" / "cache" / "bytecode" / own.name)
        started = time.monotonic()
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        seconds = time.monotonic() - started
        if ended.returncode:
            sys.exit(f"bench on GPUs {gpus} ended with {ended.returncode}: {ended.stderr[-2000:]}")
        took = [one.seconds for one in read(out)]
    return SuiteRun(gpus, len(took), seconds, sum(took), max(took))


if __name__ == "__main__":
    main()
