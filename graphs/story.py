"""Everything that is known of one run, read from its archive for showing.

Reading needs no lock: a run can be looked at while it goes on.
"""

from dataclasses import dataclass
from pathlib import Path

from graphs.events import EVENT, BaselinesMeasured, Event, Profiled, RunFinished, RunStarted
from graphs.rules import rules_of
from tools.archive import Archive, RunRecord, Standing, Written
from tools.archive.ranking import apart, ranked
from tools.evaluate.rules import Rules
from tools.nouns import (
    Analysis,
    Baselines,
    Call,
    Evidence,
    Idea,
    Isolation,
    LedgerEntry,
    StrategyVersion,
    Symptom,
    WallKind,
)
from tools.nouns.run import Summary

_NOT_KNOWN = Isolation(kind=WallKind.UNKNOWN, words="unknown")


@dataclass(frozen=True)
class Story:
    """A run as it stands; `best` is the fastest correct candidate, or None.

    `rules` are the judge's as the run wrote them down, None where it did not.
    """

    record: RunRecord
    folder: Path
    events: tuple[Event, ...]
    written: tuple[Written, ...]
    standings: tuple[Standing, ...]
    ideas: tuple[Idea, ...]
    ledger: tuple[LedgerEntry, ...]
    analyses: tuple[Analysis, ...]
    profiles: dict[str, tuple[tuple[Evidence, ...], tuple[Symptom, ...]]]
    best: Standing | None
    calls: tuple[Call, ...] = ()
    strategies: tuple[StrategyVersion, ...] = ()
    rules: Rules | None = None

    @property
    def summary(self) -> Summary | None:
        """What the search amounted to; None while it has not finished."""
        if self.record.summary is not None:
            return self.record.summary
        finished = [event for event in self.events if isinstance(event, RunFinished)]
        return finished[-1].summary if finished else None

    @property
    def baselines(self) -> Baselines | None:
        """What PyTorch itself does."""
        if self.record.baselines is not None:
            return self.record.baselines
        told = [event for event in self.events if isinstance(event, BaselinesMeasured)]
        return told[-1].baselines if told else None

    @property
    def floor_ms(self) -> float | None:
        """The time that no implementation can undercut on this device."""
        begun = [event for event in self.events if isinstance(event, RunStarted)]
        return begun[-1].floor_ms if begun else None

    @property
    def isolation(self) -> Isolation:
        """How the workers were kept apart."""
        begun = [event for event in self.events if isinstance(event, RunStarted)]
        return begun[-1].isolation if begun else _NOT_KNOWN

    @property
    def leaders(self) -> tuple[Standing, ...]:
        """Correct candidates with a time, the fastest first, ranked as the search ranks them."""
        return tuple(ranked(self.standings))

    @property
    def apart(self) -> tuple[Standing, ...]:
        """Correct candidates that compute in less than the task asks, in an order of their own."""
        return tuple(apart(self.standings))

    def strategy(self, id: str | None) -> StrategyVersion | None:
        """The version of that id of an evolving prompt, or None."""
        return next((version for version in self.strategies if version.id == id), None)

    def explanation(self, candidate: str) -> str:
        """What the profiler said of a candidate in words; empty where it said nothing."""
        told = (
            event.explanation
            for event in self.events
            if isinstance(event, Profiled) and event.candidate == candidate and event.explanation
        )
        return next(told, "")

    def idea(self, id: str) -> Idea | None:
        """The idea of that id, or None."""
        return next((idea for idea in self.ideas if idea.id == id), None)

    def title(self, id: str) -> str:
        """An idea in words; its id where it was never proposed."""
        idea = self.idea(id)
        return idea.title if idea else id or "-"


def load(run: str, home: Path | None = None) -> Story:
    """Read a run by id, beginning of an id, or folder.

    Raises:
        RunError: When there is no such run, or it cannot be read.
    """
    archive = Archive.open(run, home)
    try:
        record, standings = archive.record(), archive.standings()
        profiles = {item.candidate.id: archive.profile(item.candidate.id) for item in standings}
        return Story(
            record=record,
            folder=archive.folder,
            events=tuple(EVENT.validate_json(item.payload) for item in archive.events()),
            written=archive.candidates(),
            standings=standings,
            ideas=archive.ideas(),
            ledger=archive.ledger(),
            analyses=archive.analyses(),
            profiles={name: profile for name, profile in profiles.items() if profile is not None},
            best=_best(record, standings) or archive.best(),
            calls=archive.calls(),
            strategies=archive.strategies(),
            rules=rules_of(archive),
        )
    finally:
        archive.close()


def _best(record: RunRecord, standings: tuple[Standing, ...]) -> Standing | None:
    """What the summary stands for: certified times are not comparable with screened ones."""
    chosen = record.summary.best if record.summary else None
    return next((s for s in standings if chosen and s.candidate.id == chosen.candidate), None)
