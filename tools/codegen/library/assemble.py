"""Prints a candidate: the kernel's text and the plan's text of a program under chosen strategies.

The emitter writes device code and the lines that launch it; everything between (weights,
allocations, library calls, views, returns, buffer updates) is written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir import (
    Buffer,
    Emitted,
    LibraryCall,
    Loop,
    PlanLine,
    Program,
    ProgramNode,
    Strategy,
)
from kernelwright.tools.codegen.ir.emitter import LIBRARY, Emitter
from kernelwright.tools.codegen.library.allocating import allocated_late
from kernelwright.tools.codegen.library.sharing import on_other_buffers, shape_of, within_budget
from kernelwright.tools.types import Value


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
        choices: a strategy for each node by its name; a loop left out takes its first, a call
            left out stays with the library.
        hardware: the device it is written for.

    Raises:
        ValueError: a strategy does not fit its node.
    """
    chosen = {
        loop.name: choices.get(loop.name) or emitter.strategies(loop, hardware)[0]
        for loop in program.loops
    }
    ours = [node for node in program.nodes if _is_ours(node, choices)]
    chosen |= {node.name: choices[node.name] for node in ours if isinstance(node, LibraryCall)}
    firsts = _firsts(ours, chosen)
    emitted = {
        node.name: _emitted(node, emitter, chosen[node.name], hardware)
        for node in ours
        if firsts[node.name] is node
    }
    times = {node.name: emitter.predicted_ms(node, chosen[node.name], hardware) for node in ours}
    order = tuple(sorted(emitted, key=lambda name: -times[name]))
    emitted = within_budget(emitted, order, emitter.header(), emitter.language)
    lines = {node.name: _launches(node, firsts[node.name], emitted) for node in ours}
    return Assembled(
        kernel=_kernel(ours, emitter, emitted), plan="\n".join(_plan(program, lines)) + "\n"
    )


def _is_ours(node: ProgramNode, choices: Mapping[str, Strategy]) -> bool:
    """Whether kernels of ours do it: every loop, and calls that were not left to the library."""
    return isinstance(node, Loop) or choices.get(node.name, LIBRARY).name != LIBRARY.name


def returned(program: Program) -> tuple[str, ...]:
    """What the plan returns, one expression an output."""
    views = dict(program.views)
    return tuple(views.get(name, name) for name in program.returns)


def _firsts(nodes: Sequence[ProgramNode], chosen: Mapping[str, Strategy]) -> dict[str, ProgramNode]:
    """For every node, the first one whose kernel it can use: itself, or an equal one."""
    known: dict[tuple[ProgramNode, Strategy], ProgramNode] = {}
    return {
        node.name: known.setdefault((shape_of(node), chosen[node.name]), node) for node in nodes
    }


def _launches(
    node: ProgramNode, first: ProgramNode, emitted: Mapping[str, Emitted]
) -> tuple[str, ...]:
    lines = emitted[first.name].plan
    return lines if first is node else on_other_buffers(lines, first, node)


def _emitted(
    node: ProgramNode, emitter: Emitter, strategy: Strategy, hardware: Hardware
) -> Emitted:
    return emitter.emit(emitter.rewritten(node, strategy), strategy, f"{node.name}_", hardware)


def _kernel(nodes: Sequence[ProgramNode], emitter: Emitter, emitted: Mapping[str, Emitted]) -> str:
    if not emitted:
        return ""
    parts = [emitter.header().rstrip()]
    parts += [
        f"{described(node)}\n{emitted[node.name].source.strip()}"
        for node in nodes
        if node.name in emitted
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def described(node: ProgramNode) -> str:
    """One comment line that tells a person what a node does."""
    if isinstance(node, LibraryCall):
        return f"// {node.name}: {node.family}, {node.line.text}"
    return _described(node)


def _described(loop: Loop) -> str:
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
        node = program.node(step)
        if isinstance(step, PlanLine) and (node is None or node.name not in launches):
            yield f"    {step.text}"
            made |= set(step.makes)
        elif node is not None:
            stored = _first_stored(program, node, made)
            made |= {buffer.name for buffer in stored}
            for line in allocated_late([*map(_allocation, stored), *launches[node.name]]):
                yield f"    {line}"
    yield f"    return {_result(program)}"


def _first_stored(program: Program, node: ProgramNode, made: set[str]) -> list[Buffer]:
    if isinstance(node, LibraryCall):
        return [buffer for buffer in node.results if buffer.name not in made]
    names = dict.fromkeys(store.access.buffer for store in node.stores)
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
