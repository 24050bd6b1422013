"""The candidates that a round may start from, a line each: where they stand and how they got there.

Which they are is for the archive of elites to say; their sources go to whoever writes code.
"""

from collections.abc import Mapping, Sequence

from agents.minds.text import milliseconds, shortened
from tools.archive import Standing, behaviour, gain, origin

_NOTE_CHARACTERS = 160


def parents_card(parents: Sequence[Standing], standings: Sequence[Standing]) -> str:
    """The parents, the fastest first; "" where there are none."""
    if not parents:
        return ""
    known = {item.candidate.id: item for item in standings}
    return "\n".join(f"- {_line(item, _brought(item, known))}" for item in parents)


def _brought(item: Standing, known: Mapping[str, Standing]) -> float | None:
    source = origin(item, known)
    return gain(source.evaluation, item.evaluation) if source else None


def _line(item: Standing, brought: float | None) -> str:
    candidate, cell = item.candidate, behaviour(item.candidate, item.evaluation)
    parts = [
        f"`{candidate.id}` ({candidate.idea}): {milliseconds(item.evaluation.median_ms)}",
        f"memory '{cell.memory}', compute '{cell.compute}', parallel '{cell.parallel}'",
        f"{brought:.2f} times as fast as what it set out from" if brought else "",
        shortened(" ".join(candidate.note.split()), _NOTE_CHARACTERS),
    ]
    return "; ".join(part for part in parts if part)
