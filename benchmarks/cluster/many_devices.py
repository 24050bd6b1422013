"""The scheduler before 64 simulated devices, with durations that were recorded on H200s.

    python benchmarks/cluster/many_devices.py --devices 64 --out many_devices.json

Every searched file of the recorded suites becomes searches (one for each of `--seeds`), each with
the jobs that it had: look at the task and time PyTorch, screen so many candidates at once, compare,
certify one after the other, with the seconds that the account of that file has for each. A device
that does not know a task builds torch.compile's baseline for it first, with the seconds that this
took. `--lost-every` loses a device, drawn by chance, again and again, and it is back after 15 s.

Time is simulated: a clock that jumps to the next event. The scheduler, its messages and the results
in SQLite are the real ones, and the processor's time of the whole simulation is divided by the
candidates that were judged, so that its figure is an upper bound of what one costs the scheduler.
Efficiency is the time of devices doing jobs that were answered, over devices times the whole time.
Not simulated: the thinking between rounds, and the network.
"""

import argparse
import asyncio
import json
import random
import selectors
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernelwright.graphs.suite import Outcome, read
from kernelwright.graphs.suite.on_cluster import SEARCHES
from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.evaluate.executors.cluster.messages import Answer, Greeting, Job, JobKind
from kernelwright.tools.evaluate.executors.cluster.results import Results
from kernelwright.tools.evaluate.executors.cluster.scheduler import (
    DeviceLostError,
    Scheduler,
    Wanted,
)
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import Evaluation, Isolation, Verdict, Verification, WallKind

RESULTS = Path(__file__).resolve().parents[1] / "results" / "h200"
RECORDED = ("kernelbench_level1.jsonl", "kernelbench_level2.jsonl")
RULES, WANTED = Rules(), Wanted("H200", "NVIDIA H200")
BACK_S = 15.0
# As long as the texts that are really sent: a task with its graph, an evaluation with its samples.
TASK_CHARACTERS, EVALUATION_CHARACTERS = 60_000, 20_000


class Jumping(selectors.SelectSelector):
    """A selector that never waits: the clock jumps instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; the clock is where the wait would have ended."""
        self.now_s += timeout or 0.0
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next event."""

    def __init__(self) -> None:
        self._jumping = Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """The simulated time."""
        return self._jumping.now_s


@dataclass(frozen=True)
class Search:
    """The jobs of one recorded file: seconds of each."""

    file: str
    probe_s: float
    build_s: float
    screens_s: tuple[float, ...]
    precise_s: tuple[float, ...]
    certify_s: tuple[float, ...]

    @property
    def chain_s(self) -> float:
        """The least that it takes on however many devices."""
        return (
            self.probe_s + max(self.screens_s) + max((0.0, *self.precise_s)) + sum(self.certify_s)
        )


def recorded(outcome: Outcome) -> Search | None:
    """The jobs of a file by its account; None where it was not searched to the end."""
    if outcome.summary is None or not outcome.phases:
        return None

    def of(part: str, step: str = "") -> float:
        phases = (p for p in outcome.phases if p.part == part)
        return sum(p.seconds for p in phases if step in p.name)

    def times(name: str) -> int:
        return next((p.times for p in outcome.phases if p.name == name), 0)

    screens = max(1, times("screen: load"), outcome.summary.candidates.compiled)
    precise, certified = times("precise: load"), max(1, times("certify: load"))
    return Search(
        file=outcome.file,
        probe_s=of("audit") + of("baselines") + of("beside", "build compile"),
        build_s=of("baselines", "build compile") + of("beside", "build compile"),
        screens_s=(of("screen") / screens,) * screens,
        precise_s=(of("precise") / precise,) * precise if precise else (),
        certify_s=(of("certify") / certified,) * certified,
    )


@dataclass
class Devices:
    """Simulated devices: they take the seconds that a job's text asks for."""

    loop: SimulatedLoop
    lost_every_s: float
    chance: random.Random
    scheduler: Scheduler | None = None
    useful_s: float = 0.0
    building_s: float = 0.0
    lost_s: float = 0.0
    losses: int = 0
    known: dict[str, set[str]] = field(default_factory=dict)
    _ends: dict[str, Callable[[], None]] = field(default_factory=dict)

    def begin(self, device: str) -> None:
        """A device is up, and knows nothing."""
        self.known[device] = set()
        greeting = Greeting(
            hardware=hardware_profile("h200").model_copy(update={"name": WANTED.name}),
            node="simulated", unit=device, software="", pid=1,
        )  # fmt: skip
        assert self.scheduler is not None
        self.scheduler.up(device, WANTED.kind, greeting)

    async def run(self, device: str, text: str) -> str:
        """See `Fleet`."""
        job = Job.model_validate_json(text)
        seconds, build_s = map(float, job.id.split("|")[1:3])
        extra_s = 0.0 if job.task_key in self.known[device] else build_s
        began_s = self.loop.time()
        lost: asyncio.Future[None] = self.loop.create_future()
        self._ends[device] = lambda: None if lost.done() else lost.set_result(None)
        await asyncio.wait({lost}, timeout=seconds + extra_s)
        if lost.done():
            self.lost_s += self.loop.time() - began_s
            raise DeviceLostError("simulated")
        lost.cancel()
        if job.kind != "screen":
            self.known[device].add(job.task_key)
        self.useful_s += seconds
        self.building_s += extra_s
        words = "x" * EVALUATION_CHARACTERS
        isolation = Isolation(kind=WallKind.BUBBLEWRAP, words="simulated")
        found = Verification(verdict=Verdict.CORRECT, reason="", isolation=isolation)
        judged = Evaluation(candidate="c", verification=found, compiler_log=words)
        return Answer(job=job.id, device=device, evaluation=judged).model_dump_json()

    def end(self, device: str) -> None:
        """See `Fleet`."""
        raise AssertionError("nothing hangs here")

    async def lose(self) -> None:
        """Lose a busy device now and then."""
        while self.lost_every_s:
            await asyncio.sleep(self.lost_every_s)
            device = self.chance.choice(sorted(self.known))
            self.losses += 1
            assert self.scheduler is not None
            self.scheduler.down(device)
            self._ends.get(device, lambda: None)()
            self.loop.call_later(BACK_S, self.begin, device)


async def searched(
    number: int, search: Search, scheduler: Scheduler, results: Results, task: str
) -> None:
    """The jobs of one search, in the order in which a search asks for them."""
    key, numbers = f"{number}", iter(range(1000))

    async def one(kind: JobKind, seconds: float, build_s: float) -> None:
        id = f"{number}-{next(numbers)}|{seconds}|{build_s}"
        job = Job(id=id, kind=kind, task=task, task_key=key, rules=RULES, seed=0)
        if results.get(job.id) is None:
            answer = await scheduler.do(job, WANTED)
            assert results.put(answer, kind, "c")

    await one("probe", search.probe_s, 0.0)
    await asyncio.gather(*(one("screen", s, 0.0) for s in search.screens_s))
    await asyncio.gather(*(one("precise", s, search.build_s) for s in search.precise_s))
    for seconds in search.certify_s:
        await one("certify", seconds, search.build_s)


@dataclass(frozen=True)
class Simulated:
    """What a simulation came to."""

    devices: int
    searches: int
    candidates: int
    jobs: int
    seconds: float
    useful_s: float
    building_s: float
    lost_s: float
    losses: int
    longest_chain_s: float
    efficiency: float
    processor_s: float
    scheduler_ms_a_candidate: float
    scheduler_ms_a_job: float


def simulate(searches: Sequence[Search], devices: int, lost_every_s: float) -> Simulated:
    """Run all searches, half as many more at once as there are devices."""
    loop = SimulatedLoop()
    fleet = Devices(loop, lost_every_s, random.Random(0))
    task = json.dumps({"graph": "x" * TASK_CHARACTERS})

    async def all_of_them(results: Results) -> float:
        scheduler = fleet.scheduler = Scheduler(fleet, clock=loop.time)
        for number in range(devices):
            fleet.begin(f"gpu-{number}")
        left = list(enumerate(searches))[::-1]
        losing = asyncio.create_task(fleet.lose())

        async def work() -> None:
            while left:
                number, search = left.pop()
                await searched(number, search, scheduler, results, task)

        await asyncio.gather(*(work() for _ in range(ceil(SEARCHES * devices))))
        ended_s = loop.time()
        losing.cancel()
        await scheduler.aclose()
        return ended_s

    with tempfile.TemporaryDirectory(prefix="kernelwright-many-") as folder:
        results = Results(Path(folder) / "results.sqlite")
        began_s = time.process_time()
        ended_s = loop.run_until_complete(all_of_them(results))
        processor_s = time.process_time() - began_s
        jobs, judged = len(results.rows()), sum(len(item.screens_s) for item in searches)
        results.close()
    loop.close()
    return Simulated(
        devices=devices, searches=len(searches), candidates=judged, jobs=jobs,
        seconds=round(ended_s, 1), useful_s=round(fleet.useful_s, 1),
        building_s=round(fleet.building_s, 1), lost_s=round(fleet.lost_s, 1),
        losses=fleet.losses, longest_chain_s=round(max(s.chain_s for s in searches), 1),
        efficiency=round(fleet.useful_s / (devices * ended_s), 4),
        processor_s=round(processor_s, 2),
        scheduler_ms_a_candidate=round(1e3 * processor_s / judged, 3),
        scheduler_ms_a_job=round(1e3 * processor_s / jobs, 3),
    )  # fmt: skip


def main() -> None:
    """Simulate, and print and write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=10, help="searches of each file")
    parser.add_argument("--lost-every", type=float, default=20.0, help="seconds; 0 for never")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    files = [recorded(item) for name in RECORDED for item in read(RESULTS / name)]
    searches = [item for item in files if item is not None] * asked.seeds
    random.Random(0).shuffle(searches)
    found = [
        simulate(searches, devices, lost_every_s)
        for devices, lost_every_s in (
            (1, 0.0),
            (asked.devices, 0.0),
            (asked.devices, asked.lost_every),
        )
    ]
    for one in found:
        print(one)
    if asked.out:
        rows = [vars(one) for one in found]
        asked.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
