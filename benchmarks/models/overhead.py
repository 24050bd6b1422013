"""What our own code costs per question to a model, with a thousand candidates in the archive.

The real graph, minds, archive and checkpoints go on for a few rounds after a run of that size;
the model and the judge answer at once, so whatever time passes is ours. Of every role's question:
writing the prompt, reading the answer; of every step of the graph: its whole time, the archive and
the checkpoint included, and that time by the questions that were asked in it.
Medians over the rounds; `first_ms` is the first round's, in which a session reads what is there.
What is not covered: the network, the tokenizer of a server, the compiler and the device.

    python benchmarks/models/overhead.py --out benchmarks/results/cpu/overhead.json
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "models")]

from instant import InstantClient, InstantExecutor, TimedSaver, minds_of
from thousand import IDEAS_A_ROUND, TUNED_A_ROUND, Thousand

from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.session import build_search
from kernelwright.graphs.search.state import START_STATE
from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.archive import Archive
from kernelwright.tools.codegen.library.kernel_library import repertoire_for
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.hardware import floor_ms
from kernelwright.tools.types import Refusal, Task, TracePolicy

BOUND_MS = 50.0


async def traced(path: Path) -> Task:
    """The task, traced as in any run."""
    executor = LocalExecutor.create("cpu", Path(tempfile.mkdtemp()))
    try:
        task = await executor.trace(path, TracePolicy())
    finally:
        await executor.aclose()
    if isinstance(task, Refusal):
        raise SystemExit(task.sentence)
    return task


async def go_on(
    archive: Archive, task: Task, hardware: Hardware, crowd: Thousand, rounds: int
) -> dict:
    """Some more rounds; the times of each step and of each question in milliseconds."""
    client = InstantClient(crowd.repertoire)
    context = SearchContext(
        archive=archive, executor=InstantExecutor(crowd), task=task, hardware=hardware,
        make_agents=lambda around: minds_of(around, client, crowd.repertoire),
        profile=archive.record().profile.model_copy(update={
            "ideas_per_round": IDEAS_A_ROUND, "patience": 10_000, "tuning_trials": TUNED_A_ROUND,
        }),
        floor_ms=floor_ms(task.bytes_moved, task.flops, hardware),
    )  # fmt: skip
    best = archive.best()
    last = max(item.round for item in archive.candidates())
    state = START_STATE | {
        "round": last, "best": best.candidate.id, "best_ms": best.evaluation.median_ms,
        "parents": [best.candidate.id],
    }  # fmt: skip
    config = {"configurable": {"thread_id": archive.id}, "recursion_limit": 10_000}
    steps = defaultdict(list)
    questions = []
    async with TimedSaver.from_conn_string(str(archive.folder / "checkpoints.db")) as saver:
        graph = build_search(saver)
        await graph.aupdate_state(config, state, as_node="select")
        saver.spent_s.clear()
        watch, names = Watch(client), []
        stream = graph.astream(
            None,
            config,
            context=context,
            durability="sync",
            stream_mode=["updates", "checkpoints"],
        )
        async for mode, chunk in stream:
            if mode == "updates":
                names += [name for name in chunk if not name.startswith("__")]
            elif names:
                steps[names[0]].append(watch.step())
                if names[0] == "select" and chunk["values"]["round"] >= last + rounds:
                    break
                names = []
        await stream.aclose()
        saved = saver.spent_s
        questions = client.asked
    return {
        "steps": {name: _step(found) for name, found in steps.items()},
        "questions": _questions(questions),
        "checkpoint": {
            "median_ms": 1e3 * median(saved),
            "bytes": (archive.folder / "checkpoints.db").stat().st_size,
        },
        "per_question_ms": sum(step.ms for of in steps.values() for step in of) / len(questions),
    }


@dataclass(frozen=True)
class Step:
    """One step of the graph: milliseconds of the clock and of the processor, and questions."""

    ms: float
    cpu_ms: float
    questions: int


class Watch:
    """Measures step after step."""

    def __init__(self, client: InstantClient) -> None:
        self._client = client
        self._now = self._read()

    def step(self) -> Step:
        """What passed since the last one."""
        before, self._now = self._now, self._read()
        at_s, cpu_s, questions = (new - old for new, old in zip(self._now, before, strict=True))
        return Step(1e3 * at_s, 1e3 * cpu_s, questions)

    def _read(self) -> tuple[float, float, int]:
        return time.perf_counter(), time.process_time(), len(self._client.asked)


def _step(found: list[Step]) -> dict:
    asking = [step for step in found if step.questions]
    return {
        "first_ms": found[0].ms,
        "median_ms": median(step.ms for step in found),
        "median_cpu_ms": median(step.cpu_ms for step in found),
        "questions": sum(step.questions for step in asking) / len(found),
        "per_question_ms": median(s.ms / s.questions for s in asking) if asking else None,
        "per_question_cpu_ms": median(s.cpu_ms / s.questions for s in asking) if asking else None,
    }


def _questions(asked: list) -> dict:
    by_role = defaultdict(list)
    for item in asked:
        by_role[item.role].append(item)
    return {
        role: {
            "count": len(of),
            "prompt_characters": round(mean(item.characters for item in of)),
            "writing_the_prompt_ms": median(1e3 * item.prompt_s for item in of),
            "reading_the_answer_ms": median(1e3 * item.parse_s for item in of),
        }
        for role, of in by_role.items()
    }


def main() -> int:
    """Measure, print, write; 1 where a question costs more than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hardware", default="H200")
    parser.add_argument("--example", default="examples/softmax.py")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["KERNELWRIGHT_HOME"] = home
        hardware = hardware_profile(arguments.hardware)
        task = asyncio.run(traced(ROOT / arguments.example))
        crowd = Thousand(task, hardware, repertoire_for(task, hardware), random.Random(1))
        archive = crowd.write(Path(home), arguments.candidates)
        archive.claim()
        before = {"candidates": len(archive.candidates()), "ideas": len(archive.ideas()),
                  "calls": len(archive.calls())}  # fmt: skip
        found = before | asyncio.run(go_on(archive, task, hardware, crowd, arguments.rounds))
        found["archive_bytes"] = (archive.folder / "run.db").stat().st_size
        archive.close()
    found["load_average"] = os.getloadavg()[0]
    print(json.dumps(found, indent=1))
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    dearest = max(step["per_question_ms"] or 0.0 for step in found["steps"].values())
    print(f"the dearest question costs {dearest:.1f} ms of our own; the bound is {BOUND_MS:g} ms")
    return 0 if dearest < BOUND_MS else 1


if __name__ == "__main__":
    sys.exit(main())
