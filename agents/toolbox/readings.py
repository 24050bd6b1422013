"""What was measured of any candidate, for whoever explains: times, counters, hot lines, two apart.

Readings are those that the profiler role reads, under the same names, so that a claim may cite
them. A candidate that nobody has profiled is profiled now, within the search's budget for it. Hot
lines are an estimate from the machine code and say so.
"""

import difflib
from collections.abc import Iterable, Sequence

from pydantic import BaseModel, Field

from kernelwright.agents.llm.client import LLMClient
from kernelwright.agents.llm.tools import Tool, ToolError, tool
from kernelwright.agents.prompting.cards import milliseconds, resources
from kernelwright.agents.toolbox.code_words import hot_lines_words
from kernelwright.agents.toolbox.workbench import RoleTools, Workbench, with_tools
from kernelwright.tools.profile import evidence_for, measured_evidence
from kernelwright.tools.types import Candidate, Evaluation, Evidence, Profile, Verdict

_SHOWN = 60
_DIFFERENCES = 24
_DIFF_LINES = 90
# Readings that differ by less say nothing.
_APART = 0.05
_ESTIMATED = "Estimated from the machine code: instructions, eight times as much for each loop."


class OfCandidate(BaseModel):
    """A call about one candidate."""

    candidate: str = Field(description="the candidate's id, or its number as in v3")


class Counters(OfCandidate):
    """A call for some of a candidate's readings."""

    names: str = Field(
        default="", description="words that the readings' names hold, as in 'dram occupancy'"
    )


class TwoCandidates(BaseModel):
    """A call about two candidates."""

    faster: str = Field(description="the id of the one")
    slower: str = Field(description="the id of the other")


class ReadingDesk:
    """Tools that read what is known of candidates.

    Args:
        bench: Of the search.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    def tools(self, about: Sequence[str] = ()) -> tuple[Tool, ...]:
        """Every tool; `about` are the candidates that a model without tools is told of."""
        known = {item.candidate.id for item in self._bench.archive.candidates()}
        first = [OfCandidate(candidate=name) for name in about[:1] if name in known]
        pair = [name for name in about if name in known]
        two = [TwoCandidates(faster=pair[0], slower=pair[1])] if len(pair) > 1 else []
        return (
            tool(
                "kernel_times",
                "Where one call of a candidate spends its time: every kernel with its share, "
                "launches and resources.",
                OfCandidate,
                self._times,
                beforehand=first,
            ),
            tool(
                "counters",
                "Any reading of a candidate: hardware counters, occupancy, stalls, the roofline, "
                "registers, spills, machine code.",
                Counters,
                self._counters,
            ),
            tool(
                "hot_lines",
                "Which lines of a candidate's source its inner loops come from, and as what.",
                OfCandidate,
                self._hot_lines,
                beforehand=first,
            ),
            tool(
                "compare",
                "What is different between two candidates: times, source, settings, and every "
                "reading that both have.",
                TwoCandidates,
                self._compare,
                beforehand=two,
            ),
        )

    async def _times(self, given: OfCandidate) -> str:
        candidate = self._bench.candidate(given.candidate)
        profile = await self._profile(candidate)
        lines = [
            f"- {item.kernel}: {milliseconds(item.time_ms)}, {item.share:.0%} of the call, "
            f"{item.launches} launches by the clock of {item.clock}"
            f"{'' if item.own else ', a library kernel'}"
            for item in sorted(profile.times, key=lambda item: -item.share)
        ]
        lines += [f"- not measured: {item.step}: {item.why}" for item in profile.missing]
        return "\n".join(lines) or f"nothing was measured of {candidate.id}"

    async def _counters(self, given: Counters) -> str:
        candidate = self._bench.candidate(given.candidate)
        found = await self._evidence(candidate)
        words = [word.lower() for word in given.names.replace(",", " ").split()]
        lines = [
            _line(item)
            for item in found
            if not words or any(word in item.name.lower() for word in words)
        ]
        if not lines:
            names = ", ".join(dict.fromkeys(item.name for item in found))
            raise ToolError(f"no reading of {candidate.id} is called so; there are {names[:1500]}")
        return "\n".join(lines[:_SHOWN])

    async def _hot_lines(self, given: OfCandidate) -> str:
        candidate = self._bench.candidate(given.candidate)
        lines = await self._bench.code(candidate)
        if isinstance(lines, str):
            raise ToolError(lines)
        return f"{_ESTIMATED}\n{hot_lines_words(lines, candidate.kernel)}"

    async def _compare(self, given: TwoCandidates) -> str:
        one, other = map(self._bench.candidate, (given.faster, given.slower))
        if one.id == other.id:
            raise ToolError("these are the same candidate")
        readings = differences(self._known(one), self._known(other))
        parts = (
            f"{_judged(one, self._evaluation(one))}\n{_judged(other, self._evaluation(other))}",
            "\n".join(readings) or "No reading that both have differs by more than a twentieth.",
            source_difference(one, other),
        )
        return "\n\n".join(parts)

    async def _profile(self, candidate: Candidate) -> Profile:
        known = self._bench.archive.measured(candidate.id)
        if known is not None:
            return known
        evaluation = self._evaluation(candidate)
        if evaluation is None or evaluation.verdict is not Verdict.CORRECT:
            raise ToolError(f"{candidate.id} is not known to be right, so it is not profiled")
        return await self._bench.measured(candidate)

    async def _evidence(self, candidate: Candidate) -> tuple[Evidence, ...]:
        if self._bench.archive.profile(candidate.id) is None:
            await self._profile(candidate)
        return self._known(candidate)

    def _known(self, candidate: Candidate) -> tuple[Evidence, ...]:
        """What is known without asking a profiler."""
        archive = self._bench.archive
        if (read := archive.profile(candidate.id)) is not None:
            return read[0]
        evaluation, profile = self._evaluation(candidate), archive.measured(candidate.id)
        plain = (
            evidence_for(evaluation, candidate, self._bench.task, self._bench.hardware)
            if evaluation is not None
            else ()
        )
        return (*plain, *(measured_evidence(profile) if profile is not None else ()))

    def _evaluation(self, candidate: Candidate) -> Evaluation | None:
        return self._bench.archive.evaluation(candidate.id)


def reading_client(client: LLMClient, given: RoleTools | None, about: Sequence[str]) -> LLMClient:
    """The client, whose model may read what is known of candidates, `about` first of all."""
    if given is None:
        return client
    return with_tools(client, given, ReadingDesk(given.bench).tools(about))


def differences(one: Iterable[Evidence], other: Iterable[Evidence]) -> list[str]:
    """The readings that both have and that differ, those apart the most first."""
    theirs = {item.name: item.value for item in other}
    found: list[tuple[float, str]] = []
    for item in one:
        mine, its = item.value, theirs.get(item.name)
        if mine is None or its is None:
            continue
        apart = abs(mine - its) / max(abs(mine), abs(its), 1e-12)
        if apart > _APART:
            words = f"- {item.name}: {mine:.6g} against {its:.6g} {item.unit} ({item.rank.value})"
            found.append((apart, words))
    found.sort(key=lambda pair: -pair[0])
    return [words for _, words in found[:_DIFFERENCES]]


def source_difference(one: Candidate, other: Candidate, lines: int = _DIFF_LINES) -> str:
    """How the second differs in kernel, plan and settings, as a unified difference."""
    kernel = _difference(one.kernel, other.kernel, "kernel")
    plan = _difference(one.plan, other.plan, "plan")
    settings = {item.name: item.value for item in other.settings}
    changed = [
        f"{item.name}: {item.value} against {settings.get(item.name)}"
        for item in one.settings
        if settings.get(item.name) != item.value
    ]
    shown = [*kernel, *plan]
    cut = [f"[... {len(shown) - lines} more lines]"] if len(shown) > lines else []
    return "\n".join([*changed, *shown[:lines], *cut]) or "their sources are the same"


def _difference(one: str, other: str, what: str) -> list[str]:
    names = (f"{what} of the first", f"{what} of the second")
    return list(
        difflib.unified_diff(one.splitlines(), other.splitlines(), *names, lineterm="", n=2)
    )


def _judged(candidate: Candidate, evaluation: Evaluation | None) -> str:
    if evaluation is None:
        return f"{candidate.id}: not judged"
    verdict = evaluation.verdict.words
    parts = (verdict, milliseconds(evaluation.median_ms), resources(evaluation.reports))
    return f"{candidate.id}: {', '.join(part for part in parts if part)}"


def _line(item: Evidence) -> str:
    if item.value is None:
        return f"- {item.name}: not measured ({item.source})"
    return f"- {item.name} = {item.value:.6g} {item.unit} ({item.rank.value}, {item.source})"
