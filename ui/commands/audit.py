"""Is this task worth trusting, and what is its floor: before anything is spent on it.

What `dispatch` lists are the operators of the traced forward; the device's kernels behind them
are not read yet.
"""

import asyncio
from pathlib import Path

from rich.table import Table
from rich.text import Text

from tools.nouns import Badge, Task, TracePolicy, Value
from tools.nouns.run import InputSummary, TaskSummary
from tools.tasks import floor_ms
from ui.cards import input_words
from ui.commands.judge import judge, traced
from ui.commands.output import STDOUT, check_json, console, write_json
from ui.complaints import existing_file
from ui.words import amount, milliseconds, one_line, plain

NO_OPERATORS = ("input", "weight", "constant", "getitem")


class Audit(Value):
    """What `audit --json` prints; `memory_bytes` is of inputs, weights and outputs."""

    task: TaskSummary
    floor_ms: float
    badges: tuple[Badge, ...]
    dispatch: tuple[str, ...]
    memory_bytes: int


def audit(
    file: Path, entry: str | None, inputs: tuple[str, ...], target: str, json: str | None
) -> None:
    """Trace a file and say what is found."""
    file = existing_file(file).absolute()
    check_json(json)
    task, floor, device = asyncio.run(
        _traced(file, TracePolicy(entry=entry, inputs=inputs), target)
    )
    found = audit_of(task, floor)
    if json is not None:
        write_json(found, json)
    if json != STDOUT:
        tell(task, found, device)


async def _traced(file: Path, policy: TracePolicy, target: str) -> tuple[Task, float, str]:
    async with judge(target) as executor:
        task = await traced(executor, file, policy)
        hardware = await executor.hardware()
        return task, floor_ms(task.bytes_moved, task.flops, hardware), hardware.name


def audit_of(task: Task, floor: float) -> Audit:
    """The findings in the shape that machines read."""
    tensors = [spec.tensor for spec in task.inputs if spec.tensor is not None]
    sizes = [tensor.size_bytes for tensor in (*tensors, *task.outputs)]
    sizes += [weight.tensor.size_bytes for weight in task.weights]
    operators = [node.op for node in task.graph.nodes if node.op not in NO_OPERATORS]
    return Audit(
        task=TaskSummary(
            name=task.name,
            inputs=tuple(InputSummary(shape=t.shape, dtype=t.dtype.value) for t in tensors),
            bytes=task.bytes_moved,
            flops=task.flops,
            floor_ms=floor,
        ),
        floor_ms=floor,
        badges=badges(task),
        dispatch=tuple(dict.fromkeys(operators)),
        memory_bytes=sum(sizes),
    )


def badges(task: Task) -> tuple[Badge, ...]:
    """The audit's doubts, and whatever else tracing warned of."""
    told = {badge.words for badge in task.badges}
    others = [words for words in task.warnings if words not in told]
    return (*task.badges, *(Badge(name="warning", reason=words) for words in others))


def tell(task: Task, found: Audit, device: str) -> None:
    """Print the findings."""
    out = console()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for spec in task.inputs:
        grid.add_row("input", Text(f"{plain(spec.name)}: {input_words(task, spec.name)}"))
    grid.add_row("moves", f"{amount(task.bytes_moved, 'B')}, {amount(task.flops, 'FLOP')}")
    grid.add_row("holds", amount(found.memory_bytes, "B"))
    grid.add_row("floor", Text(f"{milliseconds(found.floor_ms)} on {plain(device)}"))
    grid.add_row("operators", Text(", ".join(found.dispatch)))
    for badge in found.badges:
        grid.add_row(badge.name, Text(one_line(badge.reason, 300), style="yellow"))
    out.print(Text(plain(task.name), style="bold"))
    out.print(grid)
