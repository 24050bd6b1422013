"""A data set: attempts split by family and turned into rows, as a folder of JSON lines.

    instructions.jsonl  repairs.jsonl  preferences.jsonl  contrastive.jsonl   rows to learn from
    attempts.jsonl      what they are made of, with provenance
    problems.jsonl      the tasks of training, to be sampled
    held_out.jsonl      tasks of families that no row is of, to evaluate on
    summary.json        how much of each, and what was left out

A family is on one side as a whole. Families that were written to be held out are; those of runs are
by a hash of their name, so that a data set made anew splits as the earlier one did. Whatever shares
a task or its code with a held-out one is not learnt from either.
"""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from kernelwright.tools.learning.contract.launches import interface
from kernelwright.tools.learning.contract.prompts import question
from kernelwright.tools.learning.data.records import Attempt, Problem, Row, write_lines
from kernelwright.tools.learning.data.rows import (
    by_question,
    contrastive_row,
    exemplars,
    honest,
    instructions,
    preferences,
    repairs,
    right,
    shots,
)
from kernelwright.tools.types import Value

INSTRUCTIONS, REPAIRS = "instructions.jsonl", "repairs.jsonl"
PREFERENCES, CONTRASTIVE = "preferences.jsonl", "contrastive.jsonl"
ATTEMPTS, PROBLEMS, HELD_OUT = "attempts.jsonl", "problems.jsonl", "held_out.jsonl"
SUMMARY = "summary.json"
_PARTS = 1000


class Summary(Value):
    """What a data set holds."""

    instructions: int
    repairs: int
    preferences: int
    contrastive: int
    problems: int
    held_out: int
    families: tuple[str, ...]
    held_out_families: tuple[str, ...]
    attempts: int
    removed: int
    left_out: tuple[tuple[str, str], ...] = ()


class Split(Value):
    """Attempts and problems of the families to learn from, and the problems held out."""

    attempts: tuple[Attempt, ...]
    problems: tuple[Problem, ...]
    held_out: tuple[Problem, ...]


def is_held_out(family: str, share: float, always: Collection[str] = ()) -> bool:
    """Whether a family is evaluated on; by its name alone, but for those that always are."""
    if family in always:
        return True
    place = int.from_bytes(sha256(family.encode()).digest()[:4], "big") % _PARTS
    return place < share * _PARTS


def split(
    attempts: Iterable[Attempt],
    problems: Iterable[Problem],
    *,
    share: float,
    always: Collection[str] = (),
    never: Collection[str] = (),
) -> Split:
    """Attempts and problems by side.

    Args:
        attempts: Of all families.
        problems: Likewise.
        share: Of families to hold out, of those that are in neither list.
        always: Families that are held out.
        never: Families that are not.
    """

    def out(family: str) -> bool:
        return family not in never and is_held_out(family, share, always)

    every, known = list(attempts), list(problems)
    held = [problem for problem in known if out(problem.family)]
    keys = {problem.key for problem in held} | {one.task for one in every if out(one.family)}
    codes = {one.code for one in every if out(one.family)}
    kept = [one for one in every if one.task not in keys and one.code not in codes]
    learnt = [problem for problem in known if problem.key not in keys]
    return Split(attempts=tuple(kept), problems=tuple(learnt), held_out=tuple(held))


def contrastive(
    attempts: Iterable[Attempt], problems: Mapping[str, Problem], *, seed: int
) -> list[Row]:
    """Prompts with exemplars of distinct speeds, answered by something faster than these."""
    rows = []
    for (task, contract, language), group in by_question(attempts).items():
        good = [one for one in right(group) if not one.repairs]
        if task not in problems or len(good) < 3:
            continue
        best = good[0]
        shown = exemplars(good[1:], random.Random(f"{seed} {best.id}"))
        beaten = shown and (shown[-1].speedup or 0.0) < (best.speedup or 0.0)
        if len(shown) < 2 or not beaten:
            continue
        at = problems[task].task
        names = interface(at) if contract == "short" else None
        analysis = next((one.analysis for one in group if one.analysis), "")
        asked = question(at, names, language, exemplars=shots(shown), analysis=analysis)
        rows.append(contrastive_row(shown, asked, best))
    return rows


def write(
    folder: Path,
    attempts: Sequence[Attempt],
    problems: Sequence[Problem],
    *,
    share: float,
    always: Collection[str],
    never: Collection[str] = (),
    seed: int,
    left_out: tuple[tuple[str, str], ...] = (),
) -> Summary:
    """Write a data set; answers what is in it.

    Args:
        folder: Where to.
        attempts: All there are, cheats and repetitions included.
        problems: The tasks they are of, and others.
        share: Of families to hold out.
        always: Families that are held out.
        never: Families that are not.
        seed: Of the choice of exemplars.
        left_out: What could not be used, for the summary.
    """
    kept = honest(attempts)
    parts = split(kept, problems, share=share, always=always, never=never)
    of = {problem.key: problem for problem in parts.problems}
    contrasted = contrastive(parts.attempts, of, seed=seed)
    counts = {
        "instructions": write_lines(folder / INSTRUCTIONS, instructions(parts.attempts)),
        "repairs": write_lines(folder / REPAIRS, repairs(parts.attempts)),
        "preferences": write_lines(folder / PREFERENCES, preferences(parts.attempts)),
        "contrastive": write_lines(folder / CONTRASTIVE, contrasted),
        "attempts": write_lines(folder / ATTEMPTS, parts.attempts),
        "problems": write_lines(folder / PROBLEMS, of.values()),
        "held_out": write_lines(folder / HELD_OUT, _once(parts.held_out)),
    }
    summary = Summary(
        **counts,
        families=tuple(sorted({one.family for one in parts.attempts})),
        held_out_families=tuple(sorted({one.family for one in parts.held_out})),
        removed=len(attempts) - len(parts.attempts),
        left_out=left_out,
    )
    (folder / SUMMARY).write_text(summary.model_dump_json(indent=1), encoding="utf-8")
    return summary


def _once(problems: Iterable[Problem]) -> list[Problem]:
    return [*{problem.key: problem for problem in problems}.values()]
