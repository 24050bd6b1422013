"""Ablations from the command line: run the trials, keep each as it ends, print the table."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError
from rich.table import Table

from kernelwright.graphs.search.run import start_search
from kernelwright.graphs.suite.ablation import (
    Outcome,
    Row,
    Search,
    Trial,
    ablate,
    parts,
    rows,
    trials,
)
from kernelwright.profiles.load import Models, Part, SearchProfile
from kernelwright.tools.types import Refusal, TracePolicy
from kernelwright.tools.types.run import Summary
from kernelwright.ui.complaints import Complaint, existing_target, writable_file
from kernelwright.ui.terminal.output import console

Target = Literal["auto", "cuda", "cpu"]

NOTHING = "-"


def compare(
    files: Sequence[Path],
    without: Sequence[str],
    profile: SearchProfile,
    seeds: int,
    target: Target,
    home: Path | None,
    out: Path | None,
    models: Models | None = None,
) -> None:
    """Run the trials that are not in `out` yet, and print what each part was worth."""
    paths = [existing_target(file) for file in files]
    if len({path.name for path in paths}) < len(paths):
        raise Complaint("two of the files have the same name; the table could not tell them apart")
    parts = chosen_parts(without, with_models=models is not None)
    known = read_outcomes(out) if out else ()
    wanted = trials(paths, parts, range(seeds))
    found = asyncio.run(
        _see_through(wanted, profile, _search(target, home, models), models, known, out)
    )
    console().print(table_of(rows(found)))
    for outcome in found:
        if outcome.failure:
            sys.stderr.write(f"{outcome.task}: {outcome.failure}\n")


_OF_MODELS: dict[Part, str] = {"prompts": "prompts evolve", "tools": "tools are called"}


def chosen_parts(without: Sequence[str], *, with_models: bool) -> tuple[Part, ...]:
    """The parts to switch off, one at a time; Complaint for one that is none."""
    known = parts()
    unknown = [name for name in without if name not in known]
    if unknown:
        raise Complaint(f"there is no part {unknown[0]!r}; there are {', '.join(known)}")
    chosen = tuple(dict.fromkeys(without)) or known
    idle = () if with_models else tuple(part for part in chosen if part in _OF_MODELS)
    for part in idle:
        sys.stderr.write(f"{_OF_MODELS[part]} only where a model thinks; that part is left out\n")
    return tuple(part for part in chosen if part not in idle)


def read_outcomes(path: Path) -> tuple[Outcome, ...]:
    """Outcomes of earlier sessions; a last line that a kill cut off is taken out of the file."""
    writable_file(path)
    if not path.exists():
        return ()
    text = path.read_text(encoding="utf-8")
    lines, found = text.splitlines(), []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(Outcome.model_validate_json(line))
        except ValidationError:
            if number < len(lines) or text.endswith("\n"):
                raise Complaint(f"line {number} of {path} is no outcome of an ablation") from None
            path.write_text("".join(f"{line}\n" for line in lines[:-1]), encoding="utf-8")
    return tuple(found)


def table_of(found: Sequence[Row]) -> Table:
    """The rows as a person reads them."""
    table = Table(title="what each part was worth, at equal budget")
    for name in ("search", "trials", "speed-up", "of the whole", "from", "to"):
        table.add_column(name, justify="left" if name == "search" else "right")
    for name in ("timed", "seconds", "tokens", "US dollars"):
        table.add_column(name, justify="right")
    for row in found:
        table.add_row(
            f"without {', '.join(row.without)}" if row.without else "whole",
            str(row.trials) if row.found == row.trials else f"{row.found} of {row.trials}",
            _ratio(row.speedup),
            _ratio(row.against_whole),
            _ratio(row.lowest),
            _ratio(row.highest),
            f"{row.candidates:.0f}",
            f"{row.seconds:.0f}",
            f"{row.tokens:.0f}" if row.tokens else NOTHING,
            f"{row.usd:.2f}" if row.usd is not None else NOTHING,
        )
    return table


async def _see_through(
    wanted: Sequence[Trial],
    profile: SearchProfile,
    search: Search,
    models: Models | None,
    known: Sequence[Outcome],
    out: Path | None,
) -> list[Outcome]:
    found: list[Outcome] = []
    async for outcome in ablate(wanted, profile, search, minds=_minds(models), known=known):
        found.append(outcome)
        if out is not None and outcome not in known:
            append_outcome(out, outcome)
        sys.stderr.write(f"{len(found)} of {len(wanted)}: {_told(outcome)}\n")
    return found


def _search(target: Target, home: Path | None, models: Models | None) -> Search:
    async def run(file: Path, profile: SearchProfile, seed: int) -> Summary | Refusal:
        return await start_search(
            file, TracePolicy(), target, profile, seed=seed, home=home, models=models, fresh=True
        )

    return run


def _minds(models: Models | None) -> str:
    """Who thinks, in a word."""
    if models is None:
        return "playbook"
    named = (profile.model or profile.name for profile in models.by_role.values())
    return ", ".join(dict.fromkeys(named))


def append_outcome(path: Path, outcome: Outcome) -> None:
    """Keep an outcome at once: the next trial may take an hour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(outcome.model_dump_json() + "\n")
        file.flush()
        os.fsync(file.fileno())


def _told(outcome: Outcome) -> str:
    what = f"without {', '.join(outcome.without)}" if outcome.without else "whole"
    result = outcome.failure or (
        f"{outcome.speedup:.3g}x the best baseline" if outcome.speedup else "nothing correct"
    )
    return f"{outcome.task}, {what}, seed {outcome.seed}: {result}"


def _ratio(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}"
