"""Cuts passes into kernels, for strategies that run one kernel a pass.

A pass that reduces leaves partials in memory, and a small kernel behind it joins those of each row:
nothing has to be zero before the first kernel, as a count of blocks would, and the host issues it
while the pass runs. What comes after reads one finished partial a row.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from kernelwright.tools.codegen.cuda.printing.body import Body, PassCode
from kernelwright.tools.codegen.cuda.printing.rendering import Argument
from kernelwright.tools.codegen.cuda.printing.schedule import Pass, uses


@dataclass(frozen=True)
class Kernel:
    """A pass as a kernel, or what joins its partials and stores what it makes of each row.

    `earlier` are the passes before whose results it uses.
    """

    name: str
    code: PassCode
    earlier: tuple[PassCode, ...]
    joins: bool
    parameters: str = "@parameters@"


def kernels_of(body: Body, prefix: str) -> tuple[Kernel, ...]:
    """A kernel for each pass, and one behind each that leaves partials."""
    codes, kernels = body.passes(), []
    for one, code in zip(body.schedule.passes, codes, strict=True):
        before = codes[: one.number - 1]
        earlier = _earlier(body, before, _streamed(body, one))
        kernels.append(Kernel(f"{prefix}_pass{one.number}", code, earlier, joins=False))
        if one.reductions:
            needed = _stored(body, one.row_stores)
            earlier = _earlier(body, before, needed)
            joined = _only(body, one, code, _behind(body, needed))
            kernels.append(Kernel(f"{prefix}_join{one.number}", joined, earlier, joins=True))
    return tuple(kernels)


def partial_arguments(kernels: Sequence[Kernel], prefix: str) -> list[Argument]:
    """A parameter for the partials of each pass."""
    return [
        Argument(
            f"parts{kernel.code.number}",
            f"long long* parts{kernel.code.number}",
            f"{prefix}_parts{kernel.code.number}",
        )
        for kernel in kernels
        if kernel.joins
    ]


def allocations(kernels: Sequence[Kernel], prefix: str, rows: int, splits: str) -> list[str]:
    """Plan lines for the partials of each pass: `splits` a row, and the joined one."""
    count = f"{rows} * ({splits} + 1)"
    return [
        f"{prefix}_parts{kernel.code.number} = "
        f'empty((ceil_div({count} * {kernel.code.part_bytes}, 8),), dtype="int64")'
        for kernel in kernels
        if kernel.joins
    ]


def _streamed(body: Body, one: Pass) -> list[str]:
    """What a pass uses of rows: while it walks, and the first one to store what needs no pass."""
    nest = body.printer.nest
    walked = [name for stmt in one.element for name in uses(stmt, nest)]
    walked += [stmt.args[0] for stmt in one.reductions]
    first = body.schedule.before_stores if one.number == 1 else ()
    return [*walked, *_stored(body, [*one.stores, *first])]


def _stored(body: Body, stores: Iterable[int]) -> list[str]:
    nest = body.printer.nest
    return [
        name
        for at in stores
        for name in (nest.loop.stores[at].value, *(n for n, _ in nest.targets[at].gathers))
    ]


def _earlier(body: Body, before: Sequence[PassCode], names: Iterable[str]) -> tuple[PassCode, ...]:
    """Of the passes before, those that such values come from, with no other results."""
    needed = _behind(body, names)
    return tuple(
        _only(body, one, code, needed)
        for one, code in zip(body.schedule.passes, before, strict=False)
        if any(stmt.name in needed for stmt in (*one.reductions, *one.after))
    )


def _behind(body: Body, names: Iterable[str]) -> set[str]:
    """These values and what they are made of, as far as the next reduction."""
    nest, waiting, found = body.printer.nest, list(names), set[str]()
    while waiting:
        stmt = nest.loop.stmt(waiting.pop())
        if stmt.name in found:
            continue
        found.add(stmt.name)
        # What is behind a reduction belongs to the pass that made its partials.
        if stmt.op != "reduce":
            waiting += uses(stmt, nest)
    return found


def _only(body: Body, one: Pass, code: PassCode, needed: Collection[str]) -> PassCode:
    """The pass with only those row-level lines afterwards that are needed."""
    after = [stmt for stmt in one.after if stmt.name in needed]
    results = body.results(one, code.partial) if code.part else []
    return replace(code, after=(*results, *body.row_lines(after)))
