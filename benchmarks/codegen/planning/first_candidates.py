"""What a search would try first on a folder of modules: forms, strategies and predicted times.

    python benchmarks/codegen/planning/first_candidates.py FOLDER [FOLDER...] [--hardware h200]
        [--search quick]
        [--match 1_*,17_*] [--out table.md]

Files are traced on fake tensors, lowered and planned as in the first round of a search; nothing is
compiled, run or timed, so every time in it is the roofline's. After the first candidate the order
is that of a search in which each prediction held; what is measured or refused changes it. It runs
the files in this process: use it on files that are trusted.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.profiles.load import Hardware, hardware_profile, search_profile
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    Recipe,
    Repertoire,
    repertoire_for,
)
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Idea, Refusal, TracePolicy

HEAD = "| file | forms | first | second | third |\n|---|---|---|---|---|"


def main() -> None:
    """Print a row for every file as soon as it is planned."""
    words = argparse.ArgumentParser(description="What a search would try first.")
    words.add_argument("folders", nargs="+", type=Path)
    words.add_argument("--hardware", default="h200")
    words.add_argument("--search", default="quick")
    words.add_argument("--match", default="*", help="patterns of file names, with commas between")
    words.add_argument("--out", type=Path, help="where the table goes as well")
    asked = words.parse_args()
    hardware, wanted = hardware_profile(asked.hardware), search_profile(asked.search)
    lines = [HEAD]
    print(HEAD)
    for path in _files(asked.folders, asked.match.split(",")):
        lines.append(row(path, hardware, wanted.ideas_per_round))
        print(lines[-1], flush=True)
    if asked.out is not None:
        asked.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _files(folders: list[Path], patterns: list[str]) -> Iterator[Path]:
    found = (path for folder in folders for path in folder.glob("*.py"))
    named = [path for path in found if any(fnmatch(path.stem, one) for one in patterns)]
    yield from sorted(named, key=lambda path: (len(path.stem.split("_")[0]), path.stem))


def row(path: Path, hardware: Hardware, wanted: int) -> str:
    """One file's line of the table; why there is nothing to try stands in it."""
    task = trace(path.read_text(encoding="utf-8"), str(path), TracePolicy())
    if isinstance(task, Refusal):
        return f"| {path.stem} | {task.sentence} | | | |"
    repertoire = repertoire_for(task, hardware)
    names = [option.strategy.name for option in repertoire.options() if option.loop == FORM]
    planner_input = PlannerInput(round=1, wanted=wanted, floor_ms=1e-3)
    ideas = asyncio.run(PlaybookPlanner(repertoire).plan(planner_input)).ideas
    cells = [_cell(idea, repertoire) for idea in ideas[:3]]
    cells += [""] * (3 - len(cells))
    return f"| {path.stem} | {', '.join(names) or 'one'} | {' | '.join(cells)} |"


def _cell(idea: Idea, repertoire: Repertoire) -> str:
    """Form, expected time and the strategies of loops that take a tenth of it or more."""
    recipe = Recipe.from_idea(idea)
    chosen = recipe.choices if recipe else {}
    times = {
        option.loop: option.predicted_ms
        for option in repertoire.options()
        if option.loop != FORM and chosen.get(option.loop) == option.strategy.name
    }
    expected_ms = idea.predicted_ms or 0.0
    large = [loop for loop, ms in times.items() if ms >= expected_ms / 10]
    strategies = ", ".join(chosen[loop] for loop in large) or "next to no loops"
    form = f"{chosen[FORM]}: " if FORM in chosen else ""
    return f"{form}{expected_ms:.3g} ms ({strategies})"


if __name__ == "__main__":
    main()
