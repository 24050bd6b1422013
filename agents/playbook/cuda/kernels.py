"""Cuts passes into kernels, for strategies that run one kernel a pass.

Each kernel completes the passes before it from their partials in memory, but only those whose
results it uses; the last pass, if it ends in a reduction, is completed by its last block. Blocks
count themselves for that, from zeros: where there is a kernel before the last it writes them, which
costs nothing beside its pass, and else the plan fills them before the launch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agents.playbook.cuda.body import Body, PassCode
from agents.playbook.cuda.rendering import Argument
from agents.playbook.cuda.schedule import Pass, Schedule, uses


@dataclass(frozen=True)
class Kernel:
    """One pass as a kernel: the passes it completes first, and whether its last block finishes.

    One that `clears` writes the zeros from which the blocks of the next one count.
    """

    name: str
    code: PassCode
    earlier: tuple[PassCode, ...]
    finishes: bool
    clears: bool
    parameters: str = "@parameters@"


def kernels_of(body: Body, prefix: str) -> tuple[Kernel, ...]:
    """A kernel for each pass."""
    schedule = body.schedule
    codes = body.passes()
    kernels = []
    for one, code in zip(schedule.passes, codes, strict=True):
        last = one is schedule.passes[-1]
        needed = _needed(body, one, finishes=last and bool(one.reductions))
        earlier = [_only(body, schedule, codes[p - 1], needed) for p in _passes(schedule, needed)]
        kernels.append(
            Kernel(
                name=f"{prefix}_pass{one.number}",
                code=_only(body, schedule, code, None),
                earlier=tuple(e for e in earlier if e.number < one.number),
                finishes=last and bool(one.reductions),
                clears=one.number == len(codes) - 1 and schedule.ends_in_reduction,
            )
        )
    return tuple(kernels)


def partial_arguments(kernels: Sequence[Kernel], prefix: str) -> list[Argument]:
    """A parameter for the partials of each pass, and one for the counters of a last block."""
    arguments = [
        Argument(
            f"parts{kernel.code.number}",
            f"long long* parts{kernel.code.number}",
            f"{prefix}_parts{kernel.code.number}",
        )
        for kernel in kernels
        if kernel.code.part
    ]
    counters = Argument("counters", "unsigned int* counters", f"{prefix}_counters")
    return [*arguments, counters]


def allocations(kernels: Sequence[Kernel], prefix: str, count: str, counters: str) -> list[str]:
    """Plan lines for partials (`count` a pass) and counters, "" where none are needed.

    Counters are zeros, unless a kernel clears them before another one counts.
    """
    lines = [
        f"{prefix}_parts{kernel.code.number} = "
        f'empty((ceil_div({count} * {kernel.code.part_bytes}, 8),), dtype="int64")'
        for kernel in kernels
        if kernel.code.part
    ]
    if counters:
        maker = "empty" if any(kernel.clears for kernel in kernels) else "zeros"
        lines.append(f'{prefix}_counters = {maker}(({counters},), dtype="int32")')
    return lines


def _needed(body: Body, one: Pass, *, finishes: bool) -> set[str]:
    """Row-level values that the kernel of a pass uses."""
    nest, schedule = body.printer.nest, body.schedule
    waiting = [name for stmt in one.element for name in uses(stmt, nest)]
    waiting += [stmt.args[0] for stmt in one.reductions]
    stores = [*one.stores, *(one.row_stores if finishes else ())]
    if one.number > 1:
        stores += schedule.passes[one.number - 2].row_stores
    else:
        stores += schedule.before_stores
    for at in stores:
        waiting += [nest.loop.stores[at].value, *(n for n, _ in nest.targets[at].gathers)]
    found: set[str] = set()
    while waiting:
        stmt = nest.loop.stmt(waiting.pop())
        if stmt.name in found:
            continue
        found.add(stmt.name)
        # What is behind a reduction belongs to the kernel that made its partials.
        if stmt.op != "reduce":
            waiting += uses(stmt, nest)
    return found


def _passes(schedule: Schedule, needed: set[str]) -> list[int]:
    return [
        one.number
        for one in schedule.passes
        if any(stmt.name in needed for stmt in (*one.reductions, *one.after))
    ]


def _only(body: Body, schedule: Schedule, code: PassCode, needed: set[str] | None) -> PassCode:
    """The pass with only those row-level lines afterwards that are needed."""
    if needed is None:
        return code
    one = schedule.passes[code.number - 1]
    after = [stmt for stmt in one.after if stmt.name in needed]
    results = body.results(one, code.partial) if code.part else []
    return replace(code, after=(*results, *body.row_lines(after)))
