"""Commands to a search: start, pause, continue and stop it, and steer it by hints, pins and bans.

A reply to steering says what changes, in whose words, and when it takes effect. `idea 3` means the
third idea of the run. What is kept are words that the planner acts upon; what is shown are titles.
"""

import asyncio
import re
from pathlib import Path

from kernelwright.agents.assistant.types import (
    ChatReply,
    ContinueSearch,
    ExplainCandidate,
    ExportResult,
    GetReport,
    Offer,
    PauseSearch,
    ShowProgress,
    ShowSteering,
    StartSearch,
    Steer,
    StopSearch,
    Table,
    Words,
)
from kernelwright.agents.shared.facts import Steering
from kernelwright.graphs.conversation.context import ConversationContext
from kernelwright.graphs.conversation.search_manager import SearchSession
from kernelwright.graphs.conversation.store import ConversationState, kept_steering
from kernelwright.graphs.run_view.wording import count, one_line, seconds
from kernelwright.profiles.load import SearchProfile, search_profile
from kernelwright.tools.archive import Archive, RunRecord
from kernelwright.tools.codegen.library.kernel_library import Recipe
from kernelwright.tools.types import Idea, Refusal

PAUSE = Offer(label="Pause", wish=PauseSearch(), hint="At the end of the present step")
STOP = Offer(label="Stop", wish=StopSearch(), hint="Now, with the best so far")
CONTINUE = Offer(label="Continue", wish=ContinueSearch())
PROGRESS = Offer(label="Where does it stand?", wish=ShowProgress())
AFTER = (
    Offer(label="Take it home", wish=ExportResult()),
    Offer(label="Explain the best", wish=ExplainCandidate()),
    Offer(label="Report", wish=GetReport()),
)
NO_RUN = "There is no search yet. Attach a file or paste a module, and I will have a look."


async def start(context: ConversationContext, command: StartSearch) -> ChatReply:
    """Begin the search over the loaded task."""
    now = context.now
    if context.search_session is not None:
        return ChatReply.of(
            "A search is running already in this conversation; stop it first.", PROGRESS, STOP
        )
    if now.task is None:
        return ChatReply.of("There is no task on the table yet. Attach a file or paste a module.")
    profile = profile_of(context, command)
    search_session = await context.search_manager.begin(
        context.home,
        Path(now.file),
        now.policy,
        now.task,
        profile,
        audited=now.audited,
        models=context.settings.models,
        seed=context.settings.seed,
        steering=steering_of(now),
    )
    if not search_session.run:
        return ChatReply.of(f"The search could not begin: {why(search_session)}.")
    await context.store.put(now.model_copy(update={"run": search_session.run, "waiting": False}))
    words = (
        f"The search has begun as run `{search_session.run}`: {one_line(profile.name, 20)}, up to "
        f"{count(profile.rounds, 'round')} and {seconds(profile.seconds)}. You can leave; it goes "
        "on, and you can steer it by writing at any time."
    )
    return ChatReply.of(words, PAUSE, STOP)


def steering_of(now: ConversationState) -> Steering:
    """What the person said before the search began; precisions they allow are hints."""
    hints = dict.fromkeys((*now.steering.hints, *now.precisions))
    return now.steering.model_copy(update={"hints": tuple(hints)})


def profile_of(context: ConversationContext, command: StartSearch) -> SearchProfile:
    """How much the search may spend."""
    profile = search_profile(command.search or context.settings.search)
    limits = {"rounds": command.rounds, "seconds": command.seconds}
    given = {name: limit for name, limit in limits.items() if limit is not None and limit > 0}
    return profile.model_copy(update=given)


async def pause(context: ConversationContext) -> ChatReply:
    """Pause at the end of the present step."""
    search_session = context.search_session
    if search_session is None:
        return await _not_running(context)
    if search_session.state == "stopping":
        return ChatReply.of("It is ending already, with the best so far.")
    context.search_manager.pause(search_session)
    return ChatReply.of(
        "Pausing: the present step is finished first. Nothing is lost, and nothing is measured "
        "twice when you continue.",
        CONTINUE,
        STOP,
    )


async def stop(context: ConversationContext) -> ChatReply:
    """End now."""
    search_session = context.search_session
    if search_session is None:
        return await _not_running(context)
    context.search_manager.stop(search_session)
    return ChatReply.of(
        "Stopped with the best so far. You can continue it later.", CONTINUE, *AFTER
    )


async def go_on(context: ConversationContext, command: ContinueSearch) -> ChatReply:
    """Go on with the run, with more to spend where it had used up what it had."""
    record = await context.read(context.record)
    folder = context.folder
    if record is None or folder is None:
        return ChatReply.of(NO_RUN)
    search_session = context.search_session
    if search_session is not None and search_session.state in {"starting", "running"}:
        return ChatReply.of("It is running already.", PROGRESS, PAUSE, STOP)
    rounds, spend_s = totals(record, command)
    search_session = await context.search_manager.go_on(folder, rounds=rounds, seconds=spend_s)
    if search_session.state == "ended" and search_session.problem:
        return ChatReply.of(f"It cannot go on: {why(search_session)}.")
    more = [f"up to {count(rounds, 'round')}"] if rounds else []
    more += [f"{seconds(spend_s)} in all"] if spend_s else []
    words = f"Going on with run `{record.id}`{', ' if more else ''}{' and '.join(more)}."
    return ChatReply.of(words, PAUSE, STOP)


def totals(record: RunRecord, command: ContinueSearch) -> tuple[int | None, float | None]:
    """Rounds and seconds of the whole run; a finished one gets as much again by default."""
    profile = record.profile
    rounds = profile.rounds + command.more_rounds if command.more_rounds > 0 else None
    spend_s = profile.seconds + command.more_seconds if command.more_seconds > 0 else None
    done = record.status == "finished"
    if done and rounds is None and spend_s is None:
        return 2 * profile.rounds, 2 * profile.seconds
    if done and spend_s is None:
        # More rounds need time as well, at the pace that the run had.
        share = (rounds or profile.rounds) / profile.rounds
        spend_s = profile.seconds * share
    if done and rounds is None:
        rounds = 2 * profile.rounds
    return rounds, spend_s


def why(search_session: SearchSession) -> str:
    """Why a session ended before it began."""
    if isinstance(search_session.outcome, Refusal):
        return one_line(search_session.outcome.sentence, 400).rstrip(".")
    return one_line(search_session.problem or "it ended at once", 400).rstrip(".")


async def _not_running(context: ConversationContext) -> ChatReply:
    record = await context.read(context.record)
    if record is None:
        return ChatReply(pieces=(Words(text=NO_RUN),))
    words = "The search has finished" if record.status == "finished" else "The search is paused"
    return ChatReply.of(f"{words}; nothing is running.", CONTINUE, *AFTER)


EVERYTHING = "everything"
MOST = 40
LONGEST = 120
_IDEA = re.compile(r"(?:the )?idea\s*#?\s*(\d{1,4})", re.IGNORECASE)


async def steer(context: ConversationContext, command: Steer) -> ChatReply:
    """Change the steering, and say what changed."""
    if context.folder is None and not context.now.file:
        return ChatReply.of(NO_RUN)
    ideas = await context.read(lambda: ideas_of(context))
    unknown = _unknown(command, ideas)
    if unknown:
        known = f"There are {count(len(ideas), 'idea')}." if ideas else "No idea was proposed yet."
        return ChatReply.of(f"There is no {unknown}. {known}")
    before = await current(context)
    after = changed(before, command, ideas)
    if after == before:
        return ChatReply.of(
            "That is how it stands already; nothing changed.", *_shown(before, ideas)
        )
    await keep(context, after)
    rows = difference(before, after, ideas)
    table = Table(title="what changed", columns=("", ""), rows=rows)
    return ChatReply(
        pieces=(Words(text="Noted."), table, Words(text=effect(context, ideas))),
        offers=(Offer(label="Show all wishes", wish=ShowSteering()), *_shown(after, ideas)),
    )


async def show(context: ConversationContext) -> ChatReply:
    """The hints, pins and bans that hold, each with a button that takes it back."""
    ideas = await context.read(lambda: ideas_of(context))
    now = await current(context)
    if now == Steering():
        return ChatReply.of("No hint, pin or ban holds. Tell me what to focus on or to leave out.")
    rows = tuple((kind, title(text, ideas)) for kind, text in listed(now))
    table = Table(title="your wishes", columns=("", ""), rows=rows)
    return ChatReply(pieces=(table,), offers=_shown(now, ideas))


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
    kinds = {"hints": command.hints, "pins": command.pins, "bans": command.bans}
    new = {kind: tuple(acted_upon(text, ideas) for text in of) for kind, of in kinds.items()}
    gone = {acted_upon(text, ideas).lower() for text in command.forget}
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
    """A hint, pin or ban as a person reads it."""
    for number, idea in enumerate(ideas, start=1):
        if name_of(idea) == text:
            return f"idea {number}: {one_line(idea.title, LONGEST)}"
    return text


def listed(steering: Steering) -> tuple[tuple[str, str], ...]:
    """Every hint, pin and ban with what it is."""
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


def effect(context: ConversationContext, ideas: tuple[Idea, ...]) -> str:
    """When it is acted upon."""
    if context.search_session is None:
        return "It holds as soon as the search goes on."
    following = max((idea.round for idea in ideas), default=0) + 1
    return (
        f"It takes effect when round {following} is planned, and for what is still to be written "
        "in this one. What is being judged right now is finished first."
    )


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
