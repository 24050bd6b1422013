"""Where the search stands, what was just tried, and who leads."""

from collections.abc import Sequence

from kernelwright.agents.assistant.types.chat import ChatReply, Picture, Table, Words
from kernelwright.graphs.conversation.driving import AFTER, CONTINUE, NO_RUN, PAUSE, STOP
from kernelwright.graphs.conversation.place import Place
from kernelwright.graphs.run_view import RunView
from kernelwright.graphs.run_view.events import (
    CandidateJudged,
    CandidateWritten,
    Event,
    IdeasProposed,
)
from kernelwright.graphs.run_view.story import Story
from kernelwright.graphs.run_view.wording import (
    STATUS,
    VERDICT,
    count,
    milliseconds,
    one_line,
    quiet,
    ratio,
    seconds,
    waiting_words,
)

LEADERS = 5


async def show(place: Place) -> ChatReply:
    """The run as it stands."""
    story = await place.story()
    if story is None:
        if place.now.card is not None:
            return ChatReply.of("The task is on the table, and no search has begun.")
        return ChatReply.of(NO_RUN)
    pieces = [
        Words(text=standing_words(place, story)),
        Words(text=latest_words(story.view, story.events)),
    ]
    shown = [piece for piece in pieces if piece.text]
    table = leaders_of(story.view)
    picture = Picture(what="trajectory", run=story.record.id)
    offers = (PAUSE, STOP) if place.life else (CONTINUE, *AFTER)
    return ChatReply(pieces=(*shown, *table, picture), offers=offers)


def standing_words(place: Place, story: Story) -> str:
    """Whether it runs, how far it is, and what it has reached."""
    life = place.life
    if life is not None:
        doing = {"pausing": "is pausing", "stopping": "is stopping"}.get(life.state, "is running")
    else:
        doing = "has finished" if story.record.status == "finished" else "is not running"
    view, most = story.view, story.record.profile.rounds
    words = (
        f"The search {doing}: round {view.round} of {most}, "
        f"{count(len(view.standings), 'candidate')} judged, {view.counts.correct} correct."
    )
    if life is None and story.summary is not None:
        words += f" Result: {STATUS[story.summary.status]}."
        if story.summary.stopped_because:
            words += f" It ended because: {one_line(story.summary.stopped_because, 300)}."
    waiting = place.lives.ahead(place.home) if life is not None else 0
    if waiting:
        words += f" {waiting_words(waiting)}"
    return f"{words} {best_words(view)}"


def best_words(view: RunView) -> str:
    """The best so far against the best baseline."""
    best = view.best
    if best is None:
        return "Nothing correct yet."
    words = f"Best so far: `{best.id}` at {milliseconds(view.best_ms)}"
    return f"{words}{ahead_words(view)}; it tries *{plain_title(view, best.candidate.idea)}*."


def ahead_words(view: RunView) -> str:
    """How far the best is ahead; without comparisons pair by pair that is a first impression."""
    worst = view.best.slowest_comparison if view.best else None
    if worst is not None:
        interval = f"95 % interval {worst.ci95_low:.2f} to {worst.ci95_high:.2f}"
        return f", {ratio(worst.ratio)} as fast as {quiet(worst.baseline)} ({interval})"
    if view.speedup is None:
        return ""
    return f", about {ratio(view.speedup)} as fast as PyTorch by a first, short timing"


def latest_words(view: RunView, events: Sequence[Event]) -> str:
    """What was tried last, and how it went."""
    for event in reversed(events):
        if isinstance(event, CandidateJudged):
            return _tried_words(view, event)
        if isinstance(event, CandidateWritten):
            return f"Being judged: *{plain_title(view, event.candidate.idea)}*."
        if isinstance(event, IdeasProposed):
            return f"Being written: {count(len(event.ideas), 'idea')} of round {event.round}."
    return ""


def _tried_words(view: RunView, event: CandidateJudged) -> str:
    found, evaluation = view.candidates.get(event.evaluation.candidate), event.evaluation
    idea = plain_title(view, found.candidate.idea) if found else "an idea"
    verdict, took = VERDICT[evaluation.verdict], milliseconds(evaluation.median_ms)
    age = seconds((view.latest - event.at).total_seconds()) if view.latest else "0.0 s"
    ago = "" if age.startswith("0.0") else f", {age} before the latest news"
    return f"Last tried: *{idea}* as `{evaluation.candidate}`: {verdict}, {took}{ago}."


def leaders_of(view: RunView) -> tuple[Table, ...]:
    """The fastest correct candidates."""
    if not view.leaders:
        return ()
    rows = tuple(
        (
            item.name,
            item.id,
            milliseconds(item.correct_ms),
            "timed briefly" if item.slowest_comparison is None else ratio(view.speedup_of(item)),
            one_line(view.title(item.candidate.idea), 60),
        )
        for item in view.leaders[:LEADERS]
    )
    columns = ("", "candidate", "time", "vs best baseline", "idea")
    return (Table(title="leaders", columns=columns, rows=rows),)


def plain_title(view: RunView, idea: str) -> str:
    """An idea's title as it may stand in words: no markup of anybody's."""
    return quiet(view.title(idea))
