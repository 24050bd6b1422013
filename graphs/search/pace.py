"""How long a search of each depth takes on a device, to the end, and what a run spent so far.

Every search that ends leaves its parts in a file of its device: what PyTorch's own ways took, what
searching, profiling and certifying did. The next one says beforehand what it will take, and stops
searching early enough for its certification. Where none has ended yet, the depth's own figures are
a first guess, and called that. Not covered: reading and auditing a file, which comes before.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import inf
from pathlib import Path
from statistics import median

from pydantic import Field, ValidationError

from kernelwright.graphs.run_view.events import (
    EVENT,
    BaselinesMeasured,
    RegionsFound,
    seconds,
)
from kernelwright.profiles.load import Hardware, SearchProfile, search_profile
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Evaluation, Phase, Verdict
from kernelwright.tools.types.value import Value

_KEPT = 12  # searches of one depth
# First guesses, until a search has ended on the device.
_COMPARING_S = {"cpu": 12.0, "cuda": 25.0}
_CERTIFYING_S = {"cpu": 12.0, "cuda": 20.0}
_PROFILING_SHARE = 0.25  # of what a depth allows
# A certification gets at most this share of the time: what is never searched needs none.
_MOST = 0.5


# A look at the best plan as a CUDA graph, screened and precisely, took 3 to 4 s beside H100s; of a
# short search it may take so much.
_LOOKING_S, _LOOKING_SHARE = 4.0, 0.05


def looking_s(seconds: float) -> float:
    """What of a search of so many seconds stays for a look at how else its best may be called."""
    return min(_LOOKING_S, _LOOKING_SHARE * seconds)


# torch.compile's build: a start, and for each node of the task's graph. Beside an H200 it took 9 to
# 30 s of models of a hundred to 840 nodes; on two busy cores two layers of a GPT took 38 s.
_COMPILE_S = {"cpu": (8.0, 0.1), "cuda": (5.0, 0.03)}


def build_s(kind: str, nodes: int) -> float:
    """What torch.compile is expected to take for a graph of so many nodes on that kind of device.

    Args:
        kind: of the device, `cpu` or `cuda`.
        nodes: of the task's graph.
    """
    start_s, node_s = _COMPILE_S[kind]
    return start_s + node_s * nodes


def larger_build_s(kind: str, nodes: int, built_s: float | None = None) -> float:
    """What a build takes longer than that of a small module, as expected or as it did."""
    return max(0.0, (build_s(kind, nodes) if built_s is None else built_s) - _COMPILE_S[kind][0])


# A file of one small module is read in this time, the start of a worker included.
_READING_S = 5.0


def larger_reading_s(phases: Iterable[Phase]) -> float:
    """What reading a file took longer than that of a small module does; 0 where nothing is known.

    Beside H100s it took 5 to 7 s of small ones and 20 of models of twelve layers, whose
    certification spent 10 to 14 s on reading them again (benchmarks/results/h100/real_models.md).
    """
    reading_s = sum(phase.seconds for phase in phases if phase.name.startswith("read:"))
    return max(0.0, reading_s - _READING_S)


# Of what a certification takes a precise look takes this: on two cores 4 s of 12.
PRECISE_SHARE = 1 / 3

# A finalist is compared in ten pairs at least beside each baseline, and verified on about four
# times as many values as a screening. Of a small module that takes no longer than this.
_LEAST_SAMPLES, _DRAWS, _LOOKS_S = 20, 4, 8.0
# Samples of a screening that are looked at and do not count, in the middle.
_UNCOUNTED = 2


def larger_looks_s(screened: Sequence[Evaluation], baselines: int) -> float:
    """What verifying and comparing a finalist takes longer than of a small module.

    Args:
        screened: what screenings took; the fastest correct candidate's tells.
        baselines: beside how many it is compared.
    """
    right = [item for item in screened if item.verdict is Verdict.CORRECT and item.screen]
    if not right:
        return 0.0
    fastest = min(right, key=lambda item: item.median_ms or inf)
    samples = len(fastest.screen.samples_ms) if fastest.screen else 0
    sample_s = fastest.stages.screen_s / (samples + _UNCOUNTED)
    takes_s = _DRAWS * fastest.stages.verify_s + _LEAST_SAMPLES * baselines * sample_s
    return max(0.0, takes_s - _LOOKS_S)


class Took(Value):
    """The seconds of one search's parts."""

    depth: str
    comparing_s: float
    searching_s: float
    profiling_s: float
    certifying_s: float
    finalists: int = Field(default=1, ge=1)

    @property
    def whole_s(self) -> float:
        """From the beginning of the search to its end."""
        return self.comparing_s + self.searching_s + self.profiling_s + self.certifying_s


class Pace(Value):
    """What searches took on one device, the latest last; and the latest profile of a candidate."""

    device: str
    kind: str
    searches: tuple[Took, ...] = ()
    profile_s: float = 0.0

    def certifying_s(self) -> float:
        """What certifying one finalist takes here."""
        known = [took.certifying_s / took.finalists for took in self.searches]
        return median(known[-_KEPT:]) if known else _CERTIFYING_S.get(self.kind, 20.0)

    def reserve_s(self, profile: SearchProfile, certifying_s: float | None = None) -> float:
        """What of a search's time stays for its certification, which may be known to take more."""
        if profile.seconds_hold == "searching":
            return 0.0
        needed_s = self.certifying_s() if certifying_s is None else certifying_s
        return min(needed_s, _MOST * profile.seconds)

    def promise(self, profile: SearchProfile) -> "Promise":
        """What a search takes to its end."""
        like = [took for took in self.searches if took.depth == profile.name]
        compared = [took.comparing_s for took in self.searches if took.comparing_s > 0]
        comparing_s = median(compared) if compared else _COMPARING_S.get(self.kind, 25.0)
        if profile.seconds_hold == "everything":
            return Promise(seconds=profile.seconds, searches=len(like), limit=True)
        if like:
            return Promise(seconds=median(took.whole_s for took in like), searches=len(like))
        profiling_s = _PROFILING_SHARE * profile.profiling_seconds
        return Promise(seconds=profile.seconds + comparing_s + profiling_s)


class Promise(Value):
    """How long a search takes to its end, certification included.

    Attributes:
        seconds: So long.
        searches: From so many that ended on this device; 0 where it is a first guess.
        limit: Whether a person set it, so that it is the most.
    """

    seconds: float
    searches: int = 0
    limit: bool = False

    @property
    def words(self) -> str:
        """`about 38 s`, `about 50 s at a first guess`, `at most 6 min`."""
        if self.limit:
            return f"at most {seconds(self.seconds)}"
        guess = "" if self.searches else " at a first guess"
        return f"about {seconds(self.seconds)}{guess}"


DEPTHS = ("quick", "standard", "deep")


def promised_words(pace: Pace) -> str:
    """What each depth takes to its end: `quick about 38 s, standard about 4 min 20 s, ...`."""
    found = (f"{name} {pace.promise(search_profile(name)).words}" for name in DEPTHS)
    return f"{', '.join(found)}, certification included"


def pace_of(home: Path, hardware: Hardware) -> Pace:
    """What is known of a device."""
    try:
        return Pace.model_validate_json(_path(home, hardware).read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        return Pace(device=hardware.name, kind=hardware.kind)


def remember(home: Path, hardware: Hardware, took: Took) -> None:
    """Keep what one more search took; a folder that cannot be written keeps nothing."""
    known = pace_of(home, hardware)
    others = [item for item in known.searches if item.depth != took.depth]
    like = [item for item in known.searches if item.depth == took.depth]
    _keep(
        home, hardware, known.model_copy(update={"searches": (*others, *like[1 - _KEPT :], took)})
    )


def remember_profile(home: Path, hardware: Hardware, seconds: float) -> None:
    """Keep what profiling a candidate took, however long its search was allowed to be."""
    _keep(home, hardware, pace_of(home, hardware).model_copy(update={"profile_s": seconds}))


def _keep(home: Path, hardware: Hardware, kept: Pace) -> None:
    path = _path(home, hardware)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(".new")
        scratch.write_text(kept.model_dump_json(), encoding="utf-8")
        scratch.replace(path)
    except OSError:
        return


def latest(home: Path) -> Pace | None:
    """Of the device that was searched on last; None where no search has ended yet."""
    files = sorted((home / "pace").glob("*.json"), key=lambda path: path.stat().st_mtime)
    try:
        return Pace.model_validate_json(files[-1].read_text(encoding="utf-8")) if files else None
    except (OSError, ValidationError):
        return None


def _path(home: Path, hardware: Hardware) -> Path:
    key = f"{hardware.name}|{hardware.cores}|{hardware.sm_count}"
    return home / "pace" / f"{sha256(key.encode()).hexdigest()[:16]}.json"


@dataclass(frozen=True)
class Spent:
    """Seconds of searching, seconds with baselines and profilers, and whether that was all."""

    searched_s: float = 0.0
    whole_s: float = 0.0
    over: bool = False


def measuring_baselines_s(archive: Archive) -> float:
    """Seconds that measuring PyTorch's own ways took in this run so far."""
    events = (EVENT.validate_json(item.payload) for item in archive.events())
    measured = (event for event in events if isinstance(event, BaselinesMeasured | RegionsFound))
    return sum(event.seconds for event in measured)


def spent_of(archive: Archive) -> Spent:
    """What a run's ended sessions spent, as `SearchContext` counts it."""
    whole_s = archive.spent_s()
    return Spent(whole_s - measuring_baselines_s(archive) - archive.profiling_s(), whole_s)
