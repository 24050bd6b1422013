"""Turns a run's events into lines: rounds, the ideas in them, candidates under their ideas.

Who says something says it in their own words, under their own name; the order is that of the
events. Only folding happens here, so it is quick; drawing and sending are done elsewhere.
"""

from datetime import datetime

from kernelwright.graphs.run_view import CandidateView, RunView, fold
from kernelwright.graphs.run_view.events import (
    Awaited,
    BaselinesMeasured,
    BestImproved,
    CandidateJudged,
    CandidateWritten,
    Critiqued,
    Event,
    FloorRevised,
    IdeasProposed,
    ModelCalled,
    Noted,
    Profiled,
    RegionSearched,
    RegionsFound,
    RoleAnswered,
    RoundFinished,
    RunFinished,
    RunStarted,
    StrategyEvolved,
    ToolCalled,
    floor_words,
)
from kernelwright.graphs.run_view.figures import region_words, regions_words
from kernelwright.ui.chat.messages import roles
from kernelwright.ui.chat.messages.lines import Line
from kernelwright.ui.chat.messages.roles import candidate


class Presentation:
    """One run as lines; `take` says which of them are new or different."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.view = RunView()
        self.lines: dict[str, Line] = {}
        self._changed: dict[str, Line] = {}
        self._ended: dict[int, RoundFinished] = {}

    def take(self, seq: int, event: Event) -> tuple[Line, ...]:
        """Take in one event; its lines, parents before what stands in them."""
        self._changed = {}
        self.view = fold(self.view, event)
        self._tell(seq, event)
        return tuple(self._changed.values())

    def _tell(self, seq: int, event: Event) -> None:
        match event:
            case RunStarted():
                self._put(roles.beginning(f"begun:{seq}", event))
            case BaselinesMeasured():
                self._put(roles.baselines("baselines", event))
                self._renew(event.at, all_of_them=True)
            case IdeasProposed():
                self._ideas(seq, event)
            case CandidateWritten():
                self._candidate(event.candidate.id, event.at)
            case CandidateJudged():
                self._candidate(event.evaluation.candidate, event.at)
                if event.effort != "screen":
                    self._renew(event.at)
            case Profiled():
                self._candidate(event.candidate, event.at)
            case BestImproved():
                self._renew(event.at)
            case Critiqued():
                self._under_round(event, roles.critique(f"critic:{seq}", event, self.view))
            case ModelCalled():
                self._under_round(event, roles.asked(f"asked:{seq}", event))
            case ToolCalled():
                self._under_round(event, roles.called(f"called:{seq}", event))
            case RoleAnswered():
                self._under_round(event, roles.answered(f"role:{seq}", event))
            case StrategyEvolved():
                self._under_round(event, roles.evolved(f"evolved:{seq}", event))
            case RoundFinished():
                self._end_round(event)
            case FloorRevised():
                words = f"The floor is {floor_words(event.floor_ms, event.floor_how)}"
                noted = Noted(at=event.at, round=event.round, words=words)
                self._under_round(noted, roles.noted(f"note:{seq}", noted, self.view))
            case RegionsFound() | RegionSearched():
                words = (
                    f"Where the time goes: {regions_words(event.regions)}"
                    if isinstance(event, RegionsFound)
                    else f"Region {region_words(event.region)}"
                )
                noted = Noted(at=event.at, round=event.round, words=words)
                self._under_round(noted, roles.noted(f"note:{seq}", noted, self.view))
            case Awaited() | Noted():
                self._under_round(event, roles.noted(f"note:{seq}", event, self.view))
            case RunFinished():
                self._end_open(event.at)
                self._renew(event.at, all_of_them=True)

    def _ideas(self, seq: int, event: IdeasProposed) -> None:
        self._under_round(event, roles.reasons(f"reasons:{seq}", event))
        for idea in event.ideas:
            self._under_round(event, roles.idea(idea_key(idea.id), event.at, idea, self.view))

    def _candidate(self, name: str, at: datetime) -> None:
        """A candidate's whole line anew: what was written, the verdict, the profile."""
        tried = self.view.candidates.get(name)
        if tried is None:
            return
        parent = self._home_of(tried, at)
        self._put(candidate(f"candidate:{name}", parent, tried, self.view))
        idea = self.view.ideas.get(tried.candidate.idea)
        if idea is not None and (line := self.lines.get(idea_key(idea.id))):
            told = roles.idea(line.key, line.at, idea, self.view)
            self._put(told.model_copy(update={"parent": line.parent}))

    def _home_of(self, tried: CandidateView, at: datetime) -> str:
        """The idea that a candidate is for; its round where nobody proposed it."""
        key = idea_key(tried.candidate.idea)
        if key in self.lines:
            return key
        return self._round(tried.round, at)

    def _under_round(self, event: Event, line: Line) -> None:
        self._put(line.model_copy(update={"parent": self._round(event.round, event.at)}))

    def _round(self, number: int, at: datetime) -> str:
        key = f"round:{number}"
        if key not in self.lines:
            self._end_open(at)
            self._put(roles.round_begun(key, number, at))
        return key

    def _end_round(self, event: RoundFinished) -> None:
        self._ended[event.round] = event
        line = self.lines[self._round(event.round, event.at)]
        self._put(roles.round_ended(line, event, self.view))

    def _renew(self, at: datetime, *, all_of_them: bool = False) -> None:
        """Lines of before that say otherwise now: who leads, who led, what rounds brought.

        Other baselines make other ratios of all candidates, and so may the end of certification.
        """
        for tried in tuple(self.view.candidates.values()):
            if all_of_them or tried.was_best or tried == self.view.best:
                self._candidate(tried.id, at)
        for number, event in self._ended.items():
            self._put(roles.round_ended(self.lines[f"round:{number}"], event, self.view))

    def _end_open(self, at: datetime) -> None:
        """A round that a stop or a crash cut short does not look as if it went on."""
        for line in tuple(self.lines.values()):
            if line.key.startswith("round:") and line.ended_at is None:
                self._put(line.model_copy(update={"ended_at": at, "open": False}))

    def _put(self, line: Line) -> None:
        if self.lines.get(line.key) != line:
            self.lines[line.key] = line
            self._changed[line.key] = line


def idea_key(idea: str) -> str:
    """The key of an idea's line."""
    return f"idea:{idea}"
