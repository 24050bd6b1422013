"""What travels between the nodes and into checkpoints: ids and small values, nothing else.

Sources, measurements and thoughts live in the archive; a node that needs them looks them up.
"""

from typing import Annotated, NotRequired, TypedDict


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
        failed: Ids of candidates whose ideas have no correct candidate yet.
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
