"""Modules of our own as problems, with the playbook's answers, before anybody has judged them.

A module is exported on one core, which takes longer than a GPU takes to judge its answers. So other
processes do it where that disturbs no times: each is told its modules as lines of JSON and says a
line for each. They leave the device alone, and end with whoever started them.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Sequence

from kernelwright.tools.learning.contract.launches import interface
from kernelwright.tools.learning.data.records import Problem
from kernelwright.tools.learning.writing.answers import WrittenAnswer, written_answers
from kernelwright.tools.learning.writing.families import Module
from kernelwright.tools.memory import key_of
from kernelwright.tools.runtime import give_way, python_path
from kernelwright.tools.types import LanguageName, Refusal, TracePolicy, Value

# Where our modules are said to lie. It holds nothing: the folder of a task's file is searched for
# what it imports, and these import torch alone.
NOWHERE = "/kernelwright-written"
_PROCESSES = 8
_LONGEST_LINE_BYTES = 1 << 26


class Draft(Value):
    """A module as a problem, with different answers to it, () where the playbook has none."""

    problem: Problem
    answers: tuple[WrittenAnswer, ...] = ()


class Drafting(Value):
    """What a process is to draft; `problem_of` and `written_answers` say what the figures mean."""

    modules: tuple[Module, ...]
    language: LanguageName
    count: int
    seed: int


class _Drafted(Value):
    """One line of a process that drafts."""

    draft: Draft | None


def processes_beside() -> int:
    """How many processes can draft beside a judge on a GPU; 0 where there are too few cores."""
    found = min(_PROCESSES, (os.cpu_count() or 1) // 2)
    return found if found > 1 else 0


def problem_of(module: Module) -> Problem | None:
    """A module as a problem; None for one that is no task of the short contract."""
    from kernelwright.tools.tasks import trace

    task = trace(module.source, f"{NOWHERE}/{module.name}.py", TracePolicy())
    if isinstance(task, Refusal) or any(badge.proves_little for badge in task.badges):
        return None
    key, names = key_of(task), interface(task)
    if key is None or names is None:
        return None
    return Problem(name=module.name, key=key.exact, family=module.family, task=task)


def drafted(module: Module, asked: Drafting) -> Draft | None:
    """A module with its answers; None for one that is no problem."""
    problem = problem_of(module)
    names = None if problem is None else interface(problem.task)
    if problem is None or names is None:
        return None
    if not asked.count:
        return Draft(problem=problem)
    answers = written_answers(
        problem.task, names, asked.language, count=asked.count, seed=asked.seed
    )
    return Draft(problem=problem, answers=answers)


async def drafts(asked: Drafting, processes: int = 0) -> AsyncGenerator[Draft, None]:
    """The drafts of all modules that are problems, in their order.

    Args:
        asked: The modules, and what is to be written.
        processes: How many draft side by side; 0 drafts in this process.
    """
    if not processes:
        for module in asked.modules:
            if (draft := drafted(module, asked)) is not None:
                yield draft
        return
    shares = [asked.modules[first::processes] for first in range(processes)]
    begun = [await _begun(asked.model_copy(update={"modules": share})) for share in shares if share]
    try:
        for place in range(len(asked.modules)):
            if (draft := await _next(begun[place % processes])) is not None:
                yield draft
    finally:
        for process in begun:
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*(process.wait() for process in begun))


async def problems_of(modules: Sequence[Module], seed: int) -> list[Problem]:
    """The modules that are problems, without answers, in their order."""
    # No answer is drafted, so that the language does not matter.
    asked = Drafting(modules=tuple(modules), language="cuda", count=0, seed=seed)
    return [draft.problem async for draft in drafts(asked, processes_beside())]


async def _begun(asked: Drafting) -> asyncio.subprocess.Process:
    """A process that drafts its share; nobody's Ctrl-C but ours ends it."""
    quiet = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", __name__,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **quiet, "PYTHONPATH": python_path(os.environ.get("PYTHONPATH", ""))},
        limit=_LONGEST_LINE_BYTES,
        start_new_session=True,
    )  # fmt: skip
    give_way(process.pid)
    assert process.stdin is not None
    process.stdin.write(asked.model_dump_json().encode() + b"\n")
    process.stdin.close()  # what was written is sent before
    return process


async def _next(process: asyncio.subprocess.Process) -> Draft | None:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise RuntimeError(f"a process that drafts ended with {await process.wait()}")
    return _Drafted.model_validate_json(line).draft


def main() -> None:
    """Draft what standard input asks for."""
    asked = Drafting.model_validate_json(sys.stdin.buffer.readline())
    said, sys.stdout = sys.stdout, sys.stderr  # a module may print
    for module in asked.modules:
        said.write(_Drafted(draft=drafted(module, asked)).model_dump_json() + "\n")
        said.flush()


if __name__ == "__main__":
    main()
