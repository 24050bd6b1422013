"""One budget for a large model, planned before anything long starts, and said.

A search over a large model has four parts: its regions are listed, those that can bring most have
a turn each, what became of them is judged as a whole beside torch.compile, and the best is
certified. Each part has its share of the seconds; what one does not use the next one has. Regions
whose turn would be too short to find anything are left out, and where none can have one they are
not searched at all: the time is the whole's then. A model that is traced in parts has no other
search: of it the most promising region has what time there is, however short, and that is said.

What parts take is expected from the device and the model's size until it was measured. Not covered:
whether the kernels that regions get beat those that the model as one gets, which the judge says of
the whole.
"""

from __future__ import annotations

from kernelwright.graphs.run_view.events import seconds as duration
from kernelwright.graphs.search.pace import build_s
from kernelwright.tools.types import Task
from kernelwright.tools.types.outline import ModelRegions, RegionClass
from kernelwright.tools.types.value import Value

# A region that takes less of the model's time is left alone.
LEAST_SHARE = 0.01
# Of the time for searching, the most that regions have; the rest is for the whole.
_MOST_FOR_REGIONS = 0.7
# What a class needs to be read, to have a few candidates compiled, and to have these timed. On two
# cores of a virtual machine the first candidates of a class were there after 10 to 20 s; beside an
# H200 the four regions that had a turn of 8 to 15 s found 1.8 to 3.6 times
# (benchmarks/results/h200/real_models.jsonl).
_TURN_S = {"cpu": 20.0, "cuda": 10.0}
# Of a turn, what comes before the search over the region: its file is read, eager is timed.
_READING_S = {"cpu": 6.0, "cuda": 3.0}
# Listing: a start, and for each node of the task's graph. Beside an H200 it took 7 s (an LSTM) to
# 20 (twelve layers) and 30.
_LISTING_S = {"cpu": (5.0, 0.02), "cuda": (5.0, 0.02)}
_NODES_OF_A_PART = 100
# A candidate for the whole: its kernels compiled, verified and timed.
_JUDGED_S = {"cpu": 8.0, "cuda": 6.0}
# By how many times a machine is taken to be quicker or slower than those figures, at most.
_QUICKEST, _SLOWEST = 0.7, 4.0
# In how many ways a whole is judged at least: called launch by launch, and in another mode.
_WAYS = 2
# With fewer places a module is searched as one: it is as good as one region.
_FEWEST_PLACES = 3
# Where nobody asked, classes that have a turn must be able to bring this share of what all can.
_SHARE_OF_GAIN = 0.5
_FEWEST_TURNS_UNASKED = 2


class Costs(Value):
    """Seconds that each part of a search over a large model takes; expected ones.

    Attributes:
        listing_s: running the model operator by operator.
        turn_s: the least for one class, `reading_s` of it included.
        reading_s: what comes before the search over a class.
        compile_s: torch.compile's build of the whole.
        judged_s: compiling, verifying and timing one candidate for the whole.
        certifying_s: the best, in a process of its own in which torch.compile builds again.
    """

    listing_s: float
    turn_s: float
    reading_s: float
    compile_s: float
    judged_s: float
    certifying_s: float

    @classmethod
    def of(cls, task: Task, kind: str, certifying_s: float) -> Costs:
        """For a task; of one that is traced in parts the graphs are known when it is listed.

        Such a one is not called inside torch.compile, for which nothing is set aside then: that
        would be taken from the only search there is.
        """
        nodes = len(task.graph.nodes) + _NODES_OF_A_PART * len(task.parts)
        costs = cls.expected(kind, nodes, certifying_s)
        if not task.parts:
            return costs
        return costs.model_copy(update={"compile_s": 0.0, "certifying_s": certifying_s})

    @classmethod
    def expected(cls, kind: str, nodes: int, certifying_s: float) -> Costs:
        """For a task of so many nodes on that kind of device.

        Args:
            kind: of the device, `cpu` or `cuda`.
            nodes: of the task's graph.
            certifying_s: what certifying a finalist took here so far.
        """
        listing_s, listed_node_s = _LISTING_S[kind]
        compile_s = build_s(kind, nodes)
        return cls(
            listing_s=listing_s + listed_node_s * nodes,
            turn_s=_TURN_S[kind],
            reading_s=_READING_S[kind],
            compile_s=compile_s,
            judged_s=_JUDGED_S[kind],
            certifying_s=certifying_s + compile_s / 2,
        )

    def as_listed(self, took_s: float) -> Costs:
        """The same on a machine that listed in so many seconds: all of it is much alike work.

        Starts of processes, tracing and compiling take as many times what was expected as listing
        did, within limits; a turn is never shorter for it.
        """
        times = min(max(took_s / self.listing_s, _QUICKEST), _SLOWEST)
        compile_s = times * self.compile_s
        return Costs(
            listing_s=took_s,
            turn_s=max(1.0, times) * self.turn_s,
            reading_s=times * self.reading_s,
            compile_s=compile_s,
            judged_s=times * self.judged_s,
            certifying_s=self.certifying_s + (compile_s - self.compile_s) / 2,
        )

    def whole_s(self, *, builds: int) -> float:
        """What the whole needs: judged in its ways, and so many builds by torch.compile."""
        return _WAYS * self.judged_s + builds * self.compile_s


class Given(Value):
    """What a search has, when its budget is planned.

    Attributes:
        seconds: what the whole search may take.
        left_s: of it, what is left to its very end.
        holds_baselines: whether listing and torch.compile's build count.
        compiled: whether that build is made, as it is behind the first round.
        holds_certification: whether certifying counts.
        compiles: whether the whole is also tried inside torch.compile.
        asked: whether the person wants regions.
        alone: whether nothing else can be searched, as of a model that is traced in parts.
    """

    seconds: float
    left_s: float
    holds_baselines: bool = False
    compiled: bool = False
    holds_certification: bool = True
    compiles: bool = True
    asked: bool = False
    alone: bool = False


class RegionBudget(Value):
    """The seconds of one search over a large model, each part's.

    Attributes:
        given_s: what the search was given in all.
        listing_s: to list the regions; 0 once that is done, or where it does not count.
        regions_s: to search them; 0 where they are not searched.
        whole_s: to judge what they are put together to, and to search the model as one.
        certification_s: to certify the best.
        turns: so many classes can have a turn.
        classes: so many differ and take enough of the time; None before they are listed.
        gain_share: of what there is to gain, what those with a turn hold; 1 before it is known.
        wanted_s: in so many seconds one class can have a turn.
        wanted_all_s: in so many all can; of two before they are listed.
        why_not: why they are not searched, in words; "" where they are.
        warning: why what they have will hardly do, in words; "" where it may.
    """

    given_s: float
    listing_s: float
    regions_s: float
    whole_s: float
    certification_s: float
    turns: int
    classes: int | None = None
    gain_share: float = 1.0
    wanted_s: float = 0.0
    wanted_all_s: float = 0.0
    why_not: str = ""
    warning: str = ""

    @property
    def words(self) -> str:
        """The plan in one line, as a person reads it."""
        parts = [f"{duration(self.listing_s)} to list its regions"] if self.listing_s else []
        if self.classes is None:
            parts.append(f"{duration(self.regions_s)} for up to {self.turns} of them")
        else:
            parts.append(
                f"{duration(self.regions_s)} for {self.turns} of {self.classes} that differ "
                f"({self.gain_share:.0%} of what there is to gain)"
            )
        parts.append(f"{duration(self.whole_s)} for the whole beside torch.compile")
        if self.certification_s:
            parts.append(f"{duration(self.certification_s)} to certify")
        return f"plan of {duration(self.given_s)}: about {', '.join(parts)}"


def hopeful(regions: ModelRegions) -> tuple[RegionClass, ...]:
    """The classes that take enough of the model's time, the most promising first."""
    return tuple(item for item in regions.classes if item.share >= LEAST_SHARE)


def planned(costs: Costs, given: Given, regions: ModelRegions | None = None) -> RegionBudget:
    """The budget of a search.

    Args:
        costs: what its parts take.
        given: what it has.
        regions: of the model; None before they are listed.
    """
    holds = given.holds_baselines
    listing_s = costs.listing_s if regions is None and holds else 0.0
    certification_s = costs.certifying_s if given.holds_certification else 0.0
    needed_s = costs.whole_s(builds=int(holds and not given.compiled) + int(given.compiles))
    room_s = given.left_s - listing_s - certification_s
    regions_s = max(0.0, min(room_s - needed_s, _MOST_FOR_REGIONS * room_s))

    def wanted_s(turns: int) -> float:
        turns_s = turns * costs.turn_s
        return given.seconds - room_s + max(turns_s + needed_s, turns_s / _MOST_FOR_REGIONS)

    found = hopeful(regions) if regions is not None else None
    turns = int(regions_s / costs.turn_s)
    turns = turns if found is None else min(turns, len(found))
    most = _FEWEST_TURNS_UNASKED if found is None else max(1, len(found))
    budget = RegionBudget(
        given_s=given.seconds,
        listing_s=listing_s,
        regions_s=regions_s,
        whole_s=max(0.0, room_s - regions_s),
        certification_s=max(0.0, min(certification_s, given.left_s)),
        turns=turns,
        classes=None if found is None else len(found),
        gain_share=_gain_share(found or (), turns),
        wanted_s=wanted_s(1),
        wanted_all_s=wanted_s(most),
    )
    short = _too_short(budget, given)
    if given.alone:
        return _with_a_turn(budget, costs, given, found, short) if short else budget
    why = short or ("" if given.asked else _too_little(budget, found))
    return budget.model_copy(update={"why_not": why})


def _with_a_turn(
    budget: RegionBudget,
    costs: Costs,
    given: Given,
    found: tuple[RegionClass, ...] | None,
    short: str,
) -> RegionBudget:
    """A budget that is too short for a turn, with one nevertheless, of what time there is."""
    left_s = max(0.0, given.left_s - budget.listing_s)
    regions_s = max(budget.regions_s, min(costs.turn_s, _MOST_FOR_REGIONS * left_s))
    certification_s = min(budget.certification_s, left_s - regions_s)
    shares = {
        "regions_s": regions_s,
        "certification_s": certification_s,
        "whole_s": left_s - regions_s - certification_s,
        "turns": 1,
        "gain_share": _gain_share(found or (), 1),
        "warning": f"{short}; the one that can bring most has what time there is",
    }
    return budget.model_copy(update=shares)


def wanted_words(costs: Costs, regions: ModelRegions) -> str:
    """Which `--seconds` a search region by region would want, before anything is begun."""
    nothing = Given(seconds=0.0, left_s=0.0, holds_baselines=True, asked=True)
    budget = planned(costs, nothing, regions)
    if not budget.classes:
        return ""
    one_s = budget.wanted_s + costs.listing_s
    words = f"about {duration(one_s)} search the one that can bring most"
    if budget.classes == 1:
        return words
    all_s = budget.wanted_all_s + costs.listing_s
    return f"{words}, {duration(all_s)} all {budget.classes} that differ"


def _gain_share(found: tuple[RegionClass, ...], turns: int) -> float:
    all_ms = sum(item.gain_ms for item in found)
    return sum(item.gain_ms for item in found[:turns]) / all_ms if all_ms else 1.0


def _too_short(budget: RegionBudget, given: Given) -> str:
    """Why no turn could find anything, with the seconds that would do."""
    unasked = budget.classes is None and not (given.asked or given.alone)
    fewest = _FEWEST_TURNS_UNASKED if unasked else 1
    if budget.turns >= fewest or budget.classes == 0:
        return ""
    wanted_s = budget.wanted_all_s if unasked else budget.wanted_s
    more = budget.classes is not None and budget.classes > 1
    also = f", and for all {budget.classes} {duration(budget.wanted_all_s)}" if more else ""
    return (
        f"{duration(budget.given_s)} are too few to search its regions one by one, for which "
        f"about {duration(wanted_s)} would do{also}"
    )


def _too_little(budget: RegionBudget, found: tuple[RegionClass, ...] | None) -> str:
    """Why searching them would bring too little where nobody asked for it."""
    if found is None:
        return ""
    places = sum(len(item.regions) for item in found)
    if places < _FEWEST_PLACES:
        return f"only {places} of its regions take {LEAST_SHARE:.0%} of the time"
    if budget.gain_share < _SHARE_OF_GAIN:
        return (
            f"the time is for {budget.turns} of {budget.classes} regions that differ, which hold "
            f"{budget.gain_share:.0%} of what there is to gain; for all of them about "
            f"{duration(budget.wanted_all_s)} would do"
        )
    return ""


def turn_s(regions_left_s: float, waiting: tuple[RegionClass, ...], least_s: float) -> float:
    """What the first of the waiting classes may take; 0 where the seconds do not suffice.

    Those that can have a turn have the least for one each, and share the rest by what they can
    bring.

    Args:
        regions_left_s: what is left of the regions' share.
        waiting: the most promising first.
        least_s: what one turn needs.
    """
    turns = min(len(waiting), int(regions_left_s / least_s)) if least_s > 0 else 0
    if not turns:
        return 0.0
    gains_ms = sum(item.gain_ms for item in waiting[:turns])
    part = waiting[0].gain_ms / gains_ms if gains_ms else 1 / turns
    return least_s + part * (regions_left_s - turns * least_s)
