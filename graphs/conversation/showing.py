"""Code, profiles and the ledger of ideas, as they stand in the archive."""

from kernelwright.agents.assistant.types.chat import ChatReply, Code, Offer, Piece, Table, Words
from kernelwright.agents.assistant.types.commands import ExplainCandidate, ShowCode, ShowProfile
from kernelwright.graphs.conversation.explaining import bounded, picture
from kernelwright.graphs.conversation.naming import candidate_of, label
from kernelwright.graphs.run_view.story import Story
from kernelwright.graphs.run_view.wording import milliseconds, one_line, plain, ratio
from kernelwright.tools.languages import language_of
from kernelwright.tools.types import LedgerEntry


def code(story: Story, wish: ShowCode) -> ChatReply:
    """A candidate's kernel and plan."""
    item = candidate_of(story, wish.candidate)
    language = language_of(item.candidate).spec.fences[0]
    pieces: list[Piece] = [
        Words(text=f"{label(item)}:"),
        Code(title="kernel", text=plain(item.candidate.kernel), language=language),
        Code(title="plan", text=plain(item.candidate.plan), language="python"),
    ]
    settings = tuple((one_line(s.name, 40), str(s.value)) for s in item.candidate.settings)
    if settings:
        pieces.append(Table(title="settings", columns=("name", "value"), rows=settings))
    explain = Offer(label="Explain it", wish=ExplainCandidate(candidate=item.candidate.id))
    return ChatReply(pieces=tuple(pieces), offers=(explain,))


def profile(story: Story, wish: ShowProfile) -> ChatReply:
    """What the profiler read of a candidate."""
    item = candidate_of(story, wish.candidate)
    known = story.profiles.get(item.candidate.id)
    if known is None:
        who = ", ".join(f"v{w.number}" for w in story.written if w.candidate.id in story.profiles)
        hint = f" Profiles exist of {who}." if who else " Nobody was profiled yet."
        return ChatReply.of(f"{label(item)} was not profiled: only leaders are.{hint}")
    readings, _ = known
    rows = tuple(
        (
            one_line(reading.name, 80),
            f"{reading.value:.4g} {one_line(reading.unit, 20)}"
            if reading.value is not None
            else "-",
            reading.rank.value,
            one_line(reading.source, 160),
        )
        for reading in readings
    )
    columns = ("reading", "value", "how it was come by", "source")
    table = Table(title=f"profile of v{item.number}", columns=columns, rows=rows)
    return ChatReply(pieces=(*bounded(story, item.candidate.id), table, picture(story)))


def ledger(story: Story) -> ChatReply:
    """Every idea, what was predicted of it and what it brought."""
    if not story.ideas:
        return ChatReply.of("No idea was proposed yet.")
    entries = {entry.idea: entry for entry in story.ledger}
    rows = tuple(
        (
            str(number),
            str(idea.round),
            one_line(idea.title, 90),
            milliseconds(idea.predicted_ms),
            *_outcome(entries.get(idea.id)),
        )
        for number, idea in enumerate(story.ideas, start=1)
    )
    columns = ("idea", "round", "", "predicted", "measured", "gain", "correct")
    return ChatReply(pieces=(Table(title="ideas", columns=columns, rows=rows),))


def _outcome(entry: LedgerEntry | None) -> tuple[str, str, str]:
    if entry is None or not entry.candidates:
        return "-", "-", "not tried yet"
    measured = milliseconds(entry.measured_ms)
    return measured, ratio(entry.gain), f"{entry.correct} of {entry.candidates}"
