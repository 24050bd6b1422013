"""How often an honest candidate is rejected: the same candidates judged again and again.

Candidates are the suite's honest twins and the playbook's own for some of the examples, or with
`--foreign` files in the forms that others publish (`tasks/foreign`: plain torch, a function of
autograd, a script, extensions by `load_inline` and `load`, a pair, a record), each timed beside
eager in guests of its own. Every check has fresh seeds, so fresh inputs, weights and timed values.
The result is the share that was rejected, with each rejection's reason, and of foreign files how
many were right but could not be timed.

    python benchmarks/false_rejects.py --target cpu --checks 500 --out false_rejects.json
    python benchmarks/false_rejects.py --target cpu --foreign --checks 60 --out foreign.json
"""

import argparse
import asyncio
import os
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
from tools.evaluate.foreign.intake import RECORDS, read_foreign
from tools.evaluate.foreign.request import Foreign
from tools.evaluate.local import LocalExecutor
from tools.evaluate.rules import Rules
from tools.nouns import Candidate, Evaluation, Refusal, Task, TracePolicy, Value, Verdict
from tools.selftest.catalogue import base, cases, twin_of
from tools.selftest.suite import RULES

EXAMPLES = Path(__file__).parent.parent / "examples"
FOREIGN = Path(__file__).parent / "tasks" / "foreign"
Pairs = list[tuple[Task, Candidate | Foreign]]


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
    untimed: int = 0  # foreign ones that are right, without a time
    why_untimed: tuple[str, ...] = ()
    loads: tuple[float, ...] = ()  # of the machine's last minute, before every check


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


async def foreign_files(executor: LocalExecutor, device: str, without: str) -> Pairs:
    """Every honest file of the folder, in the form in which it lies there, but for some."""
    found: Pairs = []
    for reference in sorted(FOREIGN.glob("*/ref.py")):
        source, folder = reference.read_text(encoding="utf-8"), reference.parent
        task = await traced(executor, source, folder.name, device)
        forms = [p for p in sorted(folder.iterdir()) if p.suffix in (".py", *RECORDS)]
        for form in forms:
            if form.name == "ref.py" or (without and without in form.name):
                continue
            made = read_foreign(folder if form.name == "src.py" else form, source)
            if isinstance(made, Refusal):
                raise SystemExit(f"{form}: {made.sentence}")
            if device == "cuda" and "cpp_extension" in made.source:
                continue  # these extensions read the host's memory
            name = f"{folder.name}/{made.name}"
            found.append((task, made.model_copy(update={"name": name})))
    return found


async def own(executor: LocalExecutor, hardware: Hardware, examples: Sequence[str]) -> Pairs:
    """Every honest candidate of ours."""
    found: Pairs = [pair async for pair in pairs(executor, hardware.kind)]
    for name in examples:
        source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        task = await traced(executor, source, name, hardware.kind)
        found += [(task, made) for made in playbook(task, hardware)]
    # Task by task, as a worker keeps the reference of the last one only.
    return sorted(found, key=lambda pair: pair[0].name + pair[0].source_sha256)


async def judged(executor: LocalExecutor, task: Task, made: Candidate | Foreign) -> Evaluation:
    """One check; foreign code is timed as well, which is where clocks could accuse it."""
    if isinstance(made, Foreign):
        return await executor.check_foreign(task, made, against=("eager",))
    return await executor.evaluate(task, made, "screen")


def called(made: Candidate | Foreign) -> str:
    """What a candidate goes by in the result."""
    return made.name if isinstance(made, Foreign) else made.id


async def run(options: argparse.Namespace, rules: Rules) -> Result:
    """Judge round and round until there were enough checks; what is known by then is kept."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="false-rejects-") as scratch:
        executor = LocalExecutor.create(
            options.target, Path(scratch), seed=int(time.time()), rules=rules
        )
        try:
            hardware = await executor.hardware()
            honest = (
                await foreign_files(executor, hardware.kind, without=options.without)
                if options.foreign
                else await own(executor, hardware, options.examples)
            )
            result = Result(
                device=hardware.name,
                date=datetime.now(UTC).date().isoformat(),
                seconds=0.0,
                checks=0,
                candidates=len(honest),
                rejected=0,
                share=0.0,
                rejections=(),
            )
            for number, index in enumerate(order(len(honest), options.checks, options.foreign)):
                task, made = honest[index]
                load = round(os.getloadavg()[0], 1)
                found = await judged(executor, task, made)
                result = counted(result, task, made, found, load)
                result = result.model_copy(update={"seconds": time.monotonic() - start})
                options.out.write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
                if number % (5 if options.foreign else 25) == 0:
                    print(f"{number} of {options.checks}, {result.rejected} rejected", flush=True)
        finally:
            await executor.aclose()
    return result


def order(candidates: int, checks: int, foreign: bool) -> list[int]:
    """Which candidate when: ours one after the other, as a worker keeps the last task's reference.

    Foreign ones take long and may be stopped, so they come in turns.
    """
    rounds = -(-checks // candidates)
    turns = list(islice(cycle(range(candidates)), rounds * candidates))
    return (turns if foreign else sorted(turns))[:checks]


def counted(
    result: Result, task: Task, made: Candidate | Foreign, found: Evaluation, load: float
) -> Result:
    """The result with one more check."""
    rejections, untimed = result.rejections, result.why_untimed
    if found.verdict is not Verdict.CORRECT:
        rejections += (rejection(task, made, found),)
        print(f"rejected: {rejections[-1]}", flush=True)
    elif isinstance(made, Foreign) and not found.comparisons:
        untimed += (f"{made.name}: {' '.join(found.verification.not_verified)}",)
        print(f"not timed: {untimed[-1]}", flush=True)
    checks = result.checks + 1
    update = {
        "checks": checks,
        "rejected": len(rejections),
        "share": len(rejections) / checks,
        "rejections": rejections,
        "untimed": len(untimed),
        "why_untimed": untimed,
        "loads": (*result.loads, load) if isinstance(made, Foreign) else (),
    }
    return result.model_copy(update=update)


def rejection(task: Task, made: Candidate | Foreign, found: Evaluation) -> Rejection:
    """A verdict other than correct, as it stands in the result."""
    return Rejection(
        task=task.path.rsplit("/", 1)[-1],
        candidate=called(made),
        verdict=found.verdict.value,
        reason=found.verification.reason,
    )


def main() -> None:
    """Read the options and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="auto")
    parser.add_argument("--checks", type=int, default=500)
    parser.add_argument("--examples", nargs="*", default=[])
    parser.add_argument("--foreign", action="store_true", help="published forms instead of ours")
    parser.add_argument("--without", default="", help="leaves out files with this in their name")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    result = asyncio.run(run(options, RULES))
    print(f"{result.rejected} of {result.checks} rejected ({100 * result.share:.2g} %)")


if __name__ == "__main__":
    main()
