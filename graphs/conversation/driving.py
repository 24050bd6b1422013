"""Starting, pausing, going on, stopping."""

from pathlib import Path

from kernelwright.agents.assistant.types.chat import ChatReply, Offer, Words
from kernelwright.agents.assistant.types.commands import (
    ContinueSearch,
    ExplainCandidate,
    ExportResult,
    GetReport,
    PauseSearch,
    ShowProgress,
    StartSearch,
    StopSearch,
)
from kernelwright.agents.shared.steering import Steering
from kernelwright.graphs.conversation.life import Life
from kernelwright.graphs.conversation.place import Place
from kernelwright.graphs.conversation.table import OnTable
from kernelwright.graphs.run_view.wording import count, one_line, seconds
from kernelwright.profiles.load import SearchProfile, search_profile
from kernelwright.tools.archive import RunRecord
from kernelwright.tools.types import Refusal

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


async def start(place: Place, wish: StartSearch) -> ChatReply:
    """Begin the search over the task on the table."""
    now = place.now
    if place.life is not None:
        return ChatReply.of(
            "A search is running already in this conversation; stop it first.", PROGRESS, STOP
        )
    if now.task is None:
        return ChatReply.of("There is no task on the table yet. Attach a file or paste a module.")
    profile = profile_of(place, wish)
    life = await place.lives.begin(
        place.home,
        Path(now.file),
        now.policy,
        now.task,
        profile,
        audited=now.audited,
        models=place.settings.models,
        seed=place.settings.seed,
        steering=wishes_of(now),
    )
    if not life.run:
        return ChatReply.of(f"The search could not begin: {why(life)}.")
    await place.table.put(now.model_copy(update={"run": life.run, "waiting": False}))
    words = (
        f"The search has begun as run `{life.run}`: {one_line(profile.name, 20)}, up to "
        f"{count(profile.rounds, 'round')} and {seconds(profile.seconds)}. You can leave; it goes "
        "on, and you can steer it by writing at any time."
    )
    return ChatReply.of(words, PAUSE, STOP)


def wishes_of(now: OnTable) -> Steering:
    """What the person said before the search began; precisions they allow are hints."""
    hints = dict.fromkeys((*now.steering.hints, *now.precisions))
    return now.steering.model_copy(update={"hints": tuple(hints)})


def profile_of(place: Place, wish: StartSearch) -> SearchProfile:
    """How much the search may spend."""
    profile = search_profile(wish.search or place.settings.search)
    limits = {"rounds": wish.rounds, "seconds": wish.seconds}
    given = {name: limit for name, limit in limits.items() if limit is not None and limit > 0}
    return profile.model_copy(update=given)


async def pause(place: Place) -> ChatReply:
    """Pause at the end of the present step."""
    life = place.life
    if life is None:
        return await _not_running(place)
    if life.state == "stopping":
        return ChatReply.of("It is ending already, with the best so far.")
    place.lives.pause(life)
    return ChatReply.of(
        "Pausing: the present step is finished first. Nothing is lost, and nothing is measured "
        "twice when you continue.",
        CONTINUE,
        STOP,
    )


async def stop(place: Place) -> ChatReply:
    """End now."""
    life = place.life
    if life is None:
        return await _not_running(place)
    place.lives.stop(life)
    return ChatReply.of(
        "Stopped with the best so far. You can continue it later.", CONTINUE, *AFTER
    )


async def go_on(place: Place, wish: ContinueSearch) -> ChatReply:
    """Go on with the run, with more to spend where it had used up what it had."""
    record = await place.read(place.record)
    folder = place.folder
    if record is None or folder is None:
        return ChatReply.of(NO_RUN)
    life = place.life
    if life is not None and life.state in {"starting", "running"}:
        return ChatReply.of("It is running already.", PROGRESS, PAUSE, STOP)
    rounds, spend_s = totals(record, wish)
    life = await place.lives.go_on(folder, rounds=rounds, seconds=spend_s)
    if life.state == "ended" and life.problem:
        return ChatReply.of(f"It cannot go on: {why(life)}.")
    more = [f"up to {count(rounds, 'round')}"] if rounds else []
    more += [f"{seconds(spend_s)} in all"] if spend_s else []
    words = f"Going on with run `{record.id}`{', ' if more else ''}{' and '.join(more)}."
    return ChatReply.of(words, PAUSE, STOP)


def totals(record: RunRecord, wish: ContinueSearch) -> tuple[int | None, float | None]:
    """Rounds and seconds of the whole run; a finished one gets as much again by default."""
    profile = record.profile
    rounds = profile.rounds + wish.more_rounds if wish.more_rounds > 0 else None
    spend_s = profile.seconds + wish.more_seconds if wish.more_seconds > 0 else None
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


def why(life: Life) -> str:
    """Why a session ended before it began."""
    if isinstance(life.outcome, Refusal):
        return one_line(life.outcome.sentence, 400).rstrip(".")
    return one_line(life.problem or "it ended at once", 400).rstrip(".")


async def _not_running(place: Place) -> ChatReply:
    record = await place.read(place.record)
    if record is None:
        return ChatReply(pieces=(Words(text=NO_RUN),))
    words = "The search has finished" if record.status == "finished" else "The search is paused"
    return ChatReply.of(f"{words}; nothing is running.", CONTINUE, *AFTER)
