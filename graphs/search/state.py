"""What travels between the nodes and into checkpoints: ids and small values, nothing else.

Sources, measurements and thoughts live in the archive; a node that needs them looks them up. The
queue is a part of it: which candidates wait for the judge, in which order, and what their tuner
knows.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, NotRequired, TypedDict

from kernelwright.agents.coder.tuner import Tuning
from kernelwright.agents.shared.candidate_priority import Prospect, Seen, in_turn, prospect, seen
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.options.run_terms import steering_symptoms, tuned_by
from kernelwright.tools.archive import Standing
from kernelwright.tools.candidates import implementation_key
from kernelwright.tools.types import Candidate, Evaluation, Idea, Verdict


def gather(left: list[str], right: list[str] | None) -> list[str]:
    """Add what parallel writers wrote; None begins anew."""
    return [] if right is None else left + right


class SearchState(TypedDict, total=False):
    """One search.

    Attributes:
        round: The round that is going on, from 1; 0 before the first.
        ideas: Ids of this round's ideas, in the planner's order.
        written: Ids of candidates that wait for the judge.
        attempt: How often this round's candidates were judged; above 1 after repairs.
        failed: Ids of candidates that go back to their writers: of ideas that have no correct one
            yet, and correct ones that something holds back.
        owed: Ids of such candidates that are repaired in the next round.
        best: Id of the best candidate so far, "" when there is none.
        best_ms: Its time, comparable with those of other minutes.
        before_ms: The best measured time when the round began; None when there was none.
        mark_ms: The comparable time when it last improved enough to count.
        stale_rounds: Rounds since then.
        parents: Ids of the elites to go on from.
        why_stop: Why the search ends; "" while it goes on.
        refusal: Why the task cannot be searched at all; "" as a rule.
    """

    round: int
    ideas: list[str]
    written: Annotated[list[str], gather]
    attempt: int
    failed: list[str]
    owed: list[str]
    best: str
    best_ms: float | None
    before_ms: float | None
    mark_ms: float | None
    stale_rounds: int
    parents: list[str]
    why_stop: str
    refusal: str


class Update(TypedDict, total=False):
    """What a node changes; as the state, except that `written` may be begun anew."""

    round: int
    ideas: list[str]
    written: list[str] | None
    attempt: int
    failed: list[str]
    owed: list[str]
    best: str
    best_ms: float | None
    before_ms: float | None
    mark_ms: float | None
    stale_rounds: int
    parents: list[str]
    why_stop: str
    refusal: str


class Work(TypedDict):
    """One writer's share: an idea, and the candidate to repair ("" for a first version).

    `best` and `parents` are the search's, for the writer to learn from or to start from; a run
    begun by an older version may lack them.
    """

    round: int
    idea: str
    failed: str
    best: NotRequired[str]
    parents: NotRequired[list[str]]


START_STATE: SearchState = {
    "round": 0,
    "ideas": [],
    "written": [],
    "attempt": 0,
    "failed": [],
    "owed": [],
    "best": "",
    "best_ms": None,
    "before_ms": None,
    "mark_ms": None,
    "stale_rounds": 0,
    "parents": [],
    "why_stop": "",
    "refusal": "",
}


def in_order(
    context: SearchContext, ids: Sequence[str], judged: Collection[str] = ()
) -> list[Candidate]:
    """The first candidate of every idea, the next to try first, then the second of each.

    Args:
        context: of the search.
        ids: all that were written.
        judged: those of them whose evaluations tell something by now. Others may have some, as a
            session may have been cut off, and are taken in the same order again.
    """
    turns: dict[int, list[Candidate]] = defaultdict(list)
    written: Counter[str] = Counter()
    for id in ids:
        candidate = context.archive.candidate(id)
        turns[written[candidate.idea]].append(candidate)
        written[candidate.idea] += 1
    ideas = {idea.id: idea for idea in context.archive.ideas()}
    found = _seen(context, ideas, {*ids} - {*judged})
    waiting = ([item for item in of if item.id not in judged] for of in turns.values())
    return [item for of in waiting for item in _in_turn(of, ideas, found)]


def _in_turn(
    waiting: list[Candidate], ideas: Mapping[str, Idea], found: Sequence[Seen]
) -> list[Candidate]:
    """Those that wait, by the times of their ideas and by what was seen."""
    promised = [(_prospect(candidate, ideas), candidate) for candidate in waiting]
    promised.sort(key=lambda pair: pair[0].expected_ms)
    turn = in_turn([prospect for prospect, _ in promised], found)
    return [promised[at][1] for at in turn]


def _prospect(candidate: Candidate, ideas: Mapping[str, Idea]) -> Prospect:
    """What a candidate's idea promises; 0 where nobody predicted anything."""
    idea = ideas.get(candidate.idea)
    expected_ms = (idea.predicted_ms if idea else None) or 0.0
    hopeful_ms = idea.hopeful_ms if idea else None
    least_ms = expected_ms if hopeful_ms is None else hopeful_ms
    return prospect(candidate, expected_ms, least_ms)


def _seen(
    context: SearchContext, ideas: Mapping[str, Idea], unknown: Collection[str]
) -> list[Seen]:
    expected = {id: idea.predicted_ms for id, idea in ideas.items() if idea.predicted_ms}
    standings = context.archive.standings()
    return [seen(item, expected) for item in standings if item.candidate.id not in unknown]


def without_success(
    context: SearchContext, state: SearchState, judged: list[Evaluation]
) -> list[str]:
    """For each idea without a correct candidate in this round, the last one that failed."""
    correct = {
        item.candidate.idea
        for item in context.archive.standings()
        if item.round == state["round"] and item.evaluation.verdict is Verdict.CORRECT
    }
    failed: dict[str, str] = {}
    for evaluation in judged:
        idea = context.archive.candidate(evaluation.candidate).idea
        if idea not in correct:
            failed[idea] = evaluation.candidate
    return list(failed.values())


def tuning_of(context: SearchContext, candidate: Candidate, round: int) -> Tuning:
    """A tuner that knows every measurement made before this step of this round."""
    key = implementation_key(candidate)
    known = [
        (item.candidate.settings, time_of(item.evaluation))
        for item in _screened(context)
        if implementation_key(item.candidate) == key
        and item.candidate.mode == candidate.mode
        and not (item.author == "tuner" and item.round == round)
    ]
    analyses = context.archive.analyses() if context.steers("contrast") else ()
    analysis = analyses[-1] if analyses else None
    by = tuned_by(context.archive)
    symptoms = steering_symptoms(context.archive, candidate.id)
    return Tuning(candidate, known, analysis, context.seed + round, by, symptoms)


def _screened(context: SearchContext) -> list[Standing]:
    """Candidates with their screened evaluations, so that times compare like with like."""
    found = []
    for item in context.archive.standings():
        evaluation = context.archive.evaluation(item.candidate.id, "screen")
        if evaluation is not None:
            update = {"evaluation": evaluation, "effort": "screen"}
            found.append(item.model_copy(update=update))
    return found


def time_of(evaluation: Evaluation) -> float | None:
    """What a tuner is told: a time, or None for what did not run."""
    return evaluation.median_ms if evaluation.verdict is Verdict.CORRECT else None
