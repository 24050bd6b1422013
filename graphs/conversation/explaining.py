"""Explains from measurements: a candidate, a round, or why one candidate beats another.

A candidate is named as `best`, `best 2`, `v17` for the seventeenth written, or by its id.
"""

import difflib
import re

from kernelwright.agents.assistant.types import (
    ChatReply,
    CompareCandidates,
    ExplainCandidate,
    ExplainRound,
    ExportResult,
    Offer,
    ShowCode,
    ShowProfile,
)
from kernelwright.agents.assistant.types.pieces import Code, Picture, Piece, Table, Words
from kernelwright.agents.shared.noise import Noise, overlap, timing_of
from kernelwright.graphs.run_view import RunView
from kernelwright.graphs.run_view.events import (
    count,
    milliseconds,
    of_floor,
    one_line,
    plain,
    ratio,
)
from kernelwright.graphs.run_view.figures import LABEL_OF, compared_words, settings_words
from kernelwright.graphs.run_view.story import Story
from kernelwright.tools.archive import Standing, Written, strategy_words
from kernelwright.tools.evaluate.findings import timed, verified
from kernelwright.tools.profile import by_importance, headline
from kernelwright.tools.types import Analysis, Comparison, Evidence, LedgerEntry, Verdict


class Unnamed(ValueError):  # noqa: N818 - a sentence for the person, not a failure of ours
    """Nothing of that name, or several things; the message says which."""


def candidate_of(story: Story, name: str) -> Written:
    """The candidate of that name.

    Raises:
        Unnamed: When there is none, or several begin so.
    """
    wanted = name.strip().lower().lstrip("#")
    if wanted in {"", "best", "the best", "fastest", "leader", "winner"}:
        return _best(story)
    if rank := re.fullmatch(r"best (\d{1,4})", wanted):
        return _placed(story, int(rank[1]))
    if wanted in {"last", "latest", "newest"} and story.written:
        return story.written[-1]
    if number := re.fullmatch(r"v(?:ersion)?\s*(\d{1,6})", wanted):
        return _numbered(story, int(number[1]))
    found = [item for item in story.written if item.candidate.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise Unnamed(f"Several candidates begin with that: {_listed(found[:5])}.")
    if wanted.isdigit():
        return _numbered(story, int(wanted))
    raise Unnamed(f"There is no such candidate. {_known(story)}")


def standing_of(story: Story, name: Written) -> Standing | None:
    """What the judge said of a candidate; None while it has said nothing."""
    found = story.view.candidates.get(name.candidate.id)
    return found.standing if found else None


def label(item: Written | Standing) -> str:
    """A candidate's number, as it is spoken of."""
    return f"v{item.number}"


def _best(story: Story) -> Written:
    if story.best is not None:
        for item in story.written:
            if item.candidate.id == story.best.candidate.id:
                return item
    raise Unnamed("No candidate is correct yet, so there is no best one.")


def _placed(story: Story, rank: int) -> Written:
    """The candidate in that place of the leaderboard, from 1."""
    leaders = story.leaders
    if 0 < rank <= len(leaders):
        return next(w for w in story.written if w.candidate.id == leaders[rank - 1].candidate.id)
    if not leaders:
        return _best(story)
    some = "Only one candidate is" if len(leaders) == 1 else f"Only {len(leaders)} candidates are"
    raise Unnamed(f"{some} correct so far, so nobody is in place {rank}.")


def _numbered(story: Story, number: int) -> Written:
    for item in story.written:
        if item.number == number:
            return item
    raise Unnamed(f"There is no v{number}. {_known(story)}")


def _known(story: Story) -> str:
    if not story.written:
        return "None was written yet."
    return f"There are v1 to v{story.written[-1].number}."


def _listed(items: list[Written]) -> str:
    return ", ".join(label(item) for item in items)


LONGEST_DIFFERENCE = 400


def candidate(story: Story, command: ExplainCandidate) -> ChatReply:
    """Its idea, what it does, how it was judged, what bounds it."""
    item = candidate_of(story, command.candidate)
    standing = standing_of(story, item)
    pieces: list[Piece] = [
        Words(text=f"{label(item)}, written in round {item.round} by the {item.author}."),
        Table(title="the idea", columns=("", ""), rows=idea_rows(story, item)),
    ]
    if standing is None:
        pieces.append(Words(text="The judge has not seen it yet."))
    else:
        pieces.append(Table(title="the judge", columns=("", ""), rows=judged_rows(standing)))
        pieces += _log(standing)
    pieces += bounded(story, item.candidate.id)
    return ChatReply(pieces=tuple(pieces), offers=_about(item, standing, story))


def round_(story: Story, command: ExplainRound) -> ChatReply:
    """Its ideas, what they brought, what the critic made of it."""
    rounds = story.view.rounds
    wanted = command.round or max(rounds, default=0)
    if wanted not in rounds:
        known = f"There are rounds 1 to {max(rounds)}." if rounds else "None has begun yet."
        return ChatReply.of(f"There is no round {wanted}. {known}")
    ledger = {entry.idea: entry for entry in story.ledger}
    ideas = [idea for idea in story.ideas if idea.round == wanted]
    rows = tuple(
        (
            one_line(story.view.with_names(idea.title), 90),
            milliseconds(idea.predicted_ms),
            *_brought(ledger.get(idea.id)),
        )
        for idea in ideas
    )
    columns = ("idea", "predicted", "measured", "gain", "correct")
    pieces: list[Piece] = [
        Words(text=f"Round {wanted}: {count(len(ideas), 'idea')}."),
        Table(title=f"ideas of round {wanted}", columns=columns, rows=rows),
    ]
    for event in story.view.proposals:
        if event.round == wanted and event.reasoning:
            pieces.append(Code(title="the planner's reasons", text=plain(event.reasoning, 4000)))
    pieces += [p for a in story.analyses if a.round == wanted for p in critique(a, story.view)]
    return ChatReply(pieces=tuple(pieces))


def compare(story: Story, command: CompareCandidates) -> ChatReply:
    """Which is faster and by how much, what differs, and what the profiler and the critic saw."""
    one = candidate_of(story, command.one)
    other = candidate_of(story, command.other) if command.other else _rival(story, one)
    if one.candidate.id == other.candidate.id:
        return ChatReply.of(f"That is one and the same candidate, {label(one)}.")
    first, second = standing_of(story, one), standing_of(story, other)
    pieces: list[Piece] = [Words(text=verdict_words(one, other, first, second))]
    rows = [
        (name, left, right)
        for (name, left), (_, right) in zip(
            _facts(story, one, first), _facts(story, other, second), strict=True
        )
    ]
    columns = ("", f"v{one.number}", f"v{other.number}")
    pieces.append(Table(title="side by side", columns=columns, rows=tuple(rows)))
    pieces += _readings(story, one, other)
    pieces += _claims(story, one, other)
    pieces.append(difference(other, one))
    offers = (
        Offer(label=f"Code of v{one.number}", wish=ShowCode(candidate=one.candidate.id)),
        Offer(label=f"Code of v{other.number}", wish=ShowCode(candidate=other.candidate.id)),
    )
    return ChatReply(pieces=tuple(pieces), offers=offers)


def idea_rows(story: Story, item: Written) -> tuple[tuple[str, str], ...]:
    """What the candidate tries, and why it should help."""
    idea = story.idea(item.candidate.idea)
    named = story.view.with_names
    rows = [("idea", one_line(named(story.title(item.candidate.idea)), 200))]
    if idea is not None:
        rows += [("does", one_line(named(idea.mechanism), 600))]
        rows += [("because", one_line(named(idea.reason), 600))]
        rows += [("predicted", milliseconds(idea.predicted_ms))]
        rows += [("risk", one_line(idea.risk, 300))] if idea.risk else []
    settings = settings_words(item.candidate.settings)
    rows += [("settings", settings)] if settings else []
    rows += [("remark", one_line(item.candidate.note, 300))] if item.candidate.note else []
    known = {other.candidate.id: other for other in story.written}
    parents = [label(known[id]) for id in item.candidate.parents if id in known]
    rows += [("comes from", ", ".join(parents))] if parents else []
    return tuple(rows)


def judged_rows(standing: Standing) -> tuple[tuple[str, str], ...]:
    """The verdict with the numbers behind it, and what was not verified."""
    evaluation, found = standing.evaluation, standing.evaluation.verification
    rows = [("verdict", f"{found.verdict.words} ({LABEL_OF[standing.effort]})")]
    rows += [("reason", one_line(found.reason, 600))] if found.reason else []
    rows += [("time", milliseconds(evaluation.median_ms))] if evaluation.median_ms else []
    rows += [(f"against {item.baseline}", against(item)) for item in evaluation.comparisons]
    rows += [(name, one_line(words, 300)) for name, words in (*verified(found), *timed(evaluation))]
    rows += [("not verified", one_line(", ".join(found.not_verified), 400))] * bool(
        found.not_verified
    )
    return tuple(rows)


def against(item: Comparison) -> str:
    """A comparison in a line."""
    times = f"{milliseconds(item.candidate_ms)} against {milliseconds(item.baseline_ms)}"
    return f"{compared_words(item)} ({times})"


def bounded(story: Story, candidate: str) -> list[Piece]:
    """What bounds a candidate, where the profiler looked at it."""
    profile = story.profiles.get(candidate)
    if profile is None:
        return []
    _, symptoms = profile
    found = by_importance(symptoms)
    rows = tuple((one_line(s.name, 60), one_line(s.words, 400)) for s in found)
    table: list[Piece] = (
        [Table(title="what bounds it", columns=("", ""), rows=rows)] if rows else []
    )
    if first := headline(symptoms):
        table.insert(0, Words(text=one_line(first, 400)))
    if words := story.explanation(candidate):
        table.append(Code(title="the profiler", text=plain(story.view.with_names(words), 4000)))
    return table


def critique(analysis: Analysis, view: RunView) -> list[Piece]:
    """What the critic made of a round."""
    told = [("claim", claim.words) for claim in analysis.claims]
    told += [("so", analysis.implies)] if analysis.implies else []
    told += [("predicts", item.words) for item in analysis.predictions]
    rows = tuple((name, one_line(view.with_names(words), 400)) for name, words in told)
    return [Table(title="the critic", columns=("", ""), rows=rows)] if rows else []


def verdict_words(
    one: Written, other: Written, first: Standing | None, second: Standing | None
) -> str:
    """Which of the two is faster, if that can be said."""
    left = first.evaluation.median_ms if _correct(first) and first else None
    right = second.evaluation.median_ms if _correct(second) and second else None
    if left is None or right is None:
        lacking = [label(i) for i, ms in ((one, left), (other, right)) if ms is None]
        verb = "has" if len(lacking) == 1 else "have"
        return f"{' and '.join(lacking)} {verb} no time, so speed cannot be compared."
    fast, slow = (one, other) if left <= right else (other, one)
    factor = max(left, right) / min(left, right)
    if factor < 1.005:
        return f"{label(one)} and {label(other)} take the same time, {milliseconds(left)}."
    if alike := _alike((first, second), (label(fast), label(slow))):
        return alike
    mixed = first is not None and second is not None and first.effort != second.effort
    caution = (
        " One was timed more carefully than the other, so take small differences lightly."
        if mixed and factor < 1.1
        else ""
    )
    return f"{label(fast)} is {factor:.2f} times as fast as {label(slow)}.{caution}"


def _alike(standings: tuple[Standing | None, Standing | None], labels: tuple[str, str]) -> str:
    """That two candidates, named the faster first, cannot be told apart; "" where they can."""
    found = [timing_of(item.evaluation) for item in standings if item is not None]
    timed = sorted((item for item in found if item), key=lambda item: item.median_ms)
    if len(timed) < 2 or (gap := Noise().between(*timed)).is_clear:
        return ""
    return f"{overlap(*labels, gap)}."


def difference(before: Written, after: Written) -> Code:
    """What changed from one candidate's source to the other's."""
    lines = list(
        difflib.unified_diff(
            _text(before), _text(after), f"v{before.number}", f"v{after.number}", lineterm="", n=3
        )
    )
    rest = len(lines) - LONGEST_DIFFERENCE
    shown = lines[:LONGEST_DIFFERENCE] + ([f"... {rest} more lines"] if rest > 0 else [])
    text = "\n".join(shown) or "no difference in the sources"
    return Code(
        title=f"from v{before.number} to v{after.number}", text=plain(text), language="diff"
    )


def picture(story: Story) -> Picture:
    """Where the candidates stand under the roofline."""
    return Picture(what="roofline", run=story.record.id)


def _rival(story: Story, one: Written) -> Written:
    """Whom to compare with where nobody was named: the parent, else the next on the board."""
    known = {item.candidate.id: item for item in story.written}
    for id in one.candidate.parents:
        if id in known:
            return known[id]
    for leader in story.leaders:
        if leader.candidate.id != one.candidate.id:
            return known[leader.candidate.id]
    raise Unnamed("There is nothing to compare it with yet.")


def _facts(story: Story, item: Written, standing: Standing | None) -> list[tuple[str, str]]:
    settings = settings_words(item.candidate.settings)
    took = standing.evaluation.median_ms if standing else None
    found = standing.evaluation.verification if standing else None
    return [
        ("idea", one_line(story.view.with_names(story.title(item.candidate.idea)), 120)),
        ("strategy", one_line(strategy_words(item.candidate.strategies), 200) or "-"),
        ("settings", settings or "-"),
        ("verdict", found.verdict.words if found else "not judged yet"),
        ("time", _time(standing)),
        ("the floor", of_floor(story.floor_ms / took) if took and story.floor_ms else "-"),
    ]


def _time(standing: Standing | None) -> str:
    """A time with how closely it was looked at."""
    ms = standing.evaluation.median_ms if standing else None
    if ms is None or standing is None:
        return "-"
    return f"{milliseconds(ms)} ({LABEL_OF[standing.effort]})"


def _readings(story: Story, one: Written, other: Written) -> list[Piece]:
    """The profiler's readings that differ."""
    left, right = (_evidence(story, item) for item in (one, other))
    rows = [
        (one_line(name, 80), _reading(left[name]), _reading(right[name]))
        for name in left
        if name in right and _reading(left[name]) != _reading(right[name])
    ]
    columns = ("reading", f"v{one.number}", f"v{other.number}")
    return [Table(title="the profiler", columns=columns, rows=tuple(rows[:20]))] if rows else []


def _evidence(story: Story, item: Written) -> dict[str, Evidence]:
    readings, _ = story.profiles.get(item.candidate.id, ((), ()))
    return {reading.name: reading for reading in readings if reading.value is not None}


def _reading(item: Evidence) -> str:
    return f"{item.value:.4g} {one_line(item.unit, 20)} ({item.rank.value})".replace("  ", " ")


def _claims(story: Story, one: Written, other: Written) -> list[Piece]:
    """What the critic said of just these two."""
    pair = {one.candidate.id, other.candidate.id}
    rows = tuple(
        (
            f"round {analysis.round}",
            one_line(story.view.with_names(claim.words), 500),
            one_line(story.view.with_names("; ".join(claim.numbers)), 300),
        )
        for analysis in story.analyses
        for claim in analysis.claims
        if {claim.faster, claim.slower} == pair
    )
    columns = ("", "claim", "numbers")
    return [Table(title="the critic", columns=columns, rows=rows)] if rows else []


def _brought(entry: LedgerEntry | None) -> tuple[str, str, str]:
    if entry is None:
        return "-", "-", "not tried yet"
    return (
        milliseconds(entry.measured_ms),
        ratio(entry.gain),
        f"{entry.correct} of {entry.candidates}",
    )


def _log(standing: Standing) -> list[Piece]:
    log = standing.evaluation.compiler_log.strip()
    if standing.evaluation.verdict is not Verdict.COMPILE_ERROR or not log:
        return []
    return [Code(title="the compiler", text=plain(log, 4000))]


def _correct(standing: Standing | None) -> bool:
    return standing is not None and standing.evaluation.verdict is Verdict.CORRECT


def _text(item: Written) -> list[str]:
    settings = [f"{s.name}={s.value}" for s in item.candidate.settings]
    return [*item.candidate.kernel.splitlines(), *item.candidate.plan.splitlines(), *settings]


def _about(item: Written, standing: Standing | None, story: Story) -> tuple[Offer, ...]:
    id = item.candidate.id
    found = [Offer(label="Show the code", wish=ShowCode(candidate=id))]
    if id in story.profiles:
        found.append(Offer(label="Show the profile", wish=ShowProfile(candidate=id)))
    if len(story.leaders) > 1:
        found.append(Offer(label="Compare", wish=CompareCandidates(one=id)))
    if _correct(standing):
        found.append(Offer(label="Take it home", wish=ExportResult(candidate=id)))
    return tuple(found)
