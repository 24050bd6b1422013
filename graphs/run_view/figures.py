"""A candidate's figures and what they are worth, for everything that shows a run.

How fast a candidate is, beside what, and how closely that was looked at come from `figure_of` and
from nowhere else, and so does the text of a run's headline. Times of different labels stand beside
each other only with their labels: what was screened is a first look, what is certified holds.
Which candidate leads is told by `in_order`.

Names in kernels (`L0_LANES`), settings, and what came of a model's regions are put in words here
too.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kernelwright.graphs.run_view.events import milliseconds, one_line, ratio
from kernelwright.tools.archive import Standing, ranked
from kernelwright.tools.types import (
    Baselines,
    Comparison,
    Effort,
    Evaluation,
    Measurement,
    Setting,
    Verdict,
)
from kernelwright.tools.types.measurement import Clock, Paired
from kernelwright.tools.types.outline import RegionShown
from kernelwright.tools.types.run import BestSummary, Label, Status
from kernelwright.tools.types.speed_words import doubt, ended_words, looked_words
from kernelwright.tools.types.verdict import SpeedOutcome

LABEL_OF: dict[Effort, Label] = {"screen": "screened", "precise": "precise", "certify": "certified"}
MEANINGS: dict[Label, str] = {
    "screened": "a first, short look",
    "precise": "timed in turns with PyTorch",
    "certified": "checked and timed once more in a fresh process",
}


@dataclass(frozen=True)
class Figure:
    """How fast a correct candidate is, and how that was found.

    Attributes:
        ms: Its time.
        label: How closely it was looked at.
        over_best: Time of the best baseline over its own; None where no baseline has a time.
        interval: The 95 % interval of that, or where it was not timed in turns with that baseline
            what both spreads allow.
        outcome: What may be said of it beside PyTorch, and `claim` why not more, in words.
        over_eager: Likewise beside PyTorch as it comes.
        baseline: The baseline beside which it was timed in turns; "" where it was not.
        clock: What the times are of; None where they were not taken in turns.
        latency: Single calls on an idle device beside that baseline; None where none were taken.
    """

    ms: float
    label: Label
    over_best: float | None = None
    interval: tuple[float, float] | None = None
    outcome: SpeedOutcome = "not distinguishable"
    claim: str = ""
    over_eager: float | None = None
    baseline: str = ""
    clock: Clock | None = None
    latency: Paired | None = None

    @property
    def time(self) -> str:
        """The time with its label: `1.937 ms (precise)`."""
        return f"{milliseconds(self.ms)} ({self.label})"

    @property
    def doubt(self) -> str:
        """What keeps its ratio from being a claim; "" where nothing does, or its label says so."""
        return doubt(self.outcome) if self.baseline else ""

    @property
    def over(self) -> str:
        """`1.62x the best baseline, not settled`; "" where there is none."""
        return self._with_doubt(" the best baseline")

    @property
    def over_briefly(self) -> str:
        """`1.62x, not settled`, where what it is over stands elsewhere; "" where there is none."""
        return self._with_doubt("")

    def _with_doubt(self, beside: str) -> str:
        if not self.over_best:
            return ""
        return f"{ratio(self.over_best)}{beside}{f', {self.doubt}' if self.doubt else ''}"

    @property
    def brief(self) -> str:
        """Where there is little room: `8.100 ms (precise), 1.10x, not settled`."""
        return ", ".join(part for part in (self.time, self.over_briefly) if part)

    @property
    def words(self) -> str:
        """Both."""
        return ", ".join(part for part in (self.time, self.over) if part)


def figure_of(evaluation: Evaluation, effort: Effort, baselines: Baselines | None) -> Figure | None:
    """What may be said of a candidate's speed; None where it is not correct or not timed.

    Timed in turns with the best baseline, its ratio is the one over the baseline that is hardest
    to beat; else it is that of the two times alone, and never more than a first impression.
    """
    ms = evaluation.median_ms
    if evaluation.verdict is not Verdict.CORRECT or ms is None:
        return None
    hardest, claim = evaluation.hardest, evaluation.claim
    compared = {item.baseline: item for item in evaluation.comparisons}
    in_turns = effort == "certify" or best_baseline(baselines) in compared
    if hardest is not None and claim is not None and in_turns:
        eager = compared.get("eager")
        return Figure(
            ms=ms,
            label=LABEL_OF[effort],
            over_best=hardest.ratio,
            interval=(hardest.ci95_low, hardest.ci95_high),
            outcome=claim.outcome,
            claim=claim.words,
            over_eager=eager.ratio if eager else None,
            baseline=hardest.baseline,
            clock=hardest.clock,
            latency=hardest.latency,
        )
    return _by_times(ms, LABEL_OF[effort], evaluation, baselines)


def _by_times(
    ms: float, label: Label, evaluation: Evaluation, baselines: Baselines | None
) -> Figure:
    """By times of different moments; the widest interval is the honest one."""
    base, eager = _timed(baselines, best_baseline(baselines)), _timed(baselines, "eager")
    if base is None:
        return Figure(ms=ms, label=label)
    screen, over = evaluation.screen, base.median_ms / ms
    fast, slow = (screen.p10_ms, screen.p90_ms) if screen else (ms, ms)
    beside = next((item for item in evaluation.comparisons if item.baseline == "eager"), None)
    return Figure(
        ms=ms,
        label=label,
        over_best=over,
        interval=(min(over, base.p10_ms / slow), max(over, base.p90_ms / fast)),
        claim=f"{label} only: nothing was compared in turns with the best baseline",
        over_eager=beside.ratio if beside else eager.median_ms / ms if eager else None,
    )


def best_baseline(baselines: Baselines | None) -> str:
    """The name of the fastest baseline; "" where none has a time."""
    try:
        return baselines.best.name if baselines else ""
    except LookupError:
        return ""


def _timed(baselines: Baselines | None, name: str) -> Measurement | None:
    found = baselines.named(name) if baselines and name else None
    return found.measurement if found else None


def in_order(standings: Iterable[Standing], *, certified_first: bool) -> list[Standing]:
    """Correct candidates with a time, the fastest first.

    Once certification has begun, `certified_first`: what was certified was timed against more and
    at another time than the rest, and is what a run stands for, whatever the others looked like.
    """
    fastest = ranked(standings)
    if not certified_first:
        return fastest
    return sorted(fastest, key=lambda item: (item.effort != "certify", _is_slower_alone(item)))


def _is_slower_alone(item: Standing) -> bool:
    """Whether nothing may be claimed of it for its single calls' sake."""
    claim = item.evaluation.claim
    return claim is not None and claim.outcome == "slower alone"


def choose(standings: Iterable[Standing]) -> Standing | None:
    """The candidate that a run stands for: certified before anything else, then the fastest."""
    return next(iter(in_order(standings, certified_first=True)), None)


def headline(figure: Figure | None, status: Status) -> str:
    """What a search amounts to, in one line; every screen, page and message says it so."""
    if status == "improved" and figure is not None and figure.over_best is not None:
        alone = f", single calls {ratio(figure.latency.ratio)}" if figure.latency else ""
        return f"{ratio(figure.over_best)} as fast as the best baseline ({figure.label}){alone}"
    if figure is None:
        return ended_words(status)
    return ended_words(status, figure.label, figure.outcome, figure.claim)


def summed_up(best: BestSummary | None) -> str:
    """A kept summary's ratio as lists of runs show it; its label where it is not certified."""
    if best is None:
        return "-"
    return f"{ratio(best.speedup_vs_best_baseline)}{caution(best.timed, best.outcome)}"


def caution(label: Label | Literal[""], outcome: SpeedOutcome | Literal[""]) -> str:
    """` (precise, not settled)` behind a ratio; "" where it is certified and in no doubt."""
    words = looked_words("" if label == "certified" else label, outcome)
    return f" ({words})" if words else ""


def legend(labels: Iterable[Label]) -> str:
    """What labels that stand beside each other mean; "" for none."""
    used = set(labels)
    return "; ".join(f"{label}: {words}" for label, words in MEANINGS.items() if label in used)


def interval_words(low: float, high: float, outcome: SpeedOutcome | Literal[""] = "") -> str:
    """An interval, and what keeps it from being a claim: by `outcome`, else by where 1 lies."""
    unclear = doubt(outcome or ("not distinguishable" if low <= 1 <= high else ""))
    return f"95 % interval {low:.2f} to {high:.2f}{f', {unclear}' if unclear else ''}"


def compared_words(item: Comparison) -> str:
    """The ratio over one baseline, and its interval."""
    interval = interval_words(item.ci95_low, item.ci95_high, item.settled_outcome)
    return f"{ratio(item.ratio)}, {interval}"


def device_words(name: str) -> str:
    """A device as people call it: `H200`, `Xeon Platinum 8480C`."""
    bare = re.sub(r"\((?:R|TM)\)|@.*|\b(?:NVIDIA|Intel|AMD|CPU|Processor|Corporation)\b", " ", name)
    return one_line(bare, 28) or one_line(name, 28)


# A generated kernel numbers its loops, and begins the names of each loop's settings with `L0`.
_OF_LOOP = re.compile(r"\b[A-Z]*L(\d+)_([A-Z][A-Z0-9_]*)\b")


def in_words(text: str) -> str:
    """Text in which the settings of generated kernels have names for people: `lanes (loop 1)`."""
    return _OF_LOOP.sub(lambda found: f"{_spoken(found[2])} (loop {int(found[1]) + 1})", text)


def settings_words(settings: Sequence[Setting]) -> str:
    """Settings with their values: `lanes 4, threads 256 (loop 1); TILE 8`."""
    loops: dict[str, list[str]] = {}
    for item in settings:
        found = _OF_LOOP.fullmatch(item.name)
        loop = f" (loop {int(found[1]) + 1})" if found else ""
        loops.setdefault(loop, []).append(
            f"{_spoken(found[2]) if found else one_line(item.name, 40)} {item.value}"
        )
    return "; ".join(f"{', '.join(parts)}{loop}" for loop, parts in loops.items())


def _spoken(name: str) -> str:
    return name.lower().replace("_", " ")


def region_words(region: RegionShown) -> str:
    """What came of a region in one line, as `R1 (add, layer_norm; in 23 places): 1.84x`."""
    places = "in one place" if region.places == 1 else f"in {region.places} places"
    came = region.why
    if region.after_ms:
        times = f"{milliseconds(region.before_ms)} to {milliseconds(region.after_ms)}"
        came = f"{region.before_ms / region.after_ms:.2f}x, {times}"
        came = came if region.state == "used" or not region.why else f"{came}; {region.why}"
    what = places if region.words == region.name else f"{region.words}; {places}"
    return f"{region.name} ({what}): {came or region.state}"


def regions_words(regions: Sequence[RegionShown]) -> str:
    """Where the time goes, the largest shares first; that there are none where that is so."""
    if not regions:
        return "no regions were found in the model"
    largest = sorted(regions, key=lambda item: -item.share)[:4]
    told = (f"{item.name} {item.share:.0%} ({item.words})" for item in largest)
    return ", ".join(told)
