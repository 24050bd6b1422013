"""A real search on a local Ray cluster of CPU workers that are killed in every phase.

    python benchmarks/cluster/lost_workers.py --times 20 --out lost_workers.json

One search is left alone. Then it is run again and again, and each time a worker is ended by SIGKILL
while it starts, and while it does the first job of each kind: looking at the task, screening,
comparing, profiling and certifying. Every run must end with the same jobs and verdicts as the one
that was left alone, with one row and one answer for each job, and nothing may be left running.

The candidates are fixed: one that is right and fast, one that is right and far slower, one that is
wrong, one that does not compile. torch.compile is switched off, as it would take most of the time.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernelwright.agents.coder.coder import PlaybookCoder
from kernelwright.agents.critic.critic import PlaybookCritic
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.agents.profiler.profiler import PlaybookProfiler
from kernelwright.agents.roles import AgentSet
from kernelwright.graphs.search.run import start_search
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.codegen.ir import Strategy
from kernelwright.tools.codegen.library.kernel_library import LibraryDraft, Option
from kernelwright.tools.evaluate.executors.base.kind import ExecutorChoice
from kernelwright.tools.evaluate.executors.cluster.executor import Cluster, RayExecutor
from kernelwright.tools.evaluate.executors.cluster.messages import Answer, Ground, Job
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import LanguageName, TracePolicy
from kernelwright.tools.types.run import Summary

PHASES = ("start", "probe", "screen", "precise", "profile", "certify")
WORKERS = 2
# Two dozen operators, so that one pass is certainly faster than eager: a kernel about as fast would
# be a finalist in one run and none in the next, whatever became of workers.
FILE = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        for _ in range(12):
            x = torch.clamp(x * 1.25, -1.0, 1.0)
        return x

def get_inputs():
    return [torch.randn(256, 1024)]
"""
KERNEL = """#include <algorithm>
#include <cstdint>
extern "C" void clamped(const float* x, float* y, int64_t count) {
    for (int again = 0; again < %(times)d; again++) {
        for (int64_t i = 0; i < count; i++) {
            %(kept)s float z = x[i];
            for (int step = 0; step < 12; step++) {
                const float larger = z * 1.25f;
                z = std::min(std::max(larger, -1.0f), 1.0f);
            }
            y[i] = z * %(factor)s;
        }
    }
}
"""
PLAN = """def forward(x):
    rows, columns = x.shape
    y = empty_like(x)
    launch("clamped", args=(x, y, rows * columns))
    return y
"""
SOURCES: Mapping[str, str] = {
    "fast": KERNEL % {"times": 1, "factor": "1.0f", "kept": ""},
    "slow": KERNEL % {"times": 8, "factor": "1.0f", "kept": "volatile"},
    "wrong": KERNEL % {"times": 1, "factor": "1.1f", "kept": ""},
    "broken": KERNEL.replace("i = 0", "i = ") % {"times": 1, "factor": "1.0f", "kept": ""},
}
PROFILE = SearchProfile(
    name="tiny", rounds=1, ideas_per_round=4, candidates_per_idea=1, repairs=0, patience=1,
    seconds=3600, tuning_trials=0, finalists=1, stop_at_floor_fraction=1.0, minimum_gain=1.0,
)  # fmt: skip
RULES = Rules(
    candidate_s=120.0, screen_s=0.01, screen_samples_max=4, precise_s=0.02, certify_s=0.02,
    mode_s=0.02, server_gap_s=0.002, pairs_min=3, pairs_max=5, warm_up_s=0.0, profile_s=1.0,
    compile_ahead=False, evidence="timing",
)  # fmt: skip


@dataclass(frozen=True)
class FixedKernels:
    """The four kernels as a repertoire for the built-in rules."""

    language: LanguageName = "cpp"
    fixed_ms: float = 0.0

    def options(self) -> tuple[Option, ...]:
        """One way for each kernel."""
        return tuple(
            Option(loop="rows", family="fixed", strategy=_strategy(name), predicted_ms=0.1 + at)
            for at, name in enumerate(SOURCES)
        )

    def draft(self, choices: Mapping[str, str]) -> LibraryDraft:
        """The kernel itself."""
        name = choices["rows"]
        return LibraryDraft(kernel=SOURCES[name], plan=PLAN, strategies=(f"rows={name}",))


def _strategy(name: str) -> Strategy:
    return Strategy(
        name=name, title=f"The {name} way", mechanism=f"is {name}", reason="to be judged",
        category="memory", metric="ms", memory=name, compute="plain", parallel="rows",
    )  # fmt: skip


def agents() -> AgentSet:
    """The built-in rules, over these kernels."""
    kernels = FixedKernels()
    return AgentSet.of_search(
        planner=PlaybookPlanner(kernels),
        coder=PlaybookCoder(kernels),
        profiler=PlaybookProfiler(),
        critic=PlaybookCritic(),
    )


@dataclass
class Murderer:
    """Kills the worker that does the first job of each phase, a while after it began.

    Attributes:
        phases: In which phases.
        chance: Draws the while, as a share of what the phase took undisturbed.
        typical_s: What each phase took undisturbed.
        killed: What was done, for the record: phase, seconds into it.
        answers: How often each job was answered.
    """

    phases: tuple[str, ...]
    chance: random.Random
    typical_s: Mapping[str, float]
    killed: list[tuple[str, float]] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    def watch(self, cluster: Cluster) -> None:
        """Be there whenever a device gets a job."""
        run = cluster.fleet.run

        async def watched(device: str, text: str) -> str:
            kind = Job.model_validate_json(text).kind
            if kind in self.phases and kind not in dict(self.killed):
                self._end(kind, cluster.scheduler.devices[device].greeting.pid)
            answer = await run(device, text)
            self.answers[Answer.model_validate_json(answer).job] += 1
            return answer

        cluster.fleet.run = watched  # type: ignore[method-assign]
        if "start" in self.phases:
            self._tasks.append(asyncio.create_task(self._at_the_start()))

    def _end(self, kind: str, judge: int) -> None:
        """Kill the actor above a judge; where another one took its place unseen, kill them all."""
        after_s = self.chance.uniform(0.0, 0.9) * self.typical_s.get(kind, 0.5)
        self.killed.append((kind, round(after_s, 2)))
        worker = _parent(judge)
        for pid in [worker] if worker else actors():
            self._tasks.append(asyncio.create_task(_kill(pid, after_s)))

    async def _at_the_start(self) -> None:
        """The first actor that appears, before it has greeted."""
        while not (found := actors()):  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.02)
        after_s = self.chance.uniform(0.0, 0.9) * self.typical_s.get("start", 1.0)
        self.killed.append(("start", round(after_s, 2)))
        await _kill(found[0], after_s)


async def _kill(pid: int, after_s: float) -> None:
    await asyncio.sleep(after_s)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _parent(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None


def actors() -> list[int]:
    """Processes of Ray that stand for devices of a cluster that this process began."""
    return [pid for pid, words in offspring() if words.startswith("ray::DeviceActor")]


def offspring() -> list[tuple[int, str]]:
    """Every process that descends from this one, with its command line.

    Not the one that compiles, nor the one that workers are forked from: both stay as long as the
    program does.
    """
    parents, words = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = _parent(int(entry.name)) or 0
            words[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ").strip()
        except OSError:
            continue
    found, frontier = [], {os.getpid()}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier}
        found += [(pid, words.get(pid, "")) for pid in sorted(frontier)]
    own = f"sandbox.forked .* {os.getpid()}$"
    lasting = re.compile(f"compiler_process|{own}")
    return [(pid, told) for pid, told in found if not lasting.search(told)]


@dataclass(frozen=True)
class Story:
    """What a search came to, and what it took."""

    jobs: tuple[str, ...]
    verdicts: tuple[str, ...]
    best: str
    answered_twice: int
    losses: tuple[str, ...]
    killed: tuple[tuple[str, float], ...]
    seconds: float
    phase_s: Mapping[str, float]


async def search(home: Path, murderer: Murderer) -> Story:
    """One search on a cluster of its own."""
    began_s = time.monotonic()
    (home / "rows.py").write_text(FILE, encoding="utf-8")
    cluster = Cluster(Ground(kinds=("cpu",), cpus=WORKERS), home / "scratch")
    executor = RayExecutor(cluster, "cpu", rules=RULES)
    murderer.watch(cluster)
    try:
        summary = await start_search(
            home / "rows.py", TracePolicy(), "cpu", PROFILE, home=home, executor=executor,
            choice=ExecutorChoice(name="ray", kind="cpu", cpus=WORKERS), fresh=True,
            make_agents=lambda around: agents(),
        )  # fmt: skip
        rows, losses = executor.results.rows(), executor.results.losses()
        answers = [executor.results.get(row.job) for row in rows]
    finally:
        await executor.aclose()
    assert isinstance(summary, Summary), summary
    kinds = {row.job: row.kind for row in rows}
    judged = [item.evaluation for item in answers if item is not None and item.evaluation]
    efforts = [kinds[item.job] for item in answers if item is not None and item.evaluation]
    return Story(
        jobs=tuple(sorted(f"{row.kind} {row.candidate}" for row in rows)),
        verdicts=tuple(
            sorted(
                f"{effort} {item.candidate}: {item.verdict.value}"
                for effort, item in zip(efforts, judged, strict=True)
            )
        ),
        best=summary.best.candidate if summary.best else "",
        answered_twice=sum(times > 1 for times in murderer.answers.values()),
        losses=tuple(f"{kinds.get(item.job, '?')}: {item.words}"[:120] for item in losses),
        killed=tuple(murderer.killed),
        seconds=round(time.monotonic() - began_s, 1),
        phase_s={row.kind: round(row.seconds, 2) for row in rows},
    )


async def one(phases: tuple[str, ...], seed: int, typical_s: Mapping[str, float]) -> Story:
    """A search in a folder of its own, which loses a worker in each of these phases."""
    with tempfile.TemporaryDirectory(prefix="kernelwright-lost-") as folder:
        return await search(Path(folder), Murderer(phases, random.Random(seed), typical_s))


def differences(left_alone: Story, story: Story) -> list[str]:
    """What a search that lost workers did otherwise; nothing, that is."""
    found = []
    if story.jobs != left_alone.jobs:
        found.append(f"other jobs: {set(story.jobs) ^ set(left_alone.jobs)}")
    if story.verdicts != left_alone.verdicts:
        found.append(f"other verdicts: {set(story.verdicts) ^ set(left_alone.verdicts)}")
    if story.best != left_alone.best:
        found.append("another best candidate")
    if story.answered_twice:
        found.append(f"{story.answered_twice} jobs were answered twice")
    if left := offspring():
        found.append(f"left running: {left}")
    return found


def main() -> None:
    """Run them, and write what came of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    os.environ["TORCH_COMPILE_DISABLE"] = "1"
    with tempfile.TemporaryDirectory(prefix="kernelwright-lost-home-") as home:
        os.environ.setdefault("KERNELWRIGHT_HOME", home)
        left_alone = asyncio.run(one((), 0, {}))
        print("left alone:", left_alone, flush=True)
        lines, wrong = [], 0
        for number in range(asked.times):
            story = asyncio.run(one(PHASES, number, left_alone.phase_s))
            found = differences(left_alone, story)
            wrong += bool(found)
            print(number, story.seconds, "s", story.killed, story.losses, found, flush=True)
            lines.append(
                {
                    "seed": number, "seconds": story.seconds, "killed": story.killed,
                    "losses": story.losses, "differences": found,
                }
            )  # fmt: skip
            if asked.out:
                told = {
                    "workers": WORKERS, "phases": PHASES, "left_alone_s": left_alone.seconds,
                    "jobs": left_alone.jobs, "verdicts": left_alone.verdicts,
                    "runs": lines, "runs_that_differ": wrong,
                }  # fmt: skip
                asked.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
