"""How often an honest candidate is rejected: the same candidates judged again and again.

Candidates are the suite's honest twins and the playbook's own for some of the examples; every
check has fresh seeds, so fresh inputs, weights and timed values. The result is the share that
was rejected, with each rejection's reason.

    python benchmarks/false_rejects.py --target cpu --checks 500 --out false_rejects.json
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path

from agents.playbook.assemble import assemble
from agents.playbook.cpp import CppEmitter
from agents.playbook.cuda import CudaEmitter
from agents.playbook.lower import lower
from profiles.load import Hardware
from tools.candidates import new_candidate
from tools.evaluate.local import LocalExecutor
from tools.evaluate.rules import Rules
from tools.nouns import Candidate, Refusal, Task, TracePolicy, Value, Verdict
from tools.selftest.catalogue import base, cases, twin_of
from tools.selftest.suite import RULES

EXAMPLES = Path(__file__).parent.parent / "examples"


class Rejection(Value):
    """One honest candidate that was turned away."""

    task: str
    candidate: str
    verdict: str
    reason: str


class Result(Value):
    """What the script writes."""

    device: str
    date: str
    seconds: float
    checks: int
    candidates: int
    rejected: int
    share: float
    rejections: tuple[Rejection, ...]


async def pairs(executor: LocalExecutor, device: str) -> AsyncIterator[tuple[Task, Candidate]]:
    """Every honest candidate with its task."""
    seen: set[str] = set()
    tasks: dict[str, Task] = {}
    for _, case in cases("cuda" if device == "cuda" else "cpu"):
        made = twin_of(case, "cuda" if device == "cuda" else "cpu")
        if not isinstance(made, Candidate) or made.id in seen:
            continue
        seen.add(made.id)
        name = case.twin_base or case.base
        if name not in tasks:
            tasks[name] = await traced(executor, base(name).task, name, device)
        yield tasks[name], made


async def traced(executor: LocalExecutor, source: str, name: str, device: str) -> Task:
    """A text as a task."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.py"
        path.write_text(source, encoding="utf-8")
        policy = TracePolicy(device="cuda" if device == "cuda" else "cpu")
        task = await executor.trace(path, policy)
    if isinstance(task, Refusal):
        raise SystemExit(f"{name}: {task.sentence}")
    return task


def playbook(task: Task, hardware: Hardware) -> list[Candidate]:
    """The playbook's own candidates for the loop that takes longest, one a strategy."""
    emitter = CudaEmitter() if hardware.kind == "cuda" else CppEmitter()
    program = lower(task.graph)
    loops = [step for step in program.steps if hasattr(step, "domain")] or program.loops
    loop = loops[0]
    made = []
    for strategy in emitter.strategies(loop, hardware):
        drawn = assemble(program, emitter, {loop.name: strategy}, hardware)
        made.append(new_candidate(emitter.language, drawn.kernel, drawn.plan, note=strategy.name))
    return made


async def run(target: str, checks: int, names: Sequence[str], rules: Rules) -> Result:
    """Judge round and round until there were enough checks."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="false-rejects-") as scratch:
        executor = LocalExecutor.create(target, Path(scratch), seed=int(time.time()), rules=rules)
        try:
            hardware = await executor.hardware()
            honest = [pair async for pair in pairs(executor, hardware.kind)]
            for name in names:
                source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
                task = await traced(executor, source, name, hardware.kind)
                honest += [(task, made) for made in playbook(task, hardware)]
            # Task by task, as a worker keeps the reference of the last one only.
            honest.sort(key=lambda pair: pair[0].name + pair[0].source_sha256)
            rounds = -(-checks // len(honest))
            order = sorted(islice(cycle(range(len(honest))), rounds * len(honest)))[:checks]
            rejections: list[Rejection] = []
            for number, index in enumerate(order):
                task, made = honest[index]
                found = await executor.evaluate(task, made, "screen")
                if found.verdict is not Verdict.CORRECT:
                    words = found.verification.reason
                    rejections.append(
                        Rejection(
                            task=task.path.rsplit("/", 1)[-1],
                            candidate=made.id,
                            verdict=found.verdict.value,
                            reason=words,
                        )
                    )
                    print(f"rejected: {task.path} {made.note}: {words}", flush=True)
                if number % 25 == 0:
                    print(f"{number} of {checks}, {len(rejections)} rejected", flush=True)
        finally:
            await executor.aclose()
    return Result(
        device=hardware.name,
        date=datetime.now(UTC).date().isoformat(),
        seconds=time.monotonic() - start,
        checks=len(order),
        candidates=len(honest),
        rejected=len(rejections),
        share=len(rejections) / len(order),
        rejections=tuple(rejections),
    )


def main() -> None:
    """Read the options and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="auto")
    parser.add_argument("--checks", type=int, default=500)
    parser.add_argument("--examples", nargs="*", default=[])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    result = asyncio.run(run(options.target, options.checks, options.examples, RULES))
    options.out.write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
    print(f"{result.rejected} of {result.checks} rejected ({100 * result.share:.2g} %)")


if __name__ == "__main__":
    main()
