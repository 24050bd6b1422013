"""Everything a person can be shown, as typed events, and the words for numbers and verdicts.

Events are written to the archive in order and replayed by `trace` and `report`; a UI that
attaches late reads them from there, and decides how each one looks. What models are writing right
now is shown meanwhile and never kept: it is written on the loop of a search and read on that of a
page. The complete answer is kept with the call that asked for it, and told as an event.

Numbers, names and verdicts are put in words in one way, everywhere; of verdicts on speed that is
`tools.types.speed_words`. Texts of users, models and
compilers may hold control characters; `plain` makes them harmless for a terminal.
"""

import re
import threading
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from kernelwright.tools.profile import casts_doubt, headline
from kernelwright.tools.types import (
    Analysis,
    Baselines,
    Candidate,
    Effort,
    Evaluation,
    Evidence,
    Idea,
    Isolation,
    Prompt,
    RoleName,
    StrategyVersion,
    Symptom,
    ToolRun,
    Value,
)
from kernelwright.tools.types.outline import RegionShown
from kernelwright.tools.types.run import Summary, TokenCounts


class _Event(Value):
    at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    round: int = 0


class RunStarted(_Event):
    """The task was understood and a search over it begins (or goes on, when `resumed`).

    `floor_how` says how the floor was measured, or that a data sheet says so; "" in old runs.
    """

    kind: Literal["run_started"] = "run_started"
    run: str
    task: str
    hardware: str
    floor_ms: float
    floor_how: str = ""
    bytes_moved: int
    flops: int
    warnings: tuple[str, ...] = ()
    isolation: Isolation
    resumed: bool = False


class FloorRevised(_Event):
    """The device's ceilings were measured again, and `before_ms` is no longer the floor."""

    kind: Literal["floor_revised"] = "floor_revised"
    floor_ms: float
    floor_how: str
    before_ms: float


class BaselinesMeasured(_Event):
    """What PyTorch itself does was timed.

    `seconds` is what that took of the run, which is none of the search's budget; 0 where it was
    not written down.
    """

    kind: Literal["baselines_measured"] = "baselines_measured"
    baselines: Baselines
    seconds: float = 0.0


class IdeasProposed(_Event):
    """The planner spoke: ideas of this round, and in `reasoning` why these and in this order."""

    kind: Literal["ideas_proposed"] = "ideas_proposed"
    ideas: tuple[Idea, ...]
    reasoning: str


class CandidateWritten(_Event):
    """The coder (or the tuner, by new settings) wrote a candidate; `repairs` counts attempts."""

    kind: Literal["candidate_written"] = "candidate_written"
    candidate: Candidate
    by: Literal["coder", "tuner", "repair"] = "coder"
    repairs: int = 0


class CandidateJudged(_Event):
    """A candidate came back from the judge; `effort` is None where it was not written down."""

    kind: Literal["candidate_judged"] = "candidate_judged"
    evaluation: Evaluation
    effort: Effort | None = None


class BestImproved(_Event):
    """A correct candidate is faster than everything before it."""

    kind: Literal["best_improved"] = "best_improved"
    candidate: str
    idea: str
    median_ms: float
    best_baseline_ms: float
    eager_ms: float | None
    floor_ms: float


class Profiled(_Event):
    """The profiler read what bounds a candidate."""

    kind: Literal["profiled"] = "profiled"
    candidate: str
    evidence: tuple[Evidence, ...]
    symptoms: tuple[Symptom, ...]
    explanation: str = ""

    @property
    def headline(self) -> str:
        """Its most important sentence; "" where nothing telling was found."""
        return headline(self.symptoms)

    @property
    def is_in_doubt(self) -> bool:
        """Whether that sentence is about the timings, so that the rest is in doubt."""
        return any(casts_doubt(item) for item in self.symptoms)


class Critiqued(_Event):
    """The critic contrasted candidates."""

    kind: Literal["critiqued"] = "critiqued"
    analysis: Analysis


class ModelCalled(_Event):
    """A language model was asked; `key` finds prompt and answer in the archive's calls."""

    kind: Literal["model_called"] = "model_called"
    key: str
    role: RoleName
    model: str = ""
    tokens: TokenCounts = TokenCounts()
    usd: float | None = None
    seconds: float = 0.0
    attempts: int = 1
    reasoning: str = ""
    failure: str = ""


class ToolCalled(_Event):
    """A role's model called a tool while it worked on an answer: how, and what came back."""

    kind: Literal["tool_called"] = "tool_called"
    run: ToolRun


class RoleAnswered(_Event):
    """A role with a step of its own was asked: its words, and its whole answer as JSON."""

    kind: Literal["role_answered"] = "role_answered"
    role: RoleName
    words: str
    answer: str


class StrategyEvolved(_Event):
    """A role's evolving prompt has a new version, or an older one came back."""

    kind: Literal["strategy_evolved"] = "strategy_evolved"
    version: StrategyVersion
    before: str = ""


class Awaited(_Event):
    """The run paused for somebody outside; a resume goes on once `paths` are there."""

    kind: Literal["awaited"] = "awaited"
    words: str
    paths: tuple[str, ...] = ()


class RoundFinished(_Event):
    """A round ended; `why_stop` is empty while the search goes on."""

    kind: Literal["round_finished"] = "round_finished"
    best_ms: float | None
    elites: int
    elapsed_s: float
    why_stop: str = ""


class Noted(_Event):
    """A plain sentence worth keeping: a fallback, a retry, a worker that was replaced."""

    kind: Literal["noted"] = "noted"
    words: str


class RegionsFound(_Event):
    """A large model was measured and parted: its regions, the most promising first, if any.

    `seconds` is what measuring it took, which is none of the search's budget.
    """

    kind: Literal["regions_found"] = "regions_found"
    seconds: float = 0.0
    regions: tuple[RegionShown, ...]


class RegionSearched(_Event):
    """A region's search ended, or it was decided to leave the region alone."""

    kind: Literal["region_searched"] = "region_searched"
    region: RegionShown


class RunFinished(_Event):
    """The search is over; nothing follows but a resume or an export."""

    kind: Literal["run_finished"] = "run_finished"
    summary: Summary


Event = Annotated[
    RunStarted
    | FloorRevised
    | BaselinesMeasured
    | IdeasProposed
    | CandidateWritten
    | CandidateJudged
    | BestImproved
    | Profiled
    | Critiqued
    | ModelCalled
    | ToolCalled
    | RoleAnswered
    | StrategyEvolved
    | Awaited
    | RoundFinished
    | Noted
    | RegionsFound
    | RegionSearched
    | RunFinished,
    Field(discriminator="kind"),
]

EVENT: TypeAdapter[Event] = TypeAdapter(Event)


# Of one answer this much is shown while it comes; the event behind it knows where all of it is.
LONGEST = 60_000


class Speech(Value):
    """An answer in the making.

    `text` is all of it so far, thinking included. `ended` is true once: the answer is complete, or
    there will be none, and its event tells the rest.
    """

    key: str
    role: RoleName
    round: int
    text: str
    ended: bool = False


class Speeches:
    """The answers of one search that are in the making; any thread may say and read."""

    def __init__(self) -> None:
        self._speaking: dict[str, tuple[Prompt, list[str], int]] = {}
        self._lock = threading.Lock()

    def hear(self, prompt: Prompt, piece: str) -> None:
        """Take in a piece; an empty one begins the answer anew."""
        with self._lock:
            _, pieces, length = self._speaking.get(prompt.key, (prompt, [], 0))
            if not piece:
                pieces, length = [], 0
            elif length < LONGEST:
                pieces.append(piece[: LONGEST - length])
            self._speaking[prompt.key] = (prompt, pieces, length + len(piece))

    def end(self, key: str) -> None:
        """Nothing more will be said under that key."""
        with self._lock:
            self._speaking.pop(key, None)

    def clear(self) -> None:
        """Nobody says anything any more."""
        with self._lock:
            self._speaking.clear()

    def now(self) -> tuple[Speech, ...]:
        """Everything that is being said, in the order in which it began."""
        with self._lock:
            return tuple(
                Speech(key=key, role=prompt.role, round=prompt.round, text="".join(pieces))
                for key, (prompt, pieces, _) in self._speaking.items()
            )


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: str, limit: int = 0) -> str:
    """Text without control characters and overrides of direction; cut at `limit` if given."""
    clean = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))
    return clean if not limit or len(clean) <= limit else clean[: limit - 1].rstrip() + "…"


def one_line(text: str, limit: int = 100) -> str:
    """Text on one line, cut at `limit`."""
    return plain(" ".join(text.split()), limit)


def quiet(text: str, limit: int = 100) -> str:
    """Somebody's text on one line, with nothing in it that Markdown would act upon."""
    line = re.sub(r"[*`\[\]<>#|\\$~]", "", one_line(plain(text), limit))
    # Within a name an underscore is one; at its edge it would begin an emphasis.
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", line)


def milliseconds(value: float | None) -> str:
    """A time with three or four significant digits, in the unit a person would choose."""
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value / 1000:.3g} s"
    if value >= 0.9995:  # what would be rounded to a thousand µs
        return f"{value:.3f} ms" if value < 10 else f"{value:.4g} ms"
    return f"{value * 1000:.3g} µs"


def ratio(value: float | None) -> str:
    """A speed-up."""
    return "-" if value is None else f"{value:.2f}x"


def percent(value: float | None) -> str:
    """A share."""
    return "-" if value is None else f"{value:.0%}"


def floor_words(floor_ms: float | None, how: str) -> str:
    """The least time that moving a task's bytes takes, and where that is known from."""
    return f"{milliseconds(floor_ms)}, {how or UNKNOWN_FLOOR}"


def of_floor(fraction: float | None) -> str:
    """How near to the floor a time is; what is below it says that it is no floor."""
    if fraction is None or fraction <= 1.0:
        return f"{percent(fraction)} of the floor"
    return f"{percent(fraction)} of the floor, which is too high here: {BELOW}"


def of_roof(fraction: float, how: str) -> str:
    """How near to what the task's own precision allows; algebra may do less than is counted."""
    return f"{percent(fraction)} of the roof of {how}"


UNKNOWN_FLOOR = "how it was measured was not recorded"
BELOW = "some bytes lay in a cache, or its measurement was disturbed and is taken again"


def seconds(value: float) -> str:
    """A duration as a person says it."""
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    if value < 3600:
        return f"{int(value // 60)} min {int(value % 60)} s"
    return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"


def amount(value: float, unit: str) -> str:
    """A large count with a decimal prefix: `33.6 MB`, `1.2 GFLOP`."""
    for limit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def count(number: int, noun: str) -> str:
    """A number of things: `1 round`, `2 rounds`, `2 searches`."""
    several = "es" if noun.endswith("ch") else "s"
    return f"{number} {noun}{'' if number == 1 else several}"


def waiting_words(ahead: int) -> str:
    """Why a search stands still: others' work comes first."""
    others = "another person's work is" if ahead == 1 else f"the work of {ahead} others is"
    return f"It waits for the device: {others} before it."


def shape(sizes: tuple[int, ...]) -> str:
    """A tensor's shape: `4096 x 1024`; `scalar` for none."""
    return " x ".join(str(size) for size in sizes) or "scalar"


def tokens(counts: TokenCounts) -> str:
    """Tokens of a model, in and out."""
    return f"{amount(counts.input, '').strip()} tokens in, {amount(counts.output, '').strip()} out"


def dollars(usd: float | None) -> str:
    """Money; empty where no price is known, so that nothing is claimed to be free."""
    if usd is None:
        return ""
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"
