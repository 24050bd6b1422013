"""A person's wishes: hints, pins and bans, and budgets; what each will really do, given the search.

A reply to a wish says what changes, what a newer wish replaces, and when it takes effect. Where no
round follows in which it could, the reply says so and offers to go on. `idea 3` means the third
idea of the run. What is kept are words that the planner acts upon; what is shown are titles.
Budgets hold for the whole run and are acted upon at the search's next decision.
"""

import asyncio
import re
from collections.abc import Sequence

from kernelwright.agents.assistant.parsing.changes import precisions_in
from kernelwright.agents.assistant.parsing.steering import in_playbook_words, topic
from kernelwright.agents.assistant.types import (
    ChangeTask,
    ChatReply,
    ContinueSearch,
    Offer,
    SetBudget,
    Steer,
)
from kernelwright.agents.assistant.types.pieces import Table, Words
from kernelwright.agents.shared.facts import Steering, speaks_of
from kernelwright.graphs.conversation.background.store import kept_steering
from kernelwright.graphs.conversation.budgets import (
    CAPS_DO,
    SHOW_ALL,
    Outlook,
    beyond,
    cap_words,
    caps_of,
    outlook_of,
)
from kernelwright.graphs.conversation.context import ConversationContext
from kernelwright.graphs.conversation.steering import CONTINUE, NO_RUN
from kernelwright.graphs.run_view.events import count, one_line, quiet
from kernelwright.graphs.search.plan_and_write import NOTHING_LEFT
from kernelwright.tools.archive import Archive
from kernelwright.tools.codegen.library.kernel_library import Recipe
from kernelwright.tools.types import Idea

EVERYTHING = "everything"
MOST = 40
LONGEST = 120
# What is offered where a wish comes too late for this search.
MORE_S = 30.0
_IDEA = re.compile(r"(?:the )?idea\s*#?\s*(\d{1,4})", re.IGNORECASE)
MORE = Offer(
    label=f"Continue for {MORE_S:.0f} s",
    wish=ContinueSearch(more_rounds=1, more_seconds=MORE_S),
    hint="With another round, in which the wish holds",
)


async def steer(context: ConversationContext, command: Steer) -> ChatReply:
    """Change the steering; say what changed, what it replaced, and what will come of it."""
    if context.folder is None and not context.now.file:
        return ChatReply.of(NO_RUN)
    ideas = await context.read(lambda: ideas_of(context))
    unknown = _unknown(command, ideas)
    if unknown:
        known = f"There are {count(len(ideas), 'idea')}." if ideas else "No idea was proposed yet."
        return ChatReply.of(f"There is no {unknown}. {known}")
    before = await current(context)
    after = changed(before, command, ideas)
    withdrawn = await _withdrawn(context, command)
    if after == before and not withdrawn:
        return ChatReply.of("That is how it stands already; nothing changed.", SHOW_ALL)
    await keep(context, after)
    outlook = await outlook_of(context)
    rows = difference(before, after, ideas, outlook)
    noted = " ".join(("Noted.", *replaced(before, command, ideas), *withdrawn))
    table = Table(title="what changed", columns=("", "", "what it does"), rows=rows)
    idle = _changes_nothing(rows)
    words = Words(text=NO_EFFECT if idle else effect(outlook))
    more = () if idle else _next(outlook)
    offers = (*more, *_precision_offers(context, command, outlook), SHOW_ALL)
    return ChatReply(
        pieces=(Words(text=noted), table, words),
        offers=(*offers, *_shown(after, ideas)),
        question=bool(more) and outlook.state in {"last", "certifying", "finished"},
    )


NO_EFFECT = "So this changes nothing in this search; it is kept for one in which a model thinks."


def _changes_nothing(rows: Sequence[tuple[str, str, str]]) -> bool:
    """Whether nothing went, and nothing that came is acted upon."""
    return bool(rows) and all(kind in _DOES and words != _DOES[kind] for kind, _, words in rows)


async def _withdrawn(context: ConversationContext, command: Steer) -> tuple[str, ...]:
    """Take back a precision that was allowed before the search, where it is ruled out now."""
    now = context.now
    gone = [name for name in precisions_in(" ".join(command.bans)) if name in now.precisions]
    if context.folder is not None or not gone:
        return ()
    kept = tuple(name for name in now.precisions if name not in gone)
    allow = {"tf32": "tf32", "float16": "fp16", "bfloat16": "bf16"}
    allowed = tuple(name for name in now.policy.allow if name in {allow[word] for word in kept})
    policy = now.policy.model_copy(update={"allow": allowed})
    task = now.task.model_copy(update={"allow": allowed}) if now.task else None
    card = now.card.model_copy(update={"precisions": kept}) if now.card else None
    update = {"precisions": kept, "policy": policy, "task": task, "card": card}
    await context.store.put(now.model_copy(update=update))
    return (f"{', '.join(gone)} was allowed before; that is taken back.",)


async def current(context: ConversationContext) -> Steering:
    """The steering that holds for the run, or for the one to come."""
    folder = context.folder
    if folder is None:
        return context.now.steering
    return await asyncio.to_thread(kept_steering, folder)


async def keep(context: ConversationContext, steering: Steering) -> None:
    """Let steering hold from now on."""
    if context.folder is None:
        await context.store.put(context.now.model_copy(update={"steering": steering}))
    else:
        await context.search_manager.steer(context.folder, steering)


def ideas_of(context: ConversationContext) -> tuple[Idea, ...]:
    """The ideas of the run, in the order of their proposal."""
    if context.folder is None:
        return ()
    archive = Archive.open(context.folder)
    try:
        return archive.ideas()
    finally:
        archive.close()


def changed(before: Steering, command: Steer, ideas: tuple[Idea, ...]) -> Steering:
    """The steering after one more command; what is said last overrules what was said before."""
    new, forgotten = _said(command, ideas), _forgotten(before, command, ideas)
    gone = {*forgotten, *overruled(before, command, ideas)}
    again = {(kind, text.lower()) for kind, of in new.items() for text in of}
    after = {
        kind: (
            *(
                text
                for text in getattr(before, kind)
                if (kind, text) not in gone and (kind, text.lower()) not in again
            ),
            *of,
        )
        for kind, of in new.items()
    }
    return Steering.model_validate(
        {kind: tuple(dict.fromkeys(of))[-MOST:] for kind, of in after.items()}
    )


Wish = tuple[str, str]


def _said(command: Steer, ideas: tuple[Idea, ...]) -> dict[str, tuple[str, ...]]:
    kinds = {"hints": command.hints, "pins": command.pins, "bans": command.bans}
    return {kind: tuple(acted_upon(text, ideas) for text in of) for kind, of in kinds.items()}


def _every(steering: Steering) -> tuple[Wish, ...]:
    fields = ("pins", "hints", "bans")
    return tuple((kind, text) for kind in fields for text in getattr(steering, kind))


def _forgotten(before: Steering, command: Steer, ideas: tuple[Idea, ...]) -> set[Wish]:
    """What is taken back: the very words, or else what means the same."""
    every, found = _every(before), set[Wish]()
    for text in command.forget:
        if text == EVERYTHING:
            return set(every)
        meant = acted_upon(text, ideas)
        exact = {wish for wish in every if wish[1].lower() == meant.lower()}
        found |= exact or {wish for wish in every if topic(wish[1]) == topic(meant)}
    return found


def overruled(before: Steering, command: Steer, ideas: tuple[Idea, ...]) -> set[Wish]:
    """Earlier wishes that a newer one of another kind contradicts."""
    new = _said(command, ideas)
    return {
        (kind, text)
        for kind, text in _every(before)
        for other, of in new.items()
        if other != kind and topic(text) in map(topic, of)
    }


_CALLED = {"pins": "comes first", "hints": "hint", "bans": "never"}


def replaced(before: Steering, command: Steer, ideas: tuple[Idea, ...]) -> tuple[str, ...]:
    """What the newer wish stands against, said aloud."""
    return tuple(
        f"Earlier you had said *{_CALLED[kind]}: {quiet(title(text, ideas), 60)}*; the newer wish "
        "replaces it."
        for kind, text in sorted(overruled(before, command, ideas))
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
    """A hint, pin or ban as a person reads it."""
    for number, idea in enumerate(ideas, start=1):
        if name_of(idea) == text:
            return f"idea {number}: {one_line(idea.title, LONGEST)}"
    return text


def listed(steering: Steering) -> tuple[tuple[str, str], ...]:
    """Every hint, pin and ban with what it is."""
    return tuple((_CALLED[kind], text) for kind, text in _every(steering))


_DOES = {
    "comes first": "such ideas are planned before all others; others follow after them",
    "hint": "such ideas are planned sooner",
    "never": "no such idea is planned any more",
}


def does(kind: str, text: str, outlook: Outlook) -> str:
    """What one wish will really change in this search."""
    lower = precisions_in(text.lower())
    short = {"float16": "fp16", "bfloat16": "bf16", "tf32": "tf32"}
    allowed = {short[name] for name in lower} & {short.get(name, name) for name in outlook.allowed}
    if lower and outlook.models is None:
        return "the built-in rules write no kernels in it, so it changes nothing without a model"
    if lower and not allowed:
        own = "the task does not allow it, so "
        return own + ("none counts anyway" if kind == "never" else "such a kernel would not count")
    if outlook.models is None and outlook.kinds is not None and not _is_known(text, outlook.kinds):
        return "no idea of the built-in rules for this task is about it, so it changes nothing"
    return _DOES[kind]


def _is_known(text: str, kinds: Sequence[tuple[str, ...]]) -> bool:
    words = in_playbook_words(text)
    return any(speaks_of(word, texts) for word in words for texts in kinds)


def difference(
    before: Steering, after: Steering, ideas: tuple[Idea, ...], outlook: Outlook
) -> tuple[tuple[str, str, str], ...]:
    """What came and what went."""
    had, has = listed(before), listed(after)
    came = [
        (kind, title(text, ideas), does(kind, text, outlook))
        for kind, text in has
        if (kind, text) not in had
    ]
    went = [
        ("taken back", f"{title(text, ideas)} ({kind})", "holds no longer")
        for kind, text in had
        if (kind, text) not in has
    ]
    return (*came, *went)


def effect(outlook: Outlook) -> str:
    """When it is acted upon, and whether it is at all."""
    following = outlook.round + 1
    match outlook.state:
        case "before":
            return "It holds from the first round of the search that you begin."
        case "running":
            also = ", and for what models still write in this one" if outlook.models else ""
            return (
                f"It takes effect when round {following} of {outlook.profile.rounds} is planned, "
                f"if the search comes to it{also}. What is being judged is finished first."
            )
        case "last":
            return (
                f"Round {outlook.round} is the last of this search, as {outlook.why}: it ends "
                f"before the wish could change anything. Shall I continue for {MORE_S:.0f} s, with "
                "another round?"
            )
        case "certifying":
            return (
                f"The search is certifying its best already ({outlook.why}); no round follows, so "
                f"the wish changes nothing. Shall I continue for {MORE_S:.0f} s afterwards?"
            )
        case "finished":
            return (
                "The search has finished, so this changes nothing of its result. "
                f"{_nothing_left(outlook)}Shall I continue for {MORE_S:.0f} s with it?"
            )
        case "stopping":
            return "The search is ending with the best so far; the wish holds if it goes on."
        case _:
            return f"The search is paused; it takes effect in round {following} if you continue."


def _nothing_left(outlook: Outlook) -> str:
    if NOTHING_LEFT not in outlook.why:
        return ""
    return "The rules had nothing left to try, so only a ban that is taken back can help. "


def _next(outlook: Outlook) -> tuple[Offer, ...]:
    """The button that makes a wish happen where nothing else would."""
    if outlook.state in {"last", "certifying", "finished"}:
        return (MORE,)
    return (CONTINUE,) if outlook.state in {"pausing", "paused"} else ()


def _precision_offers(
    context: ConversationContext, command: Steer, outlook: Outlook
) -> tuple[Offer, ...]:
    """A run keeps its task; what it may compute in is changed in a new one."""
    wanted = precisions_in(" ".join((*command.hints, *command.pins)).lower())
    if not wanted or context.folder is None or not context.now.file or outlook.allowed:
        return ()
    label = f"Allow {', '.join(wanted)} in a new search"
    return (Offer(label=label, wish=ChangeTask(precisions=wanted)),)


def _unknown(command: Steer, ideas: tuple[Idea, ...]) -> str:
    """The first idea that is named and does not exist."""
    for text in (*command.hints, *command.pins, *command.bans, *command.forget):
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


async def show(context: ConversationContext) -> ChatReply:
    """Every wish in force with what it does, each with a button that takes it back."""
    ideas = await context.read(lambda: ideas_of(context))
    now, outlook = await current(context), await outlook_of(context)
    caps = beyond(outlook.profile) if context.folder else caps_of(context.now.budget)
    rows = [(kind, title(text, ideas), does(kind, text, outlook)) for kind, text in listed(now)]
    rows += [("at most", cap_words(name, value), CAPS_DO[name]) for name, value in caps]
    rows += [("allowed", name, "kernels may compute in it") for name in outlook.allowed]
    if not rows:
        return ChatReply.of(
            "No wish is in force: no hint, pin or ban, and no budget of yours. Tell me what to "
            "focus on, what to leave out, or what the search may spend."
        )
    table = Table(title="your wishes", columns=("", "", "what it does"), rows=tuple(rows))
    lifts = tuple(
        Offer(label=f"Take back: {cap_words(name, value)}", wish=SetBudget(lift=(name,)))
        for name, value in caps
    )
    late = now != Steering() and not outlook.goes_on
    words = (Words(text=effect(outlook)),) if late else ()
    offers = (*_shown(now, ideas), *lifts, *(_next(outlook) if late else ()))
    return ChatReply(pieces=(table, *words), offers=offers)
