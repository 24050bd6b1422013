"""A search without a device: a repertoire, and an executor whose times are a formula.

Run by `runpy` with `ARGUMENTS` it is a search in a process of its own, to be killed: home, log and
the run to resume, if any. Every evaluation is written to the log when it begins.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernelwright.agents.coder.coder import PlaybookCoder
from kernelwright.agents.critic.critic import PlaybookCritic
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.agents.profiler.profiler import PlaybookProfiler
from kernelwright.agents.roles import AgentSet
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.profiles.load import Hardware, SearchProfile
from kernelwright.tools.codegen.ir import Strategy
from kernelwright.tools.codegen.library.kernel_library import LibraryDraft, Option
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import (
    Baseline,
    Baselines,
    Candidate,
    Comparison,
    Conditions,
    DType,
    Effort,
    Evaluation,
    Graph,
    InputSpec,
    KernelTime,
    LanguageName,
    Measurement,
    Profile,
    Refusal,
    Task,
    TensorSpec,
    TracePolicy,
    Verdict,
    Verification,
)

CONDITIONS = Conditions(device="toy", l2_flushed=False, input_sets=1)
SPEC = TensorSpec(shape=(1024, 1024), dtype=DType.FLOAT32)
TASK = Task(
    name="toy", path="toy.py", source="", source_sha256="0", entry="Model",
    entry_kind="kernelbench", inputs=(InputSpec(name="x", tensor=SPEC),), outputs=(SPEC,),
    graph=Graph(nodes=(), inputs=(), outputs=()), bytes_moved=8_000_000, flops=1_000_000,
)  # fmt: skip
HARDWARE = Hardware(
    name="Toy", kind="cpu", source="test", cores=2, cache_mib=8, memory_gib=8,
    bandwidth_gb_s=20, fp32_tflops=0.1,
)  # fmt: skip
PROFILE = SearchProfile(
    name="tiny", rounds=3, ideas_per_round=2, candidates_per_idea=2, repairs=1, patience=3,
    seconds=600, tuning_trials=3, finalists=2, stop_at_floor_fraction=0.999, minimum_gain=1.01,
)  # fmt: skip
KERNEL = """// tune: THREADS in 64, 128, 256
// tune: VECTOR in 1, 2, 4
extern "C" void run(const float* x, float* y) {{ /* {what} */ }}
"""
PLAN = "def forward(x):\n    y = empty_like(x)\n    launch('run', args=(x, y))\n    return y\n"
# Strategy -> memory label, predicted ms, true ms.
LOOPS: Mapping[str, Mapping[str, tuple[str, float, float]]] = {
    "rows": {
        "twice": ("streams", 2.0, 2.4),
        "once": ("on chip", 1.0, 1.6),
        "tiled": ("cache", 1.5, 1.2),
    },
    "tail": {"flat": ("streams", 0.2, 0.3), "wide": ("streams", 0.3, 0.2)},
}


@dataclass(frozen=True)
class ToyRepertoire:
    loops: Mapping[str, Mapping[str, tuple[str, float, float]]]
    language: LanguageName = "cpp"
    fixed_ms: float = 0.0

    def options(self) -> tuple[Option, ...]:
        return tuple(
            Option(loop=loop, family="toy", strategy=_strategy(name, of[0]), predicted_ms=of[1])
            for loop, names in self.loops.items()
            for name, of in names.items()
        )

    def draft(self, choices: Mapping[str, str]) -> LibraryDraft:
        named = tuple(f"{loop}={choices[loop]}" for loop in sorted(self.loops))
        memory = self.loops["rows"][choices["rows"]][0]
        kernel = KERNEL.format(what=", ".join(named))
        return LibraryDraft(kernel=kernel, plan=PLAN, strategies=(*named, f"memory={memory}"))


def _strategy(name: str, memory: str) -> Strategy:
    return Strategy(
        name=name, title=f"The {name} way", mechanism=f"does {name}", reason="a reason",
        category="memory", metric="ms", memory=memory, compute="plain", parallel="rows",
    )  # fmt: skip


def toy_agents(loops: Mapping[str, Mapping[str, tuple[str, float, float]]]) -> AgentSet:
    repertoire = ToyRepertoire(loops)
    return AgentSet.of_search(
        planner=PlaybookPlanner(repertoire),
        coder=PlaybookCoder(repertoire),
        profiler=PlaybookProfiler(),
        critic=PlaybookCritic(),
    )


@dataclass
class Hold:
    """Holds a search before that many questions to the device, until it is freed.

    Of events between threads, as a server's searches run in one of their own.
    """

    at: int
    reached: threading.Event = field(default_factory=threading.Event)
    free: threading.Event = field(default_factory=threading.Event)


@dataclass
class ToyExecutor(Executor):
    """Times are a formula of strategies and settings; `wrong` says who fails at which effort.

    A time at some effort may be `off` by a factor.
    """

    loops: Mapping[str, Mapping[str, tuple[str, float, float]]] = field(
        default_factory=lambda: LOOPS
    )
    eager_ms: float = 2.5
    compile_ms: float | None = 2.0
    pause_s: float = 0.0
    takes: Callable[[str], None] = lambda what: None
    wrong: Callable[[Candidate, Effort], Verdict | None] = lambda candidate, effort: None
    off: Callable[[Candidate, Effort], float] = lambda candidate, effort: 1.0
    log: Path | None = None
    asked: list[tuple[str, Effort]] = field(default_factory=list)
    profiled: list[str] = field(default_factory=list)
    profiling_s: float = 0.0
    isolation: str = "toy"
    closed: bool = False
    hold: Hold | None = None
    remembered: Baselines | None = None
    rules: Rules | None = None

    async def hardware(self) -> Hardware:
        return HARDWARE

    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        return TASK

    async def baselines(self, task: Task, *, eager_only: bool = False) -> Baselines | Refusal:
        known = self.remembered.items if self.remembered else ()
        for name, ms in (("eager", self.eager_ms), ("compile", self.compile_ms)):
            if (eager_only and name != "eager") or name in {item.name for item in known}:
                continue
            await self._take(name, "screen")
            failure = "" if ms else "no C++ compiler"
            known += (
                Baseline(name=name, measurement=_measured(ms) if ms else None, failure=failure),
            )
        self.remembered = Baselines(items=known)
        return self.remembered

    def remember(self, task: Task, baselines: Baselines) -> None:
        self.remembered = baselines

    async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
        await self._take(candidate.id, effort)
        verdict = self.wrong(candidate, effort)
        if verdict is not None:
            found = Verification(verdict=verdict, reason="the toy says so")
            return Evaluation(candidate=candidate.id, verification=found)
        ms = self.cost(candidate) * self.off(candidate, effort)
        return Evaluation(
            candidate=candidate.id,
            verification=Verification(verdict=Verdict.CORRECT, reason="", error_ratio=1.0),
            screen=_measured(ms),
            comparisons=() if effort == "screen" else self._comparisons(ms),
        )

    async def profile(self, task: Task, candidate: Candidate) -> Profile:
        time = KernelTime(
            kernel="run", clock="wall", own=True, time_ms=self.cost(candidate), share=1.0,
            launches=1,
        )  # fmt: skip
        self.profiled.append(candidate.id)
        return Profile(candidate=candidate.id, times=(time,), seconds=self.profiling_s)

    async def aclose(self) -> None:
        self.closed = True

    def cost(self, candidate: Candidate) -> float:
        words = dict(text.split("=") for text in candidate.strategies)
        settings = {setting.name: setting.value for setting in candidate.settings}
        base = sum(of[words[loop]][2] for loop, of in self.loops.items())
        off = abs(settings["THREADS"] - 128) / 640 + (4 - settings["VECTOR"]) / 20
        return float(base * (1.0 + off))

    def _comparisons(self, ms: float) -> tuple[Comparison, ...]:
        baselines = {"eager": self.eager_ms, "compile": self.compile_ms}
        return tuple(
            Comparison(
                baseline=name, candidate_ms=ms, baseline_ms=base, ratio=base / ms,
                ci95_low=0.99 * base / ms, ci95_high=1.01 * base / ms, pairs=9,
                candidate_samples_ms=(ms,), baseline_samples_ms=(base,), conditions=CONDITIONS,
            )
            for name, base in baselines.items()
            if base
        )  # fmt: skip

    async def _take(self, what: str, effort: Effort) -> None:
        self.asked.append((what, effort))
        if self.log is not None:
            with self.log.open("a") as log:
                log.write(f"{what} {effort}\n")
                log.flush()
                os.fsync(log.fileno())
        self.takes(what)
        await asyncio.sleep(self.pause_s)
        if self.hold is not None and len(self.asked) >= self.hold.at:
            self.hold.reached.set()
            while not self.hold.free.is_set():  # noqa: ASYNC110 - it belongs to another thread
                await asyncio.sleep(0.01)


def _measured(ms: float) -> Measurement:
    return Measurement(median_ms=ms, p10_ms=ms, p90_ms=ms, samples_ms=(ms,), conditions=CONDITIONS)


async def main(home: Path, log: Path, run: str | None) -> None:
    executor = ToyExecutor(pause_s=0.01, log=log)
    if run is None:
        await start_search(
            Path("toy.py"), TracePolicy(), "cpu", PROFILE, home=home, executor=executor,
            make_agents=lambda around: toy_agents(LOOPS),
        )  # fmt: skip
    else:
        await resume_search(
            run, home=home, executor=executor,
            make_agents=lambda around: toy_agents(LOOPS),
        )  # fmt: skip


if __name__ == "__main__":
    home, log, *run = globals()["ARGUMENTS"]
    asyncio.run(main(Path(home), Path(log), run[0] if run else None))
