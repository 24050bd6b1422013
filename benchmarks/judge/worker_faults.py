"""What ends a worker, many times in a row on one judge: does every run go on, and how soon?

Faults come as kernels where the contract lets them be written, as references (a person's file) and
as foreign files where it does not. After each one an honest kernel is judged: it must be accepted
as before, and no process that the fault started may be left. A fault's cost is what it took itself
and what the honest kernel took longer than usual after it, a new worker's start included. A hang
of a kernel or of foreign code costs the limit that a search has; reading a file has a shorter one
here (`READING_S`), as nobody has begun a run then. `load` is how many processes wanted each of the
machine's processors: above 1 the seconds are those of a shared machine.

    python benchmarks/judge/worker_faults.py --faults 50
        --out benchmarks/results/cpu/worker_faults.json
    python benchmarks/judge/worker_faults.py --target cuda --faults 50 --out worker_faults.json

The result is written after every fault, so a run that is stopped keeps what it saw.

Not covered: faults of the driver that need the device to be reset.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path

from worker_fault_kinds import ROWS, Fault, faults, honest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.messages import Foreign
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.process_tree import machine_bytes
from kernelwright.tools.evaluate.sandbox.walls import LAUNCHER
from kernelwright.tools.types import Isolation, Refusal, Task, TracePolicy, Value

READING_S = 8.0
MEMORY_BYTES = 4 << 30  # a limit that is reached in seconds, whatever the machine has
RULES = Rules(
    memory_fraction=min(0.5, MEMORY_BYTES / machine_bytes()), processes_max=64, screen_s=0.05
)
GOAL_S = 15.0


class Tried(Value):
    """One fault and what came of it; `left` counts its processes that were still there."""

    fault: str
    verdict: str
    reason: str
    fault_s: float
    honest_s: float
    cost_s: float
    honest_verdict: str
    left: int
    load: float
    sound: bool


class Result(Value):
    """What the script writes."""

    when: str
    machine: str
    target: str
    isolation: Isolation
    usual_s: float
    faults: int
    sound: int
    worst_s: float
    median_s: float
    tried: tuple[Tried, ...]


class Ground:
    """One judge with an honest kernel that it accepts."""

    def __init__(self, executor: LocalExecutor, task: Task, target: str, scratch: Path) -> None:
        self.executor, self.task, self.target, self.scratch = executor, task, target, scratch
        self.usual_s = 0.0

    async def settle(self) -> None:
        """See what an honest kernel takes when nothing has happened."""
        verdict = ""
        for _ in range(3):
            verdict, self.usual_s = await self.honest()
        assert verdict == "correct", f"the honest kernel is {verdict}"

    async def honest(self) -> tuple[str, float]:
        """The honest kernel's verdict, and seconds until it was known."""
        began = time.monotonic()
        found = await self.executor.evaluate(self.task, honest(self.target), "screen")
        return found.verdict.value, time.monotonic() - began

    async def commit(self, fault: Fault) -> tuple[str, str]:
        """The verdict of a fault and its reason."""
        if fault.candidate is not None:
            found = await self.executor.evaluate(self.task, fault.candidate, "screen")
        elif fault.place == "foreign":
            foreign = Foreign(name="foreign", source=fault.text)
            found = await self.executor.check_foreign(self.task, foreign, timed=False)
        else:
            path = self.scratch / "fault.py"
            path.write_text(fault.text, encoding="utf-8")
            read = await self.executor.read(path, TracePolicy(timeout_s=READING_S))
            return ("refused", read.sentence) if isinstance(read, Refusal) else ("a task", "")
        return found.verdict.value, found.verification.reason

    async def tried(self, fault: Fault) -> Tried:
        """One fault, and the honest kernel after it."""
        began = time.monotonic()
        verdict, reason = await self.commit(fault)
        fault_s = time.monotonic() - began
        after, honest_s = await self.honest()
        cost_s = fault_s + max(0.0, honest_s - self.usual_s)
        left = len(survivors(self.scratch))
        wrong = [
            *([] if verdict in fault.verdicts else [f"expected {' or '.join(fault.verdicts)}"]),
            *([] if fault.words in reason else [f"{fault.words!r} is not in the reason"]),
            *([] if after == "correct" else [f"the honest kernel after it was {after}"]),
            *([f"{left} processes were left"] if left else []),
            *([f"above {GOAL_S:g} s"] if cost_s >= GOAL_S else []),
        ]
        sound = not wrong
        print(
            f"{'ok  ' if sound else 'FAIL'} {fault.name:42} {verdict:15} {cost_s:6.1f} s"
            f"  then {after}" + ("" if sound else f"  [{'; '.join(wrong)}] {reason[:200]}"),
            flush=True,
        )
        return Tried(
            fault=fault.name,
            verdict=verdict,
            reason=reason[:300],
            fault_s=fault_s,
            honest_s=honest_s,
            cost_s=cost_s,
            honest_verdict=after,
            left=left,
            load=os.getloadavg()[0] / (os.cpu_count() or 1),
            sound=sound,
        )


def survivors(scratch: Path) -> list[int]:
    """Processes that were started for this judge and should not be there, wherever they hang.

    Whatever runs there has its worker's home in the environment that it began with. There may be
    one process in each of: the worker and the one that stands ready in its place, the reader that
    waits to build torch.compile's baseline, the judge of foreign files, two guests that wait. On a
    GPU what would profile waits as well: a worker, and Nsight Compute with whatever it is made of.
    """
    homes: dict[str, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            told = (folder / "environ").read_text(encoding="utf-8", errors="replace").split("\0")
            words = (folder / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
            home = next((item[5:] for item in told if item.startswith("HOME=")), "")
            ours = Path(home).is_relative_to(scratch) and any(words)
            if ours and not words[0].endswith("bwrap") and words[3:4] != [str(LAUNCHER)]:
                place = Path(home).parent  # workers of a keeper are numbered
                name = place.parent.name if place.name.isdecimal() else place.name
                name = "aside" if "aside" in place.relative_to(scratch).parts else name
                homes.setdefault(name, []).append(int(folder.name))
    expected = {"evaluate", "trace", "judge", "aside"}
    expected |= {*_latest("guest-", homes), *_latest("spare-", homes)}
    for counter in _latest("ready-", homes)[-1:]:
        del homes[counter]
    found: list[int] = []
    for name, pids in homes.items():
        found += sorted(pids)[1:] if name in expected else pids
    return found


def _latest(beginning: str, names: Iterable[str]) -> list[str]:
    """The two numbered last of those that begin so, the last one last."""
    numbers = [int(name.removeprefix(beginning)) for name in names if name.startswith(beginning)]
    return [f"{beginning}{number}" for number in sorted(numbers)[-2:]]


async def everything(
    target: str, count: int, scratch: Path, keep: Callable[[Result], object]
) -> Result:
    """So many faults in a row on one judge; `keep` is told what is known after each."""
    executor = LocalExecutor.create(target, scratch / "work", rules=RULES)
    tried: list[Tried] = []
    try:
        path = scratch / "rows.py"
        path.write_text(ROWS, encoding="utf-8")
        task = await executor.trace(path, TracePolicy(device=target))
        assert isinstance(task, Task), task
        ground = Ground(executor, task, target, scratch)
        await ground.settle()
        print(f"an honest kernel takes {ground.usual_s:.2f} s; {executor.isolation}", flush=True)
        for fault in itertools.islice(itertools.cycle(faults(target)), count):
            tried.append(await ground.tried(fault))
            keep(result(ground, tried))
    finally:
        await executor.aclose()
    assert not survivors(scratch), "a closed judge leaves nothing behind"
    return result(ground, tried)


def result(ground: Ground, tried: list[Tried]) -> Result:
    """What is known by now."""
    costs = [item.cost_s for item in tried]
    return Result(
        when=datetime.now().astimezone().isoformat(timespec="seconds"),
        machine=platform.processor() or platform.machine(),
        target=ground.target,
        isolation=ground.executor.isolation,
        usual_s=ground.usual_s,
        faults=len(tried),
        sound=sum(item.sound for item in tried),
        worst_s=max(costs),
        median_s=statistics.median(costs),
        tried=tuple(tried),
    )


def main() -> None:
    """See the module; exit status 1 when a fault was not sound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()

    def keep(known: Result) -> None:
        if arguments.out:
            arguments.out.write_text(known.model_dump_json(indent=1) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory(prefix="kernelwright-worker-faults-") as scratch:
        asked = everything(arguments.target, arguments.faults, Path(scratch), keep)
        found = asyncio.run(asked)
    print(dict(Counter(item.verdict for item in found.tried)))
    print(
        f"{found.sound} of {found.faults} sound; a fault costs {found.median_s:.1f} s, "
        f"{found.worst_s:.1f} s at worst"
    )
    sys.exit(found.sound != found.faults)


if __name__ == "__main__":
    main()
