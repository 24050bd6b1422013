"""Is this task worth trusting, and what is its floor: before anything is spent on it.

Badges are doubts with their reasons; `dispatch` is what PyTorch's own forward really ran, and
`memory` what judging the task takes, foreseen from its sizes. A model of several contractions
is listed region by region.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from kernelwright.graphs.conversation.loading import kernel_words, runs_words
from kernelwright.graphs.regions.budget import Costs, wanted_words
from kernelwright.graphs.regions.listing import listed_for_audit
from kernelwright.graphs.run_view.events import (
    amount,
    floor_words,
    one_line,
    plain,
)
from kernelwright.graphs.search.pace import pace_of
from kernelwright.tools.archive import default_home
from kernelwright.tools.hardware import floor_ms
from kernelwright.tools.hardware import floor_words as floor_source
from kernelwright.tools.types import Badge, Dispatched, MemoryNeeds, Task, TracePolicy, Value
from kernelwright.tools.types.outline import ModelRegions
from kernelwright.tools.types.run import InputSummary, TaskSummary
from kernelwright.tools.types.task import Part, Untraced
from kernelwright.ui.cli.judge import judge, traced
from kernelwright.ui.complaints import existing_target
from kernelwright.ui.terminal.cards import input_words, regions_table
from kernelwright.ui.terminal.output import STDOUT, check_json, console, write_json

if TYPE_CHECKING:
    from kernelwright.tools.evaluate.messages import DispatchSeen

SHOWN_KERNELS = 12


class Audit(Value):
    """What `audit --json` prints.

    `memory_bytes` is the most that judging takes at once, `memory` how it comes about; both
    are None, and `dispatch` empty, where `not_profiled` says why PyTorch could not be watched.
    Its times are medians of `dispatch_runs` forwards, warmed up.
    `not_listed` says why a model's regions are not known, `regions_want` which seconds a search
    over them would want. Where a model cannot be traced as a
    whole, `parts` are the submodules that can be, and `untraced` what keeps the rest with PyTorch.
    """

    task: TaskSummary
    floor_ms: float
    floor_how: str = ""
    badges: tuple[Badge, ...]
    dispatch: tuple[Dispatched, ...]
    dispatch_runs: int = 0
    memory_bytes: int | None
    memory: MemoryNeeds | None = None
    not_profiled: str = ""
    regions: ModelRegions | None = None
    not_listed: str = ""
    regions_want: str = ""
    parts: tuple[Part, ...] = ()
    untraced: tuple[Untraced, ...] = ()


def audit(
    file: Path,
    entry: str | None,
    inputs: tuple[str, ...],
    target: str,
    json: str | None,
    *,
    load_seconds: float = 60.0,
    makes: bool = False,
    evaluation: bool = False,
) -> None:
    """Trace a file and say what is found."""
    check_json(json)
    seen = audited(file, entry, inputs, target, load_seconds, makes=makes, evaluation=evaluation)
    task, found, device = asyncio.run(seen)
    if json is not None:
        write_json(found, json)
    if json != STDOUT:
        tell(task, found, device)


async def audited(
    file: Path,
    entry: str | None,
    inputs: tuple[str, ...],
    target: str,
    load_seconds: float = 60.0,
    *,
    quiet: bool = False,
    makes: bool = False,
    evaluation: bool = False,
) -> tuple[Task, Audit, str]:
    """The task, what is found, and the device; Complaint when the file cannot be a task."""
    file = existing_target(file)
    async with judge(target) as executor:
        policy = TracePolicy(
            entry=entry,
            makes=makes,
            inputs=inputs,
            load_seconds=load_seconds,
            evaluation=evaluation,
        )
        task = await traced(executor, file, policy, quiet=quiet)
        hardware = await executor.hardware()
        floor = floor_ms(task.bytes_moved, task.flops, hardware)
        found = audit_of(task, floor, await executor.dispatch(task), floor_source(hardware))
        parts = await listed_for_audit(executor, task)
        more = {"regions": parts.regions, "not_listed": parts.failure}
        if parts.regions is not None:
            pace = pace_of(default_home(), hardware)
            costs = Costs.of(task, hardware.kind, pace.certifying_s())
            more |= {"regions_want": wanted_words(costs, parts.regions)}
        return task, found.model_copy(update=more), hardware.name


def audit_of(task: Task, floor: float, seen: "DispatchSeen", how: str = "") -> Audit:
    """The findings in the shape that machines read."""
    tensors = [spec.tensor for spec in task.inputs if spec.tensor is not None]
    return Audit(
        task=TaskSummary(
            name=task.name,
            inputs=tuple(InputSummary(shape=t.shape, dtype=t.dtype.value) for t in tensors),
            bytes=task.bytes_moved,
            flops=task.flops,
            floor_ms=floor,
        ),
        floor_ms=floor,
        floor_how=how,
        badges=badges(task),
        dispatch=seen.kernels,
        dispatch_runs=seen.runs,
        memory_bytes=seen.needs.judge_bytes if seen.needs else None,
        memory=seen.needs,
        not_profiled=seen.failure,
        parts=task.parts,
        untraced=task.untraced,
    )


def badges(task: Task) -> tuple[Badge, ...]:
    """The audit's doubts, and whatever else tracing warned of."""
    return (*task.badges, *(Badge(name="warning", reason=words) for words in task.remarks))


def tell(task: Task, found: Audit, device: str) -> None:
    """Print the findings."""
    out = console()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for spec in task.inputs:
        grid.add_row("input", Text(f"{plain(spec.name)}: {input_words(task, spec.name)}"))
    grid.add_row("moves", f"{amount(task.bytes_moved, 'B')}, {amount(task.flops, 'FLOP')}")
    if found.memory is not None:
        grid.add_row("memory", memory_words(found.memory))
    grid.add_row("floor", Text(f"{floor_words(found.floor_ms, found.floor_how)}: {plain(device)}"))
    for item in found.dispatch[:SHOWN_KERNELS]:
        grid.add_row("PyTorch runs", Text(kernel_words(item)))
    if found.dispatch_runs:
        grid.add_row("", runs_words(found.dispatch_runs))
    if found.not_profiled:
        grid.add_row("PyTorch runs", Text(f"not seen: {one_line(found.not_profiled, 200)}"))
    if found.not_listed:
        grid.add_row("regions", Text(f"not seen: {one_line(found.not_listed, 200)}"))
    if found.regions_want:
        grid.add_row("--seconds", Text(found.regions_want))
    for words in part_words(found.parts):
        grid.add_row("traced", Text(words))
    for words in untraced_words(found.untraced):
        grid.add_row("PyTorch's", Text(words))
    for badge in found.badges:
        name = badge.name.replace("_", " ")
        style = "bold yellow" if badge.proves_little else "yellow"
        grid.add_row(name, Text(one_line(badge.reason, 400), style=style))
    out.print(Text(plain(task.name), style="bold"))
    out.print(grid)
    if found.regions is not None:
        out.print(regions_table(found.regions))


def part_words(parts: tuple[Part, ...]) -> list[str]:
    """The parts of a model by their class, a line each."""
    kinds = dict.fromkeys(part.kind for part in parts)
    paths = {kind: [plain(part.path) for part in parts if part.kind == kind] for kind in kinds}
    return [f"{plain(kind)}: {_listed(paths[kind])}" for kind in kinds]


def untraced_words(untraced: tuple[Untraced, ...]) -> list[str]:
    """What stays as it is and why, equal ones together."""
    kinds = dict.fromkeys((item.kind, item.why) for item in untraced)
    paths = {
        kind: [plain(item.path) or "itself" for item in untraced if (item.kind, item.why) == kind]
        for kind in kinds
    }
    return [
        f"{plain(kind)} ({_listed(paths[kind, why])}): {one_line(why, 200)}" for kind, why in kinds
    ]


def _listed(paths: list[str]) -> str:
    more = len(paths) - SHOWN_KERNELS
    return ", ".join(paths[:SHOWN_KERNELS]) + (f" and {more} more" if more > 0 else "")


def memory_words(needs: MemoryNeeds) -> str:
    """What judging takes and what is there."""
    need, there = amount(needs.judge_bytes, "B"), amount(needs.available_bytes, "B")
    return f"{need} to judge it, {amount(needs.eager_bytes, 'B')} of it PyTorch's; {there} there"
