"""What a search could try on a loop: its ways of doing it, and the settings of each, drawn evenly.

A loop's module is traced, lowered and planned as a search does it. Its ways are all combinations of
strategies where these are few, else what differs from the fastest predicted in one loop, for every
form of the task. Of settings a fixed number is drawn: as many from each way, all of a small one,
its default always, and the order is such that the drawing is even wherever it is cut off.
"""

import random
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import product
from math import prod
from operator import or_
from pathlib import Path

from surface_modules import MODULES

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.candidates import ContractError, valid_settings
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    Option,
    Pick,
    PlaybookRepertoire,
    fastest,
    in_form,
    repertoire_for,
)
from kernelwright.tools.evaluate.surfaces import Space, Way
from kernelwright.tools.hardware import floor_ms
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Refusal, Task, TracePolicy, Value

MOST_POINTS = 1000
_FEW_COMBINATIONS = 24
_SEED = 1


class Planned(Value):
    """A loop to be measured: its task, its space, and (way, values) in the order to measure."""

    task: Task
    space: Space
    order: tuple[tuple[int, tuple[int, ...]], ...]


def planned(name: str, hardware: str, folder: str, most: int = MOST_POINTS) -> Planned:
    """What there is to measure of one loop.

    Args:
        name: of the module.
        hardware: a profile's name, as `h200`.
        folder: where the module's file is written, for its imports.
        most: points, all ways together.

    Raises:
        ValueError: when the module cannot be traced.
    """
    text, path = MODULES[name].text, Path(folder, f"{name}.py")
    path.write_text(text, encoding="utf-8")
    task = trace(text, str(path), TracePolicy(device="cpu"))
    if isinstance(task, Refusal):
        raise ValueError(f"{name}: {task.sentence}")
    device = hardware_profile(hardware)
    repertoire = repertoire_for(task, device)
    ways, settings = _ways(repertoire)
    shares = even_shares([len(of) for of in settings], most)
    space = Space(
        name=name,
        module=text,
        hardware=hardware,
        language=repertoire.language,
        fixed_ms=repertoire.fixed_ms,
        floor_ms=floor_ms(task.bytes_moved, task.flops, device),
        options=repertoire.options(),
        ways=tuple(
            way.model_copy(update={"drawn": n}) for way, n in zip(ways, shares, strict=True)
        ),
    )
    return Planned(task=task, space=space, order=tuple(_order(settings, shares)))


def _ways(repertoire: PlaybookRepertoire) -> tuple[list[Way], list[list[tuple[int, ...]]]]:
    """Every way that has kernels of ours, with the settings that these allow."""
    ways, settings = [], []
    for chosen in choices(repertoire.options()):
        try:
            draft = repertoire.draft(chosen)
            source = parse_kernel(draft.kernel, repertoire.language)
        except (ValueError, ContractError):
            continue  # all of it is the library's, or the choices do not fit together
        valid = [tuple(one.value for one in setting) for setting in valid_settings(source)]
        picks = tuple(Pick(loop=loop, strategy=name) for loop, name in sorted(chosen.items()))
        names = tuple(tunable.name for tunable in source.tunables)
        ways.append(Way(picks=picks, draft=draft, tunables=names, valid=len(valid), drawn=0))
        settings.append(valid)
    return ways, settings


def choices(options: Sequence[Option]) -> list[dict[str, str]]:
    """The choices of every form, the one predicted fastest first."""
    first = fastest(options)
    forms = [option.strategy.name for option in options if option.loop == FORM]
    found: dict[frozenset[tuple[str, str]], dict[str, str]] = {}
    for form in sorted(forms, key=lambda one: one != first[FORM]) or [""]:
        base = in_form(options, {FORM: form}) if form else first
        mine = [o for o in options if o.loop != FORM and o.form in ("", form)]
        ways = [[o.change for o in mine if o.loop == loop] for loop in {o.loop: o for o in mine}]
        every: Iterable[Sequence[dict[str, str]]] = product(*ways)
        if prod(map(len, ways)) > _FEW_COMBINATIONS:
            every = [(), *((way,) for of in ways for way in of)]
        for changes in every:
            chosen = in_form(options, reduce(or_, changes, base))
            found.setdefault(frozenset(chosen.items()), chosen)
    return sorted(found.values(), key=lambda chosen: chosen != first)


def even_shares(sizes: Sequence[int], most: int) -> list[int]:
    """How many of each to take so that the sum is `most` and nobody has more than it must."""
    shares = [0] * len(sizes)
    left = min(most, sum(sizes))
    while left:
        open_ones = [at for at, size in enumerate(sizes) if shares[at] < size]
        each = max(1, left // len(open_ones))
        for at in open_ones:
            taken = min(each, sizes[at] - shares[at], left)
            shares[at] += taken
            left -= taken
    return shares


def _order(
    settings: Sequence[Sequence[tuple[int, ...]]], shares: Sequence[int]
) -> list[tuple[int, tuple[int, ...]]]:
    """Every way's default, then points of all ways mixed evenly."""
    dice = random.Random(_SEED)
    placed: list[tuple[float, int, tuple[int, ...]]] = []
    for way, (valid, share) in enumerate(zip(settings, shares, strict=True)):
        default, *rest = valid
        drawn = [default, *dice.sample(rest, share - 1)] if share else []
        placed += [((at / share) if at else -1.0, way, values) for at, values in enumerate(drawn)]
    return [(way, values) for _, way, values in sorted(placed, key=lambda one: one[:2])]
