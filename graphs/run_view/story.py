"""A run read from its archive for showing: the view of its events, and what only the archive has.

The judge's rules of a run are among that: kept when it begins, read when it is shown. Reading needs
no lock: a run can be looked at while it goes on.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernelwright.graphs.run_view import RunView, completed, folded
from kernelwright.graphs.run_view.events import EVENT, Event, ToolCalled
from kernelwright.tools.archive import Archive, RunRecord, Standing, Written
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import (
    Analysis,
    Baselines,
    Call,
    Evidence,
    Idea,
    LedgerEntry,
    StrategyVersion,
    Symptom,
    ToolRun,
)
from kernelwright.tools.types.run import Summary

RULES_TERM = "rules"


def keep_rules(archive: Archive, judge: Executor) -> None:
    """Write down what the judge goes by, where it is known here."""
    if judge.rules is not None:
        archive.record_term(RULES_TERM, judge.rules.model_dump_json())


def rules_of(archive: Archive) -> Rules | None:
    """What a run was judged by; None where it did not write that down in terms of today's.

    A rule that is no longer one is left out: the others, and the evidence that was asked for, hold.
    """
    kept = archive.term(RULES_TERM)
    if kept is None:
        return None
    try:
        known = json.loads(kept).items()
        told = {name: value for name, value in known if name in Rules.model_fields}
        return Rules.model_validate_json(json.dumps(told))
    except (ValueError, AttributeError):
        return None


Profile = tuple[tuple[Evidence, ...], tuple[Symptom, ...]]


@dataclass(frozen=True)
class Story:
    """A run as it stands: `view` is what its events tell, the rest is only in the archive.

    `rules` are the judge's as the run wrote them down, None where it did not.
    """

    record: RunRecord
    folder: Path
    events: tuple[Event, ...]
    view: RunView
    written: tuple[Written, ...]
    ledger: tuple[LedgerEntry, ...]
    profiles: Mapping[str, Profile]
    calls: tuple[Call, ...] = ()
    strategies: tuple[StrategyVersion, ...] = ()
    rules: Rules | None = None

    @property
    def summary(self) -> Summary | None:
        """What the search amounted to; None while it has not finished."""
        return self.view.summary

    @property
    def baselines(self) -> Baselines | None:
        """What PyTorch itself does."""
        return self.view.baselines

    @property
    def floor_how(self) -> str:
        """How the floor was measured; "" where that was not recorded."""
        return self.view.floor_how

    @property
    def floor_ms(self) -> float | None:
        """What moving the task's bytes takes at least here, as far as `floor_how` says."""
        return self.view.floor_ms

    @property
    def ideas(self) -> tuple[Idea, ...]:
        """Every idea, in the order they were proposed."""
        return tuple(self.view.ideas.values())

    @property
    def analyses(self) -> tuple[Analysis, ...]:
        """What the critic said, round by round."""
        return self.view.analyses

    @property
    def standings(self) -> tuple[Standing, ...]:
        """Every judged candidate, in order of writing."""
        return self.view.standings

    @property
    def best(self) -> Standing | None:
        """The fastest correct candidate, or None."""
        return self.view.best.standing if self.view.best else None

    @property
    def leaders(self) -> tuple[Standing, ...]:
        """Correct candidates with a time, the fastest first, ranked as the search ranks them."""
        return tuple(item.standing for item in self.view.leaders if item.standing)

    @property
    def apart(self) -> tuple[Standing, ...]:
        """Correct candidates that compute in less than the task asks, in an order of their own."""
        return tuple(item.standing for item in self.view.apart if item.standing)

    @property
    def tool_runs(self) -> tuple[ToolRun, ...]:
        """What models called while they worked on answers, in order."""
        return tuple(event.run for event in self.events if isinstance(event, ToolCalled))

    def strategy(self, id: str | None) -> StrategyVersion | None:
        """The version of that id of an evolving prompt, or None."""
        return next((version for version in self.strategies if version.id == id), None)

    def explanation(self, candidate: str) -> str:
        """What the profiler said of a candidate in words; empty where it said nothing."""
        found = self.view.candidates.get(candidate)
        return found.profile.explanation if found and found.profile else ""

    def idea(self, id: str) -> Idea | None:
        """The idea of that id, or None."""
        return self.view.ideas.get(id)

    def title(self, id: str) -> str:
        """An idea in words; its id where it was never proposed."""
        return self.view.title(id)


def load(run: str, home: Path | None = None) -> Story:
    """Read a run by id, beginning of an id, or folder.

    Raises:
        RunError: When there is no such run, or it cannot be read.
    """
    archive = Archive.open(run, home)
    try:
        record, events = archive.record(), _events(archive)
        # A search may write on meanwhile: candidates are read once, after all that speaks of them.
        standings, candidates = archive.standings(), archive.candidates()
        view = _view(archive, record, events, standings, candidates)
        judged = [item.candidate.id for item in view.standings]
        profiles = {name: archive.profile(name) for name in judged}
        return Story(
            record=record,
            folder=archive.folder,
            events=events,
            view=view,
            written=tuple(_numbered(item, view) for item in candidates),
            ledger=archive.ledger(),
            profiles={name: profile for name, profile in profiles.items() if profile is not None},
            calls=archive.calls(),
            strategies=archive.strategies(),
            rules=rules_of(archive),
        )
    finally:
        archive.close()


def view_of(archive: Archive) -> RunView:
    """The view of an open run alone."""
    events, standings = _events(archive), archive.standings()
    return _view(archive, archive.record(), events, standings, archive.candidates())


def _events(archive: Archive) -> tuple[Event, ...]:
    return tuple(EVENT.validate_json(item.payload) for item in archive.events())


def _view(
    archive: Archive,
    record: RunRecord,
    events: tuple[Event, ...],
    standings: tuple[Standing, ...],
    candidates: tuple[Written, ...],
) -> RunView:
    """The events folded, with what was kept and not told; an export changes the kept summary."""
    view = completed(
        folded(events),
        candidates,
        standings,
        archive.ideas(),
        archive.analyses(),
        record.created_at,
    )
    going_on = record.status == "running" and view.summary is None and bool(view.run)
    return replace(
        view,
        baselines=record.baselines or view.baselines,
        summary=None if going_on else record.summary or view.summary,
    )


def _numbered(written: Written, view: RunView) -> Written:
    """With the number under which everybody knows it."""
    return written.model_copy(update={"number": view.candidates[written.candidate.id].number})
