"""Where the search stands, what was just tried, and who leads."""

from agents.assistant.types.chat import ChatReply, Picture, Table, Words
from graphs.desk.driving import AFTER, CONTINUE, NO_RUN, PAUSE, STOP
from graphs.desk.place import Place
from graphs.events import CandidateJudged, CandidateWritten, IdeasProposed
from graphs.story import Story
from graphs.words import (
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
    pieces = [Words(text=standing_words(place, story)), Words(text=latest_words(story))]
    shown = [piece for piece in pieces if piece.text]
    table = leaders_of(story)
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
    rounds = max((event.round for event in story.events), default=0)
    made, correct = len(story.standings), len(story.leaders)
    words = (
        f"The search {doing}: round {rounds} of {story.record.profile.rounds}, "
        f"{count(made, 'candidate')} judged, {correct} correct."
    )
    if life is None and story.summary is not None:
        words += f" Result: {STATUS[story.summary.status]}."
        if story.summary.stopped_because:
            words += f" It ended because: {one_line(story.summary.stopped_because, 300)}."
    waiting = place.lives.ahead(place.home) if life is not None else 0
    if waiting:
        words += f" {waiting_words(waiting)}"
    return f"{words} {best_words(story)}"


def best_words(story: Story) -> str:
    """The best so far against the best baseline."""
    if story.best is None:
        return "Nothing correct yet."
    took = story.best.evaluation.median_ms
    words = f"Best so far: `{story.best.candidate.id}` at {milliseconds(took)}"
    return (
        f"{words}{ahead_words(story)}; it tries *{plain_title(story, story.best.candidate.idea)}*."
    )


def ahead_words(story: Story) -> str:
    """How far the best is ahead; without comparisons pair by pair that is a first impression."""
    best = story.best
    if best is None:
        return ""
    worst = min(best.evaluation.comparisons, key=lambda item: item.ratio, default=None)
    if worst is not None:
        interval = f"95 % interval {worst.ci95_low:.2f} to {worst.ci95_high:.2f}"
        return f", {ratio(worst.ratio)} as fast as {quiet(worst.baseline)} ({interval})"
    base, took = best_baseline_ms(story), best.evaluation.median_ms
    if base is None or not took:
        return ""
    return f", about {ratio(base / took)} as fast as PyTorch by a first, short timing"


def best_baseline_ms(story: Story) -> float | None:
    """The time to beat."""
    try:
        best = story.baselines.best if story.baselines else None
    except LookupError:
        return None
    return best.measurement.median_ms if best and best.measurement else None


def latest_words(story: Story) -> str:
    """What was tried last, and how it went."""
    for event in reversed(story.events):
        if isinstance(event, CandidateJudged):
            written = {item.candidate.id: item for item in story.written}
            item = written.get(event.evaluation.candidate)
            idea = plain_title(story, item.candidate.idea) if item else "an idea"
            verdict = VERDICT[event.evaluation.verdict]
            took = milliseconds(event.evaluation.median_ms)
            age = seconds((story.events[-1].at - event.at).total_seconds())
            ago = "" if age.startswith("0.0") else f", {age} before the latest news"
            return (
                f"Last tried: *{idea}* as `{event.evaluation.candidate}`: {verdict}, {took}{ago}."
            )
        if isinstance(event, CandidateWritten):
            return f"Being judged: *{plain_title(story, event.candidate.idea)}*."
        if isinstance(event, IdeasProposed):
            return f"Being written: {count(len(event.ideas), 'idea')} of round {event.round}."
    return ""


def leaders_of(story: Story) -> tuple[Table, ...]:
    """The fastest correct candidates."""
    if not story.leaders:
        return ()
    rows = []
    for item in story.leaders[:LEADERS]:
        compared = item.evaluation.comparisons
        worst = min(compared, key=lambda one: one.ratio, default=None)
        rows.append(
            (
                f"v{item.number}",
                item.candidate.id,
                milliseconds(item.evaluation.median_ms),
                ratio(worst.ratio) if worst else "timed briefly",
                one_line(story.title(item.candidate.idea), 60),
            )
        )
    columns = ("", "candidate", "time", "vs best baseline", "idea")
    return (Table(title="leaders", columns=columns, rows=tuple(rows)),)


def plain_title(story: Story, idea: str) -> str:
    """An idea's title as it may stand in words: no markup of anybody's."""
    return quiet(story.title(idea))
