"""Commands to a search: start, pause, continue and stop it, and give a running one more to spend.

Wishes about where to look and what to spend stand in `wishes`.
"""

import asyncio
import math
from pathlib import Path

from kernelwright.agents.assistant.types import (
    AskAbout,
    ChatReply,
    ContinueSearch,
    ExplainCandidate,
    ExportResult,
    GetReport,
    Offer,
    PauseSearch,
    ShowProgress,
    StartSearch,
    StopSearch,
)
from kernelwright.agents.assistant.types.pieces import Words
from kernelwright.agents.shared.facts import Steering
from kernelwright.graphs.conversation.background.search_manager import SearchSession
from kernelwright.graphs.conversation.background.store import ConversationState
from kernelwright.graphs.conversation.context import ConversationContext
from kernelwright.graphs.run_view.events import count, one_line, seconds
from kernelwright.graphs.search.pace import Pace, Spent, latest
from kernelwright.profiles.load import SearchProfile, search_profile
from kernelwright.tools.archive import RunRecord
from kernelwright.tools.types import Refusal

PAUSE = Offer(label="Pause", wish=PauseSearch(), hint="At the end of the present step")
STOP = Offer(label="Stop", wish=StopSearch(), hint="Now, with the best so far")
CONTINUE = Offer(label="Continue", wish=ContinueSearch())
BEGIN = Offer(label="Begin the search", wish=StartSearch())
PROGRESS = Offer(label="Where does it stand?", wish=ShowProgress())
AFTER = (
    Offer(label="Take it home", wish=ExportResult()),
    Offer(label="Explain the best", wish=ExplainCandidate()),
    Offer(label="How do I use it?", wish=AskAbout(topic="use")),
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
        return ChatReply.of("There is no task yet. Attach a file or paste a module.")
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
        f"{count(profile.rounds, 'round')}, {_promise(context, profile)} to the end, certification "
        "included. You can leave; it goes on, and you can steer it by writing at any time."
    )
    return ChatReply.of(words, PAUSE, STOP)


def _promise(context: ConversationContext, profile: SearchProfile) -> str:
    card = context.now.card
    pace = latest(context.home) or Pace(device="", kind="cuda" if card and card.gpu else "cpu")
    return pace.promise(profile).words


def steering_of(now: ConversationState) -> Steering:
    """What the person said before the search began; precisions they allow are hints."""
    hints = dict.fromkeys((*now.steering.hints, *now.precisions))
    return now.steering.model_copy(update={"hints": tuple(hints)})


def profile_of(context: ConversationContext, command: StartSearch) -> SearchProfile:
    """How much the search may spend."""
    begin, caps = context.now.begin, {"rounds", "seconds", "tokens", "usd"}
    profile = search_profile(command.search or begin.search or context.settings.search)
    said = (begin, context.now.budget, command)  # the later word holds
    limits = {
        name: cap
        for words in said
        for name, cap in words.model_dump(include=caps, exclude_none=True).items()
    }
    return profile.limited(**{name: cap for name, cap in limits.items() if cap > 0})


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
    search_session, spent = (
        context.search_session,
        await context.search_manager.spent(folder),
    )
    rounds, spend_s = totals(record, command, spent)
    if search_session is not None and search_session.state in {"starting", "running"}:
        return await _more(context, search_session, record, command, (rounds, spend_s))
    search_session = await context.search_manager.go_on(folder, rounds=rounds, seconds=spend_s)
    if search_session.state == "ended" and search_session.problem:
        return ChatReply.of(f"It cannot go on: {why(search_session)}.")
    more = f", for {seconds(command.more_seconds)} more" if command.more_seconds > 0 else ""
    words = f"Going on with run `{record.id}`{more}{_up_to(rounds, spend_s)}."
    return ChatReply.of(words, PAUSE, STOP)


async def measure_again(context: ConversationContext) -> ChatReply:
    """Certify the run's result again, where nothing else is under way."""
    story, folder = await context.story(), context.folder
    if story is None or folder is None:
        return ChatReply.of(NO_RUN)
    if context.search_session is not None:
        return ChatReply.of("The search is not over yet.", PROGRESS, PAUSE, STOP)
    if story.summary is None or story.view.best is None:
        return ChatReply.of("There is no result yet that could be measured again.", CONTINUE)
    search_session = await context.search_manager.measure_again(folder)
    if search_session.state == "ended" and search_session.problem:
        return ChatReply.of(f"It cannot be measured again: {why(search_session)}.")
    return ChatReply.of(f"Measuring {story.view.best.name} again, in a fresh process.")


async def _more(
    context: ConversationContext,
    search_session: SearchSession,
    record: RunRecord,
    command: ContinueSearch,
    most: tuple[int | None, float | None],
) -> ChatReply:
    """More for a search that runs; one that is certifying already goes on as soon as it ended."""
    if not (command.more_rounds or command.more_seconds):
        return ChatReply.of("It is running already.", PROGRESS, PAUSE, STOP)
    story = await context.story()
    if story is not None and story.view.stopped_because:
        context.store.follow(_afterwards(context, search_session, command))
        return ChatReply.of(
            "The search is certifying its best already; as soon as that has ended, it goes on.",
            PROGRESS,
        )
    rounds, spend_s = most
    profile = record.profile.limited(rounds=rounds, seconds=spend_s)
    await context.search_manager.allow(context.home / "runs" / record.id, profile)
    return ChatReply.of(f"The search goes on{_up_to(rounds, spend_s)}.", PROGRESS, PAUSE, STOP)


async def _afterwards(
    context: ConversationContext, search_session: SearchSession, command: ContinueSearch
) -> None:
    await asyncio.shield(asyncio.wrap_future(search_session.done))
    async with context.store.turn:
        if context.now.run == search_session.run and context.search_session is None:
            await go_on(context, command)


def _up_to(rounds: int | None, spend_s: float | None) -> str:
    more = [f"up to {count(rounds, 'round')}"] if rounds else []
    more += [f"{seconds(spend_s)} in all"] if spend_s else []
    return f"{', ' if more else ''}{' and '.join(more)}"


def totals(
    record: RunRecord, command: ContinueSearch, spent: Spent
) -> tuple[int | None, float | None]:
    """Rounds and seconds of the whole run; a finished one gets as much again by default.

    More rounds need time as well, at the pace that the run had, and more time rounds. Seconds that
    a person names are of the whole run, baselines and certification included.
    """
    profile, done = record.profile, record.status == "finished"
    beside_s = 0.0 if profile.seconds_hold == "everything" else spent.whole_s - spent.searched_s
    planned_s = max(profile.seconds + beside_s, spent.whole_s)
    if not (command.more_rounds > 0 or command.more_seconds > 0):
        if not done:
            return None, None
        return 2 * profile.rounds, planned_s + profile.seconds
    more_s = command.more_seconds or profile.seconds * command.more_rounds / profile.rounds
    share = command.more_seconds / profile.seconds
    rounds = command.more_rounds or max(1, math.ceil(profile.rounds * share))
    return profile.rounds + rounds, (spent.whole_s if done else planned_s) + more_s


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
