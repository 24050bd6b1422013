"""Hints, pins and bans: what changes, in whose words, and when it takes effect.

`idea 3` means the third idea of the run. What is kept are words that the planner acts upon; what
is said are titles.
"""

import asyncio
import re

from kernelwright.agents.assistant.types.chat import ChatReply, Offer, Table, Words
from kernelwright.agents.assistant.types.commands import ShowSteering, Steer
from kernelwright.agents.shared.steering import Steering
from kernelwright.graphs.conversation.driving import NO_RUN
from kernelwright.graphs.conversation.place import Place
from kernelwright.graphs.conversation.terms import kept_steering
from kernelwright.graphs.run_view.wording import count, one_line
from kernelwright.tools.archive import Archive
from kernelwright.tools.codegen.library.ideas import Recipe
from kernelwright.tools.types import Idea

EVERYTHING = "everything"
MOST = 40
LONGEST = 120
_IDEA = re.compile(r"(?:the )?idea\s*#?\s*(\d{1,4})", re.IGNORECASE)


async def steer(place: Place, wish: Steer) -> ChatReply:
    """Change the wishes, and say what changed."""
    if place.folder is None and not place.now.file:
        return ChatReply.of(NO_RUN)
    ideas = await place.read(lambda: ideas_of(place))
    unknown = _unknown(wish, ideas)
    if unknown:
        known = f"There are {count(len(ideas), 'idea')}." if ideas else "No idea was proposed yet."
        return ChatReply.of(f"There is no {unknown}. {known}")
    before = await current(place)
    after = changed(before, wish, ideas)
    if after == before:
        return ChatReply.of(
            "That is how it stands already; nothing changed.", *_shown(before, ideas)
        )
    await keep(place, after)
    rows = difference(before, after, ideas)
    table = Table(title="what changed", columns=("", ""), rows=rows)
    return ChatReply(
        pieces=(Words(text="Noted."), table, Words(text=effect(place, ideas))),
        offers=(Offer(label="Show all wishes", wish=ShowSteering()), *_shown(after, ideas)),
    )


async def show(place: Place) -> ChatReply:
    """The wishes that hold, each with a button that takes it back."""
    ideas = await place.read(lambda: ideas_of(place))
    now = await current(place)
    if now == Steering():
        return ChatReply.of("No hint, pin or ban holds. Tell me what to focus on or to leave out.")
    rows = tuple((kind, title(text, ideas)) for kind, text in listed(now))
    table = Table(title="your wishes", columns=("", ""), rows=rows)
    return ChatReply(pieces=(table,), offers=_shown(now, ideas))


async def current(place: Place) -> Steering:
    """The wishes that hold for the run, or for the one to come."""
    folder = place.folder
    if folder is None:
        return place.now.steering
    return await asyncio.to_thread(kept_steering, folder)


async def keep(place: Place, steering: Steering) -> None:
    """Let wishes hold from now on."""
    if place.folder is None:
        await place.table.put(place.now.model_copy(update={"steering": steering}))
    else:
        await place.lives.steer(place.folder, steering)


def ideas_of(place: Place) -> tuple[Idea, ...]:
    """The ideas of the run, in the order of their proposal."""
    if place.folder is None:
        return ()
    archive = Archive.open(place.folder)
    try:
        return archive.ideas()
    finally:
        archive.close()


def changed(before: Steering, wish: Steer, ideas: tuple[Idea, ...]) -> Steering:
    """The wishes after one more; what is said last overrules what was said before."""
    kinds = {"hints": wish.hints, "pins": wish.pins, "bans": wish.bans}
    new = {kind: tuple(acted_upon(text, ideas) for text in of) for kind, of in kinds.items()}
    gone = {acted_upon(text, ideas).lower() for text in wish.forget}
    gone |= {text.lower() for of in new.values() for text in of}
    kept = Steering() if EVERYTHING in gone else before
    after = {
        kind: (*(text for text in getattr(kept, kind) if text.lower() not in gone), *of)
        for kind, of in new.items()
    }
    return Steering.model_validate(
        {kind: tuple(dict.fromkeys(of))[-MOST:] for kind, of in after.items()}
    )


def acted_upon(text: str, ideas: tuple[Idea, ...]) -> str:
    """What the planner understands: an idea by its recipe, or by its title where it has none."""
    match = _IDEA.fullmatch(text.strip())
    if match is None:
        return one_line(text, LONGEST)
    return name_of(ideas[int(match[1]) - 1]) if 0 < int(match[1]) <= len(ideas) else text.strip()


def name_of(idea: Idea) -> str:
    """An idea in the words by which its kind is recognised."""
    recipe = Recipe.from_idea(idea)
    if recipe is not None and recipe.changed in recipe.choices:
        return f"{recipe.changed}={recipe.choices[recipe.changed]}"
    return one_line(idea.title, LONGEST)


def title(text: str, ideas: tuple[Idea, ...]) -> str:
    """A wish as a person reads it."""
    for number, idea in enumerate(ideas, start=1):
        if name_of(idea) == text:
            return f"idea {number}: {one_line(idea.title, LONGEST)}"
    return text


def listed(steering: Steering) -> tuple[tuple[str, str], ...]:
    """Every wish with what it is."""
    return (
        *(("comes first", text) for text in steering.pins),
        *(("hint", text) for text in steering.hints),
        *(("never", text) for text in steering.bans),
    )


def difference(
    before: Steering, after: Steering, ideas: tuple[Idea, ...]
) -> tuple[tuple[str, str], ...]:
    """What came and what went."""
    had, has = listed(before), listed(after)
    came = [(kind, title(text, ideas)) for kind, text in has if (kind, text) not in had]
    went = [
        ("taken back", f"{title(text, ideas)} ({kind})")
        for kind, text in had
        if (kind, text) not in has
    ]
    return (*came, *went)


def effect(place: Place, ideas: tuple[Idea, ...]) -> str:
    """When it is acted upon."""
    if place.life is None:
        return "It holds as soon as the search goes on."
    following = max((idea.round for idea in ideas), default=0) + 1
    return (
        f"It takes effect when round {following} is planned, and for what is still to be written "
        "in this one. What is being judged right now is finished first."
    )


def _unknown(wish: Steer, ideas: tuple[Idea, ...]) -> str:
    """The first idea that is named and does not exist."""
    for text in (*wish.hints, *wish.pins, *wish.bans, *wish.forget):
        match = _IDEA.fullmatch(text.strip())
        if match and not 0 < int(match[1]) <= len(ideas):
            return f"idea {int(match[1])}"
    return ""


def _shown(steering: Steering, ideas: tuple[Idea, ...]) -> tuple[Offer, ...]:
    return tuple(
        Offer(
            label=f"Take back: {one_line(title(text, ideas), 40)}",
            wish=Steer(forget=(text,)),
            hint=kind,
        )
        for kind, text in listed(steering)[:8]
    )
