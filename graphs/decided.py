"""What a run decided, as lines that two runs can be compared by, byte for byte.

Times of day, durations and what models cost are left out: they are no decisions. Everything else
that was thought, written, concluded or chosen is there, each decision under a key of its own.
"""

import json
from collections.abc import Iterator
from typing import get_args

from graphs.events import (
    EVENT,
    BestImproved,
    Event,
    IdeasProposed,
    Profiled,
    RoundFinished,
    StrategyEvolved,
)
from tools.archive import Archive, Effort
from tools.nouns import Value

# In one round, what comes before what.
STAGES = (
    "ideas", "candidate", "verdict", "best", "profile", "ledger", "analysis", "round", "strategy",
)  # fmt: skip
NOT_DECIDED = {"at", "elapsed_s"}
SUMMARY_OMITS = {"run", "seconds", "tokens", "usd", "calls", "models", "export"}


class Decision(Value):
    """One decision: `text` is its canonical JSON."""

    key: str
    round: int
    text: str

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
        *(_decision(f"analysis:{item.round}", item.round, item) for item in archive.analyses()),
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
                yield _decision(f"profile:{event.candidate}", event.round, event)
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


def _summary(archive: Archive) -> Iterator[Decision]:
    """How a finished run ended; it comes after all rounds."""
    record = archive.record()
    if record.status == "finished" and record.summary is not None:
        yield _decision("summary", record.summary.rounds + 1, record.summary, SUMMARY_OMITS)


def _decision(key: str, round: int, value: Value, omits: set[str] = NOT_DECIDED) -> Decision:
    told = {k: v for k, v in json.loads(value.model_dump_json()).items() if k not in omits}
    return Decision(key=key, round=round, text=json.dumps(told, sort_keys=True))
