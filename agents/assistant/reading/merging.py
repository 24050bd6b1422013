"""Puts together what belongs together: steerings in a row are one, changes of the task too."""

import re
from collections.abc import Sequence

from agents.assistant.assistant import Turn
from agents.assistant.reading.changes import change_in
from agents.assistant.reading.german import translated
from agents.assistant.reading.plain import plain
from agents.assistant.wishes import ChangeTask, Steer, Wish

_ALLOWED = re.compile(r"\b(?:allow\w*|permit\w*|fine|ok|okay|may|can|accept\w*|precision)\b")


def merged(wishes: Sequence[Wish]) -> tuple[Wish, ...]:
    """The wishes with neighbours of one kind joined, and nothing twice in a row."""
    found: list[Wish] = []
    for wish in wishes:
        last = found[-1] if found else None
        joined = _joined(last, wish)
        if joined is not None:
            found[-1] = joined
        elif wish != last:
            found.append(wish)
    return tuple(found)


def with_types(wishes: tuple[Wish, ...], sentence: str, turn: Turn) -> tuple[Wish, ...]:
    """In `fp16, shapes (8, 128) and (128,)` the type is that of the shapes, wherever it stands."""
    words = translated(plain(sentence))
    shaped = [item for item in wishes if isinstance(item, ChangeTask) and item.inputs]
    if not shaped or _ALLOWED.search(words):
        return wishes
    whole = change_in(words, sentence, turn)
    if not isinstance(whole, ChangeTask):
        return wishes
    others = [item for item in wishes if not isinstance(item, ChangeTask)]
    return (whole, *others)


def _joined(last: Wish | None, wish: Wish) -> Wish | None:
    if isinstance(wish, Steer) and isinstance(last, Steer):
        return Steer(
            hints=(*last.hints, *wish.hints),
            pins=(*last.pins, *wish.pins),
            bans=(*last.bans, *wish.bans),
            forget=(*last.forget, *wish.forget),
        )
    if isinstance(wish, ChangeTask) and isinstance(last, ChangeTask):
        return ChangeTask(
            inputs=(*last.inputs, *wish.inputs),
            sizes=(*last.sizes, *wish.sizes),
            entry=wish.entry or last.entry,
            precisions=(*last.precisions, *wish.precisions),
            gpu=wish.gpu or last.gpu,
        )
    return None
