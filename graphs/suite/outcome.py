"""What became of one file of a suite: every figure with its conditions and its evidence.

Which files of a folder are a suite's tasks, and in which order, is decided here, and result files
are read and written: one outcome a line, kept as soon as it is known.
"""

import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from kernelwright.graphs.regions.search import RegionsChoice
from kernelwright.tools.evaluate.rules import Depth
from kernelwright.tools.types import Badge, CallMode, Evidence, Phase, Value
from kernelwright.tools.types.measurement import Clock, Comparison, Conditions, Paired
from kernelwright.tools.types.run import Status, Summary

_NUMBERS = re.compile(r"(\d+)")


def task_files(folder: Path, match: Sequence[str] = ()) -> tuple[Path, ...]:
    """The Python files of a folder, `9_...` before `10_...`.

    Args:
        folder: Where they lie; folders in it are not looked into.
        match: Keeps files that any of these fits: a number for files that begin with it, a range
            of numbers as `20-29`, a pattern with `*`, or a part of the name.
    """
    found = [path for path in folder.glob("*.py") if not path.name.startswith(("_", "."))]
    kept = [path for path in found if not match or any(fits(path.stem, one) for one in match)]
    return tuple(sorted(kept, key=natural))


def fits(stem: str, wanted: str) -> bool:
    """Whether a file's name is among what is wanted; see `task_files`."""
    number = re.match(r"\d+", stem)
    if wanted.isdecimal():
        return number is not None and int(number[0]) == int(wanted)
    if between := re.fullmatch(r"(\d+)-(\d+)", wanted):
        first, last = int(between[1]), int(between[2])
        return number is not None and first <= int(number[0]) <= last
    if any(sign in wanted for sign in "*?["):
        return fnmatchcase(stem.lower(), wanted.lower())
    return wanted.lower() in stem.lower()


def natural(path: Path) -> tuple[tuple[int, int, str], ...]:
    """A key to sort by, in which digits compare as numbers."""
    parts = _NUMBERS.split(path.name)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part)


Ended = Literal["searched", "baselines", "refused", "timed_out", "failed"]

EAGER, COMPILE = "eager", "compile"
BESIDE = "beside"  # the part of an account that nobody waited for
REGIONS = "regions"  # and that of all searches over a model's regions


class Terms(Value):
    """Under which terms a suite was run; two of its lines compare only where these agree.

    Attributes:
        search: The search profile's name; "" where only baselines were measured.
        seconds: What a search might spend, as far as the person limited it.
        seed: Of everything drawn by chance.
        target: The kind of device.
        kernelwright: Which version.
        torch: Which version.
        evidence: How closely finalists were looked at: "full", "timing", "autotune" or
            "counters" (see docs/suites.md).
        figures: Of every figure of the judge's rules and the search profile, a hash, so that
            results under others are not taken for these; "" in files from before it was kept.
        regions: Whether large models are searched region by region; never before that was kept.
    """

    search: str
    seconds: float | None
    seed: int
    target: str
    kernelwright: str
    torch: str
    evidence: Depth = "full"
    figures: str = ""
    regions: RegionsChoice = "off"


class Against(Value):
    """The best candidate against one baseline, interleaved in one process.

    `ratio` is baseline over candidate by `clock`, with its 95 % interval over `pairs`; `latency` is
    of single calls on an idle device, None where those were not taken.
    """

    baseline: str
    ratio: float
    ci95: tuple[float, float]
    pairs: int
    candidate_ms: float
    baseline_ms: float
    conditions: Conditions
    clock: Clock = "call"
    latency: Paired | None = None

    @classmethod
    def of(cls, found: Comparison) -> "Against":
        """Without the samples, which the run keeps."""
        return cls(
            baseline=found.baseline,
            ratio=found.ratio,
            ci95=(found.ci95_low, found.ci95_high),
            pairs=found.pairs,
            candidate_ms=found.candidate_ms,
            baseline_ms=found.baseline_ms,
            conditions=found.conditions,
            clock=found.clock,
            latency=found.latency,
        )


class Outcome(Value):
    """One line of a result file.

    Attributes:
        file: The file's name, which names the task within its suite.
        sha256: Of its source, so that a changed file is not taken for the same task.
        ended: How far it came; `words` say why where that is not to the end.
        warnings: What a person was told of the task, in words.
        badges: The audit's doubts; a task proves little where one of them says so.
        summary: Of the search, with baselines; None where there was none.
        baselines_ms: The medians alone, for files that were not searched.
        against: The certified candidate beside each baseline.
        absent: Baselines that the evidence asks for and that the candidate does not stand beside:
            not made within their time, or not at all.
        rejected: What was wrong with candidates that were not correct, each kind once.
        kernel_sha256: Of the best candidate's source and plan: which one the figures are of.
        counted: What profilers of the device measured of it, where that was asked for.
        bounds: What bounds it by those readings, in words, the most important first.
        run: The run's id, whose archive holds samples, sources and verdicts.
        seconds: From reading the file to the end, compilers included.
        phases: Where they went, as the judge's account says; () for what a task without one takes.
            What was done beside other work (part "beside") is not of the seconds.
        device: Which kind of device of a cluster it was asked of; "" where there was one device.
    """

    file: str
    sha256: str
    ended: Ended
    terms: Terms
    words: str = ""
    warnings: tuple[str, ...] = ()
    badges: tuple[Badge, ...] = ()
    summary: Summary | None = None
    baselines_ms: tuple[tuple[str, float | None], ...] = ()
    against: tuple[Against, ...] = ()
    absent: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    kernel_sha256: str = ""
    counted: tuple[Evidence, ...] = ()
    bounds: tuple[str, ...] = ()
    run: str = ""
    seconds: float = 0.0
    phases: tuple[Phase, ...] = ()
    device: str = ""

    @property
    def name(self) -> str:
        """The file, and the kind of device where several may have been asked for."""
        return f"{self.file.removesuffix('.py')} ({self.device})" if self.device else self.file

    def over(self, baseline: str) -> float | None:
        """How many times as fast as one baseline; None where it was not compared."""
        return next((item.ratio for item in self.against if item.baseline == baseline), None)

    @property
    def doubt(self) -> Badge | None:
        """The first badge by which the task proves little, or None."""
        return next((badge for badge in self.badges if badge.proves_little), None)

    @property
    def over_best(self) -> float | None:
        """How many times as fast as the baseline that is hardest to beat."""
        return min((item.ratio for item in self.against), default=None)

    @property
    def hardest(self) -> Against | None:
        """The comparison with that baseline."""
        return min(self.against, key=lambda item: item.ratio, default=None)

    @property
    def over_best_alone(self) -> float | None:
        """The same by single calls on an idle device, beside that baseline."""
        hardest = self.hardest
        return hardest.latency.ratio if hardest and hardest.latency else None

    @property
    def status(self) -> Status | None:
        """What may be claimed; None where there was no search."""
        return self.summary.status if self.summary else None

    @property
    def regions(self) -> tuple[int, int]:
        """How many kinds of regions were searched, and how many of these what won may use."""
        found = self.summary.regions if self.summary else ()
        searched = [item for item in found if item.run]
        return len(searched), sum(item.state == "used" for item in searched)

    @property
    def mode(self) -> CallMode | None:
        """How the best candidate's plan is called; None where there is none."""
        best = self.summary.best if self.summary else None
        return best.mode if best else None

    @property
    def floor_fraction(self) -> float | None:
        """The floor's time over the best candidate's."""
        best = self.summary.best if self.summary else None
        return best.floor_fraction if best else None


class ResultsError(Exception):
    """A file that is no result file; the message names the line."""


def read(path: Path) -> tuple[Outcome, ...]:
    """The outcomes of a result file, each file's last one; a torn last line is left out.

    Raises:
        ResultsError: When another line is no outcome, or the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot read {path}: {error}") from None
    lines = text.splitlines()
    found: dict[str, Outcome] = {}
    for number, line in enumerate(lines, start=1):
        try:
            outcome = Outcome.model_validate_json(line)
        except ValidationError:
            if number == len(lines) and torn(text):
                break
            raise ResultsError(f"line {number} of {path} is no outcome of a suite") from None
        found.pop(outcome.name, None)
        found[outcome.name] = outcome
    return tuple(found.values())


def torn(text: str) -> bool:
    """Whether a kill cut the last line off."""
    return bool(text) and not text.endswith("\n")


def append(path: Path, outcome: Outcome) -> None:
    """Keep an outcome, on disk before this returns: the next task may take the machine with it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(outcome.model_dump_json() + "\n")
        file.flush()
        os.fsync(file.fileno())


def begin(path: Path, kept: Iterable[Outcome]) -> None:
    """Write a result file anew with what is kept of it, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    beside.write_text("".join(f"{item.model_dump_json()}\n" for item in kept), encoding="utf-8")
    beside.replace(path)
