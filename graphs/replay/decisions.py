"""What a run decided, as lines that two runs can be compared by, and the order of its writers.

Times of day, durations and what models cost are left out: they are no decisions. Everything else
that was thought, written, concluded or chosen is there, each decision under a key of its own.
Readings stand apart: what the profiler read of a candidate and the words in which an analysis is
put may become better without a search deciding anything else.

A replay's writers take turns as they did in the recorded run. Writers of one round work side by
side, and a model answers when it answers; in a replay all answers are there at once. Who was first
matters, as candidates are known by the order they were written in.
"""

import asyncio
import json
from collections.abc import Iterator
from time import monotonic
from typing import get_args

from kernelwright.agents.coder.coder import Coder, CoderAnswer, CoderRequest, Failure
from kernelwright.graphs.run_view.events import (
    EVENT,
    BestImproved,
    Event,
    IdeasProposed,
    Profiled,
    RoleAnswered,
    RoundFinished,
    StrategyEvolved,
)
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Analysis, Candidate, Effort, Value

POLL_S = 0.002
# A writer that waits longer without anything being written is past a difference; it goes on.
STUCK_S = 2.0


class CoderInTurn:
    """Hands out a coder's candidates when everything written before them is there."""

    def __init__(self, inner: Coder, past: Archive, present: Archive) -> None:
        self._inner = inner
        self._present = present
        written = [item.candidate for item in past.candidates()]
        self._place = {item.id: number for number, item in enumerate(written)}
        self._idea = {item.id: item.idea for item in written}

    async def write(self, request: CoderRequest) -> CoderAnswer:
        """Candidates for an idea, in turn."""
        return await self._in_turn(await self._inner.write(request))

    async def repair(self, request: CoderRequest, failure: Failure) -> CoderAnswer:
        """A repair, in turn."""
        return await self._in_turn(await self._inner.repair(request, failure))

    async def _in_turn(self, answer: CoderAnswer) -> CoderAnswer:
        wanted = self._before(answer.candidates)
        there, since = -1, monotonic()
        while there < wanted and monotonic() - since < STUCK_S:
            count = len(self._present.candidates())
            if count != there:
                there, since = count, monotonic()
            if there < wanted:
                await asyncio.sleep(POLL_S)
        return answer

    def _before(self, candidates: tuple[Candidate, ...]) -> int:
        """How many candidates were there when these were written.

        One that a sibling had written too, and first, is waited for.
        """
        known = [item for item in candidates if item.id in self._place]
        mine = [self._place[item.id] for item in known if self._idea[item.id] == item.idea]
        others = [self._place[item.id] + 1 for item in known if self._idea[item.id] != item.idea]
        return max([*mine[:1], *others], default=0)


# In one round, what comes before what.
STAGES = (
    "ideas", "candidate", "verdict", "best", "profile", "ledger", "analysis", "words", "round",
    "strategy", "role",
)  # fmt: skip
# Of an analysis, what is put in words and what was read; the rest steers the next round.
ANALYSIS_WORDS = {"claims", "implies", "notes"}
PREDICTION_WORDS = {"words", "metric_from", "metric_measured"}
NOT_DECIDED = {"at", "elapsed_s"}
# What a session took, as opposed to what it concluded.
SUMMARY_OMITS = {"run", "seconds", "phases", "tokens", "usd", "calls", "models", "export"}


class Decision(Value):
    """One decision: `text` is its canonical JSON; `reading` where nothing was decided by it."""

    key: str
    round: int
    text: str
    reading: bool = False

    @property
    def order(self) -> tuple[int, int]:
        """Where it stands in the run."""
        stage = self.key.partition(":")[0]
        return self.round, STAGES.index(stage) if stage in STAGES else len(STAGES)


def decisions_of(archive: Archive) -> tuple[Decision, ...]:
    """Every decision of a run, by round and stage."""
    found = [
        *_events(archive),
        *_candidates(archive),
        *_verdicts(archive),
        *(_decision(f"ledger:{entry.idea}", entry.round, entry) for entry in archive.ledger()),
        *(part for item in archive.analyses() for part in _analysis(item)),
        *(_decision(f"strategy:{item.id}", item.round, item) for item in archive.strategies()),
        *_summary(archive),
    ]
    return tuple(sorted(found, key=lambda decision: decision.order))


def _events(archive: Archive) -> Iterator[Decision]:
    improved = 0
    for stored in archive.events():
        event: Event = EVENT.validate_json(stored.payload)
        match event:
            case IdeasProposed():
                yield _decision(f"ideas:{event.round}", event.round, event)
            case BestImproved():
                improved += 1
                yield _decision(f"best:{improved}", event.round, event)
            case Profiled():
                profile = _decision(f"profile:{event.candidate}", event.round, event)
                yield profile.model_copy(update={"reading": True})
            case RoleAnswered():
                yield _decision(f"role:{event.role}:{event.round}", event.round, event)
            case StrategyEvolved():
                key = f"strategy:round {event.round}:{event.version.role}:{event.version.id}"
                yield _decision(key, event.round, event)
            case RoundFinished():
                yield _decision(f"round:{event.round}", event.round, event)


def _candidates(archive: Archive) -> Iterator[Decision]:
    for number, written in enumerate(archive.candidates(), start=1):
        plain = written.model_copy(update={"number": number})
        yield _decision(f"candidate:{number}", written.round, plain)


def _verdicts(archive: Archive) -> Iterator[Decision]:
    for written in archive.candidates():
        for effort in get_args(Effort):
            found = archive.evaluation(written.candidate.id, effort)
            if found is not None:
                yield _decision(f"verdict:{found.candidate}:{effort}", written.round, found)


def _analysis(item: Analysis) -> Iterator[Decision]:
    """What an analysis prefers, avoids and predicts; and apart from it, how it is put."""
    whole = _decision(f"words:{item.round}", item.round, item)
    told = json.loads(whole.text)
    steers = {k: v for k, v in told.items() if k not in ANALYSIS_WORDS}
    steers["predictions"] = [
        {k: v for k, v in one.items() if k not in PREDICTION_WORDS} for one in told["predictions"]
    ]
    text = json.dumps(steers, sort_keys=True)
    yield Decision(key=f"analysis:{item.round}", round=item.round, text=text)
    yield whole.model_copy(update={"reading": True})


def _summary(archive: Archive) -> Iterator[Decision]:
    """How a finished run ended; it comes after all rounds."""
    record = archive.record()
    if record.status == "finished" and record.summary is not None:
        # The status says what the outcome beside the best baseline led to; older runs lack it.
        best = record.summary.best and record.summary.best.model_copy(update={"outcome": ""})
        summary = record.summary.model_copy(update={"best": best})
        yield _decision("summary", summary.rounds + 1, summary, SUMMARY_OMITS)


def _decision(key: str, round: int, value: Value, omits: set[str] = NOT_DECIDED) -> Decision:
    told = {k: v for k, v in json.loads(value.model_dump_json()).items() if k not in omits}
    return Decision(key=key, round=round, text=json.dumps(told, sort_keys=True))
