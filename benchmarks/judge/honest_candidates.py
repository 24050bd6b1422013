"""Candidates that are known to be honest: the suite's twins, the playbook's own, foreign files.

Foreign ones are the files of `tasks/foreign`, in the forms that others publish.
"""

import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.cpp import CppEmitter
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.library.assemble import assemble
from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.foreign.intake import RECORDS, read_foreign
from kernelwright.tools.evaluate.messages import Foreign
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.selftest.catalogue import base, cases, twin_of
from kernelwright.tools.types import Candidate, Refusal, Task, TracePolicy

EXAMPLES = Path(__file__).parents[2] / "examples"
FOREIGN = Path(__file__).parents[1] / "tasks" / "foreign"
Pairs = list[tuple[Task, Candidate | Foreign]]


async def twins(executor: LocalExecutor, device: str) -> AsyncIterator[tuple[Task, Candidate]]:
    """The suite's honest twins, each with its task."""
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
    """Every honest candidate of ours: the twins, and the playbook's for these examples."""
    found: Pairs = [pair async for pair in twins(executor, hardware.kind)]
    for name in examples:
        source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
        task = await traced(executor, source, name, hardware.kind)
        found += [(task, made) for made in playbook(task, hardware)]
    # Task by task, as a worker keeps the reference of the last one only.
    return sorted(found, key=lambda pair: pair[0].name + pair[0].source_sha256)
