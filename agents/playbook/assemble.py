"""Prints a candidate: the kernel's text and the plan's text of a program under chosen strategies.

The emitter writes device code and the lines that launch it; everything between (weights,
allocations, library calls, views, returns, buffer updates) is written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agents.playbook.allocating import allocated_late
from agents.playbook.emitter import Emitter
from agents.playbook.ir import Buffer, Emitted, Loop, PlanLine, Program, Strategy
from agents.playbook.ir.predict import predict_ms
from agents.playbook.ir.rewrites import rewrite
from agents.playbook.sharing import on_other_buffers, shape_of, within_budget
from profiles.load import Hardware
from tools.nouns import Value


class Assembled(Value):
    """The two texts of a candidate."""

    kernel: str
    plan: str


def assemble(
    program: Program, emitter: Emitter, choices: Mapping[str, Strategy], hardware: Hardware
) -> Assembled:
    """Kernel and plan of a program.

    Args:
        program: what lowering made.
        emitter: of the language wanted.
        choices: a strategy for each loop by its name; a loop left out takes its first.
        hardware: the device it is written for.

    Raises:
        ValueError: a strategy does not fit its loop.
    """
    chosen = {
        loop.name: choices.get(loop.name) or emitter.strategies(loop, hardware)[0]
        for loop in program.loops
    }
    firsts = _firsts(program, chosen)
    emitted = {
        loop.name: _emitted(loop, emitter, chosen[loop.name], hardware)
        for loop in program.loops
        if firsts[loop.name] is loop
    }
    times = {loop.name: predict_ms(loop, chosen[loop.name], hardware) for loop in program.loops}
    order = tuple(sorted(emitted, key=lambda name: -times[name]))
    emitted = within_budget(emitted, order, emitter.header(), emitter.language)
    lines = {loop.name: _launches(loop, firsts[loop.name], emitted) for loop in program.loops}
    return Assembled(
        kernel=_kernel(program, emitter, emitted), plan="\n".join(_plan(program, lines)) + "\n"
    )


def returned(program: Program) -> tuple[str, ...]:
    """What the plan returns, one expression an output."""
    views = dict(program.views)
    return tuple(views.get(name, name) for name in program.returns)


def _firsts(program: Program, chosen: Mapping[str, Strategy]) -> dict[str, Loop]:
    """For every loop, the first one whose kernel it can use: itself, or an equal one."""
    known: dict[tuple[Loop, Strategy], Loop] = {}
    return {
        loop.name: known.setdefault((shape_of(loop), chosen[loop.name]), loop)
        for loop in program.loops
    }


def _launches(loop: Loop, first: Loop, emitted: Mapping[str, Emitted]) -> tuple[str, ...]:
    lines = emitted[first.name].plan
    return lines if first is loop else on_other_buffers(lines, first, loop)


def _emitted(loop: Loop, emitter: Emitter, strategy: Strategy, hardware: Hardware) -> Emitted:
    if strategy.rewrite:
        loop = rewrite(loop, strategy.rewrite)
    return emitter.emit(loop, strategy, f"{loop.name}_", hardware)


def _kernel(program: Program, emitter: Emitter, emitted: Mapping[str, Emitted]) -> str:
    if not emitted:
        return ""
    parts = [emitter.header().rstrip()]
    parts += [
        f"{described(loop)}\n{emitted[loop.name].source.strip()}"
        for loop in program.loops
        if loop.name in emitted
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def described(loop: Loop) -> str:
    """One comment line that tells a person what a loop does."""
    outer = " x ".join(str(axis.size) for axis in loop.outer) or "1"
    inner = " x ".join(str(axis.size) for axis in loop.inner)
    space = f"{outer} rows of {inner}" if inner else f"{outer} elements"
    reads = dict.fromkeys(stmt.access.buffer for stmt in loop.body if stmt.access is not None)
    writes = dict.fromkeys(store.access.buffer for store in loop.stores)
    steps = [stmt.reduce.value for stmt in loop.body if stmt.reduce is not None]
    steps += [f"running {stmt.scan}" for stmt in loop.body if stmt.scan is not None]
    how = f" by {', '.join(steps)}" if steps else ""
    return f"// {loop.name}: {loop.family} over {space}, {_names(reads)} -> {_names(writes)}{how}"


def _names(names: Mapping[str, None]) -> str:
    return ", ".join(names) or "nothing"


def _plan(program: Program, launches: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    yield f"def forward({', '.join(program.parameters)}):"
    for name, target in program.weights:
        yield f'    {name} = weights["{target}"]'
    made = {*program.parameters, *(name for name, _ in program.weights)}
    for step in program.steps:
        if isinstance(step, PlanLine):
            yield f"    {step.text}"
            made |= set(step.makes)
            continue
        stored = _first_stored(program, step, made)
        made |= {buffer.name for buffer in stored}
        for line in allocated_late([*map(_allocation, stored), *launches[step.name]]):
            yield f"    {line}"
    yield f"    return {_result(program)}"


def _first_stored(program: Program, loop: Loop, made: set[str]) -> list[Buffer]:
    names = dict.fromkeys(store.access.buffer for store in loop.stores)
    return [program.buffer(name) for name in names if name not in made]


def _allocation(buffer: Buffer) -> str:
    sizes = ", ".join(map(str, buffer.shape))
    shape = f"({sizes},)" if len(buffer.shape) == 1 else f"({sizes})"
    return f'{buffer.name} = empty({shape}, dtype="{buffer.dtype.value}")'


def _result(program: Program) -> str:
    texts = returned(program)
    if program.output_structure == "tensor" and len(texts) == 1:
        return texts[0]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"
