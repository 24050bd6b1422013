"""Policies on recorded settings spaces from the command line: replay them, print the tables.

Loops are replayed side by side, each in a process of its own. Outcomes may be kept, a line each;
what is known is not replayed again.
"""

import asyncio
import logging
import multiprocessing
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from pydantic import ValidationError
from rich.table import Table

from kernelwright.graphs.suite.surface_figures import BUDGETS, Standing, Worth, standings
from kernelwright.graphs.suite.surface_search import Judged, Trail, endless, follow, policies
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.evaluate.surfaces import Surface, load_surfaces
from kernelwright.ui.complaints import Complaint, writable_file
from kernelwright.ui.terminal.output import console

# Parts that act where no model thinks.
PARTS: tuple[Judged, ...] = ("ideas", "contrast", "archive", "tuning", "memory", "sizes")


def replay(
    folder: Path,
    without: Sequence[str],
    profile: SearchProfile,
    seeds: int,
    loops: Sequence[str],
    out: Path | None,
) -> None:
    """Replay every policy on every loop under every seed, and print what came of it."""
    try:
        surfaces = _chosen(load_surfaces(folder), loops)
    except (ValueError, OSError) as error:
        raise Complaint(f"{error}") from None
    wanted = policies(_parts(without), profile)
    known = _read(out) if out else {}
    trails = list(_replayed(folder, surfaces, wanted, endless(profile), seeds, known, out))
    best_ms = {surface.space.name: surface.best_ms for surface in surfaces}
    table, parts = standings([t for t in trails if t.policy in wanted], best_ms)
    console().print(table_of(table, len(surfaces)))
    console().print(worth_of(parts))


def _parts(without: Sequence[str]) -> tuple[Judged, ...]:
    unknown = [name for name in without if name not in PARTS]
    if unknown:
        raise Complaint(f"there is no part {unknown[0]!r} here; there are {', '.join(PARTS)}")
    return tuple(part for part in PARTS if not without or part in without)


def _chosen(surfaces: Sequence[Surface], loops: Sequence[str]) -> list[Surface]:
    names = [surface.space.name for surface in surfaces]
    if unknown := [name for name in loops if name not in names]:
        raise Complaint(f"no loop {unknown[0]!r} was recorded; there are {', '.join(names)}")
    return [surface for surface in surfaces if not loops or surface.space.name in loops]


Key = tuple[str, str, int]


def _replayed(
    folder: Path,
    surfaces: Sequence[Surface],
    wanted: Sequence[str],
    profile: SearchProfile,
    seeds: int,
    known: dict[Key, Trail],
    out: Path | None,
) -> Iterable[Trail]:
    names = [surface.space.name for surface in surfaces]
    jobs = {
        (loop, policy): [seed for seed in range(seeds) if (loop, policy, seed) not in known]
        for loop in names
        for policy in wanted
    }
    yield from (t for key, t in known.items() if key[0] in names and key[2] < seeds)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        waiting = [
            pool.submit(_follow, folder, loop, {p: jobs[loop, p] for p in wanted}, profile)
            for loop in names
            if any(jobs[loop, policy] for policy in wanted)
        ]
        for number, done in enumerate(as_completed(waiting), start=1):
            for trail in done.result():
                if out is not None:
                    _append(out, trail)
                yield trail
            sys.stderr.write(f"{number} of {len(waiting)} loops\n")


def _follow(
    folder: Path, loop: str, seeds: dict[str, list[int]], profile: SearchProfile
) -> list[Trail]:
    """Every policy on one loop; in a process of its own."""
    logging.disable(logging.WARNING)
    surfaces = load_surfaces(folder)
    surface = next(one for one in surfaces if one.space.name == loop)
    evaluations = max(BUDGETS)
    return [
        asyncio.run(follow(surface, policy, profile, seed, evaluations, surfaces))
        for policy, of in seeds.items()
        for seed in of
    ]


def _read(path: Path) -> dict[Key, Trail]:
    writable_file(path)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    try:
        trails = [Trail.model_validate_json(line) for line in lines]
    except ValidationError:
        raise Complaint(f"{path} holds something else than replayed searches") from None
    return {(trail.loop, trail.policy, trail.seed): trail for trail in trails}


def _append(path: Path, trail: Trail) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(trail.model_dump_json() + "\n")


def table_of(found: Sequence[Standing], loops: int) -> Table:
    """Gaps to the optimum as a person reads them."""
    table = Table(title=f"time above the optimum on {loops} recorded loops, 95 % intervals")
    table.add_column("policy")
    for name in ("evaluations", "above", "from", "to", "within 3 %", "searches"):
        table.add_column(name, justify="right")
    for item in sorted(found, key=lambda item: item.evaluations):
        figures = (item.gap.mean, item.gap.low, item.gap.high)
        table.add_row(
            item.policy,
            str(item.evaluations),
            *(f"{value:.2f} %" for value in figures),
            f"{item.solved:.0%}",
            str(item.repetitions),
        )
    return table


def worth_of(found: Sequence[Worth]) -> Table:
    """What the whole search gains over the others."""
    table = Table(title="what the whole search gains over it, in time, 95 % intervals")
    table.add_column("policy")
    for name in ("evaluations", "gain", "from", "to", "better on", "worse on"):
        table.add_column(name, justify="right")
    for item in found:
        figures = (item.gain.mean, item.gain.low, item.gain.high)
        table.add_row(
            item.policy,
            str(item.evaluations),
            *(f"{value:+.2f} %" for value in figures),
            f"{len(item.helped)} of {item.loops}",
            f"{len(item.harmed)} of {item.loops}",
        )
    return table
