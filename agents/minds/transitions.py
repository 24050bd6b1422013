"""Moves between behaviours in words, for prompts: what paid from where, what cost, what failed.

The same move tried by several ideas is one line with the best of them. What counts as a move is
for `tools.archive.transitions` to say.
"""

from collections.abc import Iterable, Sequence

from tools.archive import UNKNOWN, Behaviour, Standing, Transition, transitions
from tools.nouns import Idea

PAID, COST, FAILED = 6, 3, 3
# Less than this is the noise of a screening, neither a gain nor a loss.
WORTH_SAYING = 1.03


def moves(standings: Sequence[Standing], ideas: Iterable[Idea]) -> tuple[str, ...]:
    """One line a move: those that paid, the most first, then those that cost or never ran."""
    titles = {idea.id: idea.title for idea in ideas}
    grouped: dict[tuple[Behaviour, Behaviour], list[Transition]] = {}
    for item in transitions(standings):
        grouped.setdefault((item.before, item.after), []).append(item)
    best = [max(of, key=_gain) for of in grouped.values()]
    several = {(of[0].before, of[0].after): len(of) for of in grouped.values()}
    paid = sorted((item for item in best if _gain(item) >= WORTH_SAYING), key=_gain, reverse=True)
    cost = sorted((item for item in best if 0 < _gain(item) <= 1 / WORTH_SAYING), key=_gain)
    failed = [item for item in best if item.gain is None]
    shown = (*paid[:PAID], *cost[:COST], *failed[-FAILED:])
    return tuple(_line(item, titles, several[item.before, item.after]) for item in shown)


def _gain(item: Transition) -> float:
    return item.gain or 0.0


def _line(item: Transition, titles: dict[str, str], ideas: int) -> str:
    title = titles.get(item.idea, "")
    what = f"{item.idea} '{title}'" if title else item.idea or "an idea"
    more = f", best of {ideas} ideas" if ideas > 1 else ""
    way = f"{what}, from {item.source}; {item.correct} of {item.tried} correct{more}"
    return f"{_brought(item)}: {_path(item.before, item.after)} ({way})"


def _brought(item: Transition) -> str:
    if item.gain is None:
        return "nothing correct"
    if item.gain >= 1.0:
        return f"{item.gain:.2f} times as fast"
    return f"{1 / item.gain:.2f} times as slow"


def _path(before: Behaviour, after: Behaviour) -> str:
    """What changed, axis by axis; where nothing did, where it stayed."""
    axes = (
        ("memory", before.memory, after.memory),
        ("compute", before.compute, after.compute),
        ("parallel", before.parallel, after.parallel),
    )
    changed = [f"{name} '{one}' -> '{other}'" for name, one, other in axes if one != other]
    if changed:
        return "; ".join(changed)
    known = [f"{name} '{one}'" for name, one, _ in axes if one != UNKNOWN]
    return f"within {', '.join(known) or 'one behaviour'}"
