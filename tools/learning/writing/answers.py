"""The playbook's answers in the short contract: a task lowered, every loop printed plainly.

The lowering and its fusion are those of the playbook; only the printing is for small models. The
judge decides whether an answer is right, as for anybody else's.
"""

import random
import re
from collections.abc import Sequence

from kernelwright.tools.codegen.ir import Loop, PlanLine, Program
from kernelwright.tools.codegen.lower import Lowering, lower
from kernelwright.tools.learning.contract.launches import (
    Interface,
    Temporary,
    answer_text,
    interface,
    launch_comment,
    temporary_comment,
)
from kernelwright.tools.learning.contract.prompts import ANSWER_TOKENS, tokens
from kernelwright.tools.learning.data.records import Problem
from kernelwright.tools.learning.writing.dialects import UnwritableError
from kernelwright.tools.learning.writing.plain import PlainKernel, Way, plain_kernel, ways
from kernelwright.tools.learning.writing.sizes import Sizes
from kernelwright.tools.types import LanguageName, Task, Value

_SAME_ELEMENTS = re.compile(r"\w+\.(?:reshape|view)\([^a-zA-Z]*\)")


class WrittenAnswer(Value):
    """An answer of the playbook, and in which way its loops are spread."""

    answer: str
    way: str


def written_answers(
    task: Task, names: Interface, language: LanguageName, *, count: int, seed: int
) -> tuple[WrittenAnswer, ...]:
    """Up to so many different answers that fit the contract's size; () where there is none.

    Args:
        task: The traced task.
        names: What an answer may name.
        language: What it is written in.
        count: The most.
        seed: Of the choice among the ways.
    """
    program = lower(
        task.graph, tuple(item.name for item in names.inputs), lowering=Lowering(products=True)
    )
    try:
        loops, temporaries = _in_contract(program, names)
        known = max((ways(loop, language) for loop in loops), key=len)
        order = _in_turns(known, random.Random(seed))
        sizes = Sizes([item.tensor.shape for item in names.every])
        found = (_written(loops, temporaries, language, number, sizes) for number in order)
        fitting = (one for one in found if tokens(one.answer) <= ANSWER_TOKENS)
        return tuple({one.answer: one for one in fitting}.values())[:count]
    except UnwritableError:
        return ()


def _in_turns(known: Sequence[Way], draw: random.Random) -> list[int]:
    """The places of ways in random order, those of different groups in turns.

    A thread a row and a block a row differ in speed more than blocks of two sizes do, and data that
    is to say what is fast needs the slow as well.
    """
    order = draw.sample(range(len(known)), len(known))
    turn = {
        at: sum(known[other].group == known[at].group for other in order[:place])
        for place, at in enumerate(order)
    }
    return sorted(order, key=lambda at: turn[at])


def _in_contract(
    program: Program, names: Interface
) -> tuple[tuple[Loop, ...], tuple[Temporary, ...]]:
    """The loops over the contract's names; UnwritableError where more than loops is needed."""
    if any(isinstance(step, PlanLine) for step in program.steps) or not program.loops:
        raise UnwritableError("the library has a part in it")
    if any(not _SAME_ELEMENTS.fullmatch(view) for _, view in program.views):
        raise UnwritableError("what it returns is stored in another order")
    called = {item.name: item.name for item in names.inputs}
    weights = {item.target: item.name for item in names.weights}
    called |= {variable: weights[target] for variable, target in program.weights}
    returned = dict(zip(program.returns, (item.name for item in names.outputs), strict=True))
    if len(returned) < len(names.outputs) or set(returned) & set(called):
        raise UnwritableError("it returns what it was given, or something twice")
    called |= returned
    stored = {store.access.buffer for loop in program.loops for store in loop.stores}
    own = [buffer for buffer in program.buffers if buffer.name in stored - set(called)]
    temporaries = tuple(
        Temporary(name=f"t{number}", dtype=buffer.dtype, shape=buffer.shape or (1,))
        for number, buffer in enumerate(own)
    )
    called |= {old.name: new.name for old, new in zip(own, temporaries, strict=True)}
    return tuple(loop.on_buffers(called) for loop in program.loops), temporaries


def _written(
    loops: tuple[Loop, ...],
    temporaries: tuple[Temporary, ...],
    language: LanguageName,
    number: int,
    sizes: Sizes,
) -> WrittenAnswer:
    """The answer in which every loop takes its way of that number, as far as it has so many."""
    kernels: list[PlainKernel] = []
    chosen: list[str] = []
    for at, loop in enumerate(loops):
        known = ways(loop, language)
        way = known[number % len(known)]
        name = _kernel_name(loop, at, len(loops))
        kernels.append(plain_kernel(loop, way, name, language, sizes))
        chosen.append(way.name)
    head = [temporary_comment(item) for item in temporaries]
    head += [launch_comment(kernel.launch) for kernel in kernels]
    code = "\n".join([*head, *(kernel.source for kernel in kernels)])
    return WrittenAnswer(answer=answer_text(code, language), way=",".join(chosen))


def _kernel_name(loop: Loop, at: int, of: int) -> str:
    name = re.sub(r"\W+", "_", loop.family) or "kernel"
    return f"{name}_{at}" if of > 1 else f"{name}_kernel"


class PlaybookAnswerer:
    """The playbook as somebody who is asked: what its plain answers reach is what can be learnt.

    Args:
        language: What it writes.
    """

    name = "playbook"

    def __init__(self, language: LanguageName) -> None:
        self._language = language

    def answers(self, problems: Sequence[Problem], count: int, seed: int) -> list[list[str]]:
        """So many answers to each problem: its own in turns, or empty ones where it has none."""
        found = []
        for problem in problems:
            names = interface(problem.task)
            assert names is not None
            own = written_answers(problem.task, names, self._language, count=count, seed=seed)
            texts = [one.answer for one in own] or [""]
            found.append([texts[number % len(texts)] for number in range(count)])
        return found
