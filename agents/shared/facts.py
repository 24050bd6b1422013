"""What every role reads: attributes, the person's kernel and steering, and a candidate's numbers.

Attributes are `name=value` words that roles can compare, prefer and avoid. The coder declares how
it spread each loop (`row_softmax=warp_per_row`) and what the dominant loop does to memory,
arithmetic and the machine (`memory=on chip`); settings and the compiler's report add what was
chosen and what it cost. A role that learns something says it in these words, so another can act
on it.

A search may begin with a kernel of the person's. With its plan it is a candidate and is judged as
it is, before anything else; without one (a bare `.cu`) a language model is asked to wrap it. Either
way it is an idea of the person's in the first round. Steering is what the person said about where
to look, typed, so that every role reads the same.

Of a candidate's numbers, times and ratios come from the judge; the rest are the profiler's
readings, with what profilers of the device measured of an elite: counters, times of kernels, clocks
and power. Each has its rank. Readings of one kernel are called `kernel.reading`; without the
kernel's name, the largest over all kernels is meant. A claim of a model's cites readings of
exhibits (`K1.screen_ms=0.412`), each looked up and compared; and its words may say by how much
something is faster, which has to be a ratio of two times of the exhibits. A number that cannot be
found, or that is another one than was measured, is told and not believed.

Not here: reading the person's file (the command line's business), and turning a sentence into
steering (the conversation's). Not covered: a claim's reasoning. That two numbers are right does not
make one the other's cause; predictions are for that.

Two candidates' readings differ in many ways. The one that is shown beside a difference in time is
that which moved, in the direction that makes a kernel faster, by the largest part of it.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import permutations
from math import inf, log
from typing import Annotated

from pydantic import BeforeValidator

from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive.elites import declared, outcomes
from kernelwright.tools.codegen.library.kernel_library import ROUNDED_FACTORS
from kernelwright.tools.profile import evidence_for, reported
from kernelwright.tools.profile.symptoms.readings import TELLING_TIME_SHARE
from kernelwright.tools.types import (
    Candidate,
    CompileReport,
    Evaluation,
    Evidence,
    Idea,
    LanguageName,
    LaunchShape,
    Rank,
    Task,
    Value,
)

LABELS = ("memory", "compute", "parallel")
# What a compiler reports is an outcome: it can explain a gap, but nobody can choose it.
OUTCOMES = ("registers", "spills", "shared")


def attributes(
    candidate: Candidate,
    reports: tuple[CompileReport, ...] = (),
    launches: tuple[LaunchShape, ...] = (),
) -> dict[str, str]:
    """Everything that sets a candidate apart, by name."""
    found = declared(candidate)
    found |= {setting.name: str(setting.value) for setting in candidate.settings}
    return found | outcomes(reports, launches)


def choices(candidate: Candidate) -> dict[str, str]:
    """Which strategy each loop was given, by the loop's name."""
    known = (*LABELS, ROUNDED_FACTORS.split("=")[0])
    return {name: value for name, value in declared(candidate).items() if name not in known}


def is_actionable(name: str) -> bool:
    """Whether somebody can choose this attribute."""
    return name not in OUTCOMES


def agreement(found: dict[str, str], words: Iterable[str]) -> int:
    """How many of the `name=value` words hold for these attributes."""
    said = set(words)
    return sum(f"{name}={value}" in said for name, value in found.items()) if said else 0


_LOOP_OF_KERNEL = re.compile(r"([A-Z]*L\d+)(?:_|$)")


def loop_of(kernel: str) -> str:
    """The loop that a kernel of the playbook's does; "" for another's kernel."""
    found = _LOOP_OF_KERNEL.match(kernel)
    return found[1] if found else ""


def loop_times(readings: Iterable[Evidence], candidate: Candidate) -> tuple[tuple[str, float], ...]:
    """What each loop of a candidate took by a profiler of the device, as `loop=strategy`."""
    found: dict[str, float] = {}
    ways = choices(candidate)
    for item in readings:
        kernel, _, name = item.name.rpartition(".")
        loop = loop_of(kernel)
        if name == "time" and item.value is not None and loop in ways:
            way = f"{loop}={ways[loop]}"
            found[way] = found.get(way, 0.0) + item.value
    return tuple(found.items())


PERSON = "person"


class Start(Value):
    """A kernel and its plan; the plan is "" for a bare kernel. `name` is the file's.

    `others` are further plans for the same kernel, where its launch was inferred and could be one
    or another; the judge finds out.
    """

    language: LanguageName
    kernel: str
    plan: str = ""
    name: str = ""
    others: tuple[str, ...] = ()
    inferred: bool = False

    @property
    def idea(self) -> Idea:
        """The idea of the first round under which it is judged."""
        words = "as it is" if self.plan else "given a plan that launches it"
        if self.inferred:
            lines = (line.strip() for line in self.plan.splitlines() if "launch(" in line)
            words = f"launched by what its source says: {next(lines, '')}"
        return Idea(
            id="r1i0",
            title=f"Your own kernel, {words.partition(':')[0]}",
            mechanism=f"the kernel of {self.name or 'the person'}, {words}",
            reason="the person gave it to start from",
            category="given",
            metric="time",
            round=1,
            origin=PERSON,
        )


class Steering(Value):
    """Steering that holds until the person takes it back.

    Each text names a strategy, a category, an attribute (`memory=on chip`) or simply words
    that may occur in an idea. Pins come first, bans never come, hints tip the balance.
    """

    hints: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    bans: tuple[str, ...] = ()


def speaks_of(name: str, texts: tuple[str, ...]) -> bool:
    """Whether a hint, pin or ban names one of these texts or has all its words among them."""
    wanted = name.strip().lower()
    described = [text.lower() for text in texts]
    words = set(" ".join(described).replace("=", " ").replace("_", " ").split())
    return bool(wanted) and (wanted in described or set(wanted.replace("_", " ").split()) <= words)


def known(
    candidate: Candidate,
    evaluation: Evaluation,
    task: Task | None = None,
    hardware: Hardware | None = None,
    measured: tuple[Evidence, ...] = (),
) -> tuple[Evidence, ...]:
    """Every number that is known of a candidate.

    Args:
        candidate: Which.
        evaluation: What the judge said of it; its times are newer than any other's.
        task: Together with `hardware` gives readings against the device's ceilings.
        hardware: Where.
        measured: What the profiler read of it, () where it did not look.
    """
    found = list(_timings(evaluation))
    if task is not None and hardware is not None:
        read = evidence_for(evaluation, candidate, task, hardware)
        found += [item for item in read if item.value is not None]
    else:
        found += reported(evaluation)
    names = {item.name for item in found}
    return (*found, *(item for item in _of_long_kernels(measured) if item.name not in names))


def _of_long_kernels(measured: tuple[Evidence, ...]) -> Iterable[Evidence]:
    """Readings with a number; of kernels, only of those that take a telling part of the call."""
    short = {
        item.name.rpartition(".")[0]
        for item in measured
        if item.name.endswith(".time_share") and (item.value or 0.0) < TELLING_TIME_SHARE
    }
    return (
        item
        for item in measured
        if item.value is not None and item.name.rpartition(".")[0] not in short
    )


def reading(found: Iterable[Evidence], name: str) -> float | None:
    """The number of that name; for a kernel's reading without the kernel, the largest."""
    values = [item.value for item in found if item.value is not None and item.is_called(name)]
    return max(values, default=None)


# What explains a time, by name, and whether less of it is faster; the most telling of equals first.
# A stall's name goes on with its reason.
_EXPLAINING = {
    "dram_traffic": True, "dram_read": True, "dram_written": True, "missed_bytes": True,
    "load_sectors_per_request": True, "store_sectors_per_request": True,
    "load_bytes_per_sector": False, "store_bytes_per_sector": False, "local_read": True,
    "local_written": True, "spills": True, "shared_conflict_share": True, "stall_": True,
    "fault_share": True, "tlb_share": True, "misprediction_share": True, "launch_share": True,
    "tensor_fraction": False, "threads_per_instruction": False, "achieved_occupancy": False,
    "occupancy": False, "packed_share": False, "busy_threads": False,
    "instructions_per_cycle": False, "instructions": True,
}  # fmt: skip
# Counters of two runs of one kernel differ by a few per cent; less than this explains nothing.
_MOVED = log(1.1)
# A share, of time or of a unit, that moved by less of the whole explains nothing either.
_MOVED_SHARE = 0.1


class Shift(Value):
    """A reading that differs between a faster and a slower candidate, as words and as numbers."""

    words: str
    numbers: tuple[str, ...]


def shift_behind(
    faster: tuple[str, tuple[Evidence, ...]], slower: tuple[str, tuple[Evidence, ...]], gap: float
) -> Shift | None:
    """The reading that explains most of a gap between two candidates, None where none does.

    Args:
        faster: Id and facts of the one.
        slower: Of the other.
        gap: The logarithm of the ratio of their times.
    """
    one, other = _explaining(faster[1]), _explaining(slower[1])
    moved = {name: _moved(name, one[name], other[name]) for name in one if name in other}
    order = list(_EXPLAINING)
    telling = sorted(
        (name for name, by in moved.items() if by >= _MOVED),
        key=lambda name: (-min(moved[name], gap), order.index(_kind(name))),
    )
    if not telling:
        return None
    name = telling[0]
    words = f"{name} is {_amount(one[name])} with it and {_amount(other[name])} with the other"
    sides = ((faster[0], one[name]), (slower[0], other[name]))
    return Shift(
        words=words,
        numbers=tuple(f"{id}: {name} {_amount(item)} ({item.rank.value})" for id, item in sides),
    )


def _explaining(found: Iterable[Evidence]) -> dict[str, Evidence]:
    """Readings that explain times, by their names without the kernel's; of several the largest."""
    known: dict[str, Evidence] = {}
    for item in sorted(found, key=lambda item: item.value or 0.0):
        name = item.name.rpartition(".")[2]
        if _kind(name) and item.value is not None:
            known[name] = item
    return known


def _kind(name: str) -> str:
    kind = "stall_" if name.startswith("stall_") else name
    return kind if kind in _EXPLAINING else ""


def _moved(name: str, fast: Evidence, slow: Evidence) -> float:
    """How far a reading moved towards what is faster, as a log ratio; infinite from or to none."""
    less, more = fast.value or 0.0, slow.value or 0.0
    if not fast.unit and abs(more - less) < _MOVED_SHARE:
        return 0.0
    if not _EXPLAINING[_kind(name)]:
        less, more = more, less
    if more <= 0.0 or less < 0.0:
        return 0.0
    return log(more / less) if less > 0.0 else inf


def _amount(item: Evidence) -> str:
    return f"{item.value:.4g} {item.unit}".strip()


def _timings(evaluation: Evaluation) -> Iterable[Evidence]:
    if evaluation.screen is not None:
        yield _measured("screen_ms", evaluation.screen.median_ms, "ms", "screening")
    if evaluation.comparisons and evaluation.median_ms is not None:
        yield _measured("precise_ms", evaluation.median_ms, "ms", "interleaved comparison")
    if (hardest := evaluation.hardest) is not None and hardest.latency is not None:
        alone_ms = hardest.latency.candidate_ms
        yield _measured("latency_ms", alone_ms, "ms", "single calls on an idle device")
    for item in evaluation.comparisons:
        yield _measured(f"speedup_vs_{item.baseline}", item.ratio, "x", "interleaved comparison")
    if evaluation.verification.error_ratio is not None:
        yield _measured("error_ratio", evaluation.verification.error_ratio, "", "verification")


def _measured(name: str, value: float, unit: str, source: str) -> Evidence:
    return Evidence(name=name, rank=Rank.MEASURED, value=value, unit=unit, source=source)


# A citation may be rounded: 2 % always, or to its own last digit while that is within 10 %.
ROUNDED, AT_MOST = 0.02, 0.10
# A ratio is worked out from rounded numbers, mostly in the head.
RATIO = 0.05

_CITATION = re.compile(
    r"(?P<exhibit>K\d+)\s*[.:'\s]+\s*(?P<name>[A-Za-z_]\w*(?:\.\w+)*)\s*(?:=|:|\bis\b|\s)\s*~?\s*"
    r"(?P<value>[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*(?P<percent>%?)"
)
_RATIO = re.compile(
    r"(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>x|\u00d7|times|%|percent)\s*"
    r"(?:as\s+fast|faster|slower|less\s+time|more\s+time|speed-?up)",
    re.IGNORECASE,
)


class Citation(Value):
    """One number as cited; `places` are the digits behind its point."""

    exhibit: str
    name: str
    value: float
    places: int


Facts = Mapping[str, tuple[Evidence, ...]]


def citations(text: str) -> tuple[Citation, ...]:
    """Everything in a text that has the form `K1.name=value`, or nearly so."""
    return tuple(_cited(found) for found in _CITATION.finditer(text))


def _cited(found: re.Match[str]) -> Citation:
    digits = found["value"].replace(",", "")
    behind = re.search(r"\.(\d+)", digits)
    places = len(behind[1]) if behind else 0
    value = float(digits)
    if found["percent"]:
        value, places = value / 100.0, places + 2
    return Citation(exhibit=found["exhibit"], name=found["name"], value=value, places=places)


def complaint(cited: Citation, facts: Facts) -> str:
    """What is wrong with a citation; "" when it is what was measured."""
    known = facts.get(cited.exhibit)
    if known is None:
        return f"there is no exhibit {cited.exhibit}"
    measured = reading(known, cited.name)
    if measured is None:
        return f"{cited.exhibit} has no reading {cited.name}"
    if _agrees(cited, measured):
        return ""
    return f"{cited.exhibit}.{cited.name} is {measured:.6g}, not {cited.value:g}"


def unfounded_ratios(words: str, facts: Facts, others: Iterable[float] = ()) -> tuple[str, ...]:
    """Every "so many times faster" in the words that no two readings of the exhibits give.

    Args:
        words: What was said.
        facts: Readings by exhibit.
        others: Ratios that stand elsewhere in the prompt.
    """
    ratios = (*_ratios(facts), *others)
    return tuple(
        found[0]
        for found in _RATIO.finditer(words)
        if not any(_near(wanted, ratio) for wanted in _meant(found) for ratio in ratios)
    )


def _agrees(cited: Citation, measured: float) -> bool:
    off = abs(cited.value - measured)
    last_digit = 0.5 * 10.0**-cited.places
    return off <= ROUNDED * abs(measured) or off <= min(last_digit, AT_MOST * abs(measured))


def _meant(found: re.Match[str]) -> tuple[float, ...]:
    """The ratio of the longer to the shorter time; "30 % less time" is also 1 / 0.7."""
    value = float(found["value"])
    if found["unit"].lower() in ("%", "percent"):
        share = value / 100.0
        return (1.0 + share, 1.0 / (1.0 - share)) if share < 1.0 else (1.0 + share,)
    return (value, 1.0 + value)


# Speed is what readings in these units say; that other readings differ makes nothing faster.
_OF_SPEED = ("ms", "GB/s", "TFLOP/s", "x")


def _ratios(facts: Facts) -> Iterable[float]:
    """Ratios above 1 between times or rates of the same name, and the judge's own speed-ups."""
    by_name: dict[str, list[float]] = {}
    for known in facts.values():
        for item in known:
            if item.value is not None and (item.unit in _OF_SPEED or item.name.endswith("_ms")):
                by_name.setdefault(item.name, []).append(item.value)
    for name, values in by_name.items():
        if name.startswith("speedup_vs_"):
            yield from values
            yield from (1.0 / value for value in values if value)
        yield from (one / other for one, other in permutations(values, 2) if other and one >= other)


def _near(wanted: float, ratio: float) -> bool:
    return abs(wanted - ratio) <= RATIO * ratio


def _number(given: object) -> object:
    """`"0.9 ms"` means 0.9, and a word without a number says nothing."""
    if not isinstance(given, str):
        return given
    found = re.search(r"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", given)
    return float(found[0]) if found else None


def _texts(given: object) -> object:
    """Citations as texts, also where they came as an object or a single one."""
    if isinstance(given, dict):
        return [f"{name}={value}" for name, value in given.items()]
    if isinstance(given, list):
        parts = (_texts(item) if isinstance(item, dict) else [str(item)] for item in given)
        return [text for part in parts if isinstance(part, list) for text in part]
    return [given] if isinstance(given, str) else given or []


Number = Annotated[float | None, BeforeValidator(_number)]
Texts = Annotated[list[str], BeforeValidator(_texts)]
