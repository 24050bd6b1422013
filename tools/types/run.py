"""What a whole search amounts to (what `optimize --json` prints), and its questions to models.

A question and its answer are kept as they were, so that a run can be replayed.
"""

from hashlib import sha256
from typing import Annotated, Literal

from pydantic import Field, field_validator

from kernelwright.tools.types.idea import CallMode
from kernelwright.tools.types.measurement import Clock, Paired, Phase
from kernelwright.tools.types.outline import RegionShown
from kernelwright.tools.types.shapes import ServedShapes
from kernelwright.tools.types.training import TrainingSummary
from kernelwright.tools.types.value import Value
from kernelwright.tools.types.verdict import NOT_ISOLATED, Isolation, SpeedOutcome

Status = Literal[
    "improved",
    "not_settled",
    "faster_than_eager",
    "no_improvement",
    "nothing_correct",
    "timed_out",
    "stopped",
    "waiting",
    "failed",
]

# How closely a time was looked at, see `graphs.run_view.figures`.
Label = Literal["screened", "precise", "certified"]


class InputSummary(Value):
    """Shape and type of one input."""

    shape: tuple[int, ...]
    dtype: str


class TaskSummary(Value):
    """The task in figures; `floor_ms` on the hardware beside it."""

    name: str
    inputs: tuple[InputSummary, ...]
    bytes: int
    flops: int
    floor_ms: float


class HardwareSummary(Value):
    """The device that everything was measured on."""

    name: str
    kind: str


class BaselineSummary(Value):
    """One baseline; None when it could not run, and why. `latency_ms` is of a single call."""

    median_ms: float | None
    latency_ms: float | None = None
    failure: str = ""


class BestSummary(Value):
    """The best candidate that is correct; ratios are baseline / candidate.

    `outcome` is what may be said of it beside PyTorch, and `claim` why not more, in words; "" in
    runs that were recorded before they were. `clock` is what the times are of, `latency` what
    single calls took beside the same baseline, `host_share` the host's part of such a call;
    `timed` says how closely its times were looked at, `mode` how its plan is called.
    `floor_fraction` is of the least time by bytes and the device's fastest arithmetic,
    `roof_fraction` by the arithmetic that the task's precision takes, in the words of `roof`; None
    where that is the same, or not known.
    """

    candidate: str
    median_ms: float
    speedup_vs_eager: float | None
    speedup_vs_best_baseline: float
    ci95: tuple[float, float]
    floor_fraction: float | None
    error_ratio: float | None
    coverage: float | None
    method: str
    precision: str
    verdict: str
    outcome: SpeedOutcome | Literal[""] = ""
    claim: str = ""
    clock: Clock = "call"
    baseline: str = ""
    latency: Paired | None = None
    host_share: float | None = None
    timed: Label | Literal[""] = ""
    roof_fraction: float | None = None
    roof: str = ""
    mode: CallMode = "eager"

    @property
    def limit_fraction(self) -> float | None:
        """Of the roof; of the floor where that says the same, or the run knew no roof."""
        return self.floor_fraction if self.roof_fraction is None else self.roof_fraction


class CandidateCounts(Value):
    """How many candidates reached each rung of the ladder."""

    written: int
    compiled: int
    correct: int
    timed: int


class TokenCounts(Value):
    """Language model tokens; 0 with the playbook."""

    input: int = 0
    output: int = 0


class Summary(Value):
    """One search, for machines. Times in milliseconds, ratios as reference over candidate.

    `usd` is None where no price is known; `calls` counts questions to models, `models` names them.
    `waiting` is a run that paused for an answer or for results, `stopped_because` saying which.
    `phases` say where the judge's time went since the file was read; () where it is far away.
    `regions` are those of a large model; () where it was searched as one. `shapes` says which sizes
    beside the example's are served, None where nobody asked. `training` is of a search for the
    gradients' kernels, None where nobody asked for one.
    """

    run: str
    task: TaskSummary
    hardware: HardwareSummary
    status: Status
    baselines: dict[str, BaselineSummary]
    best: BestSummary | None
    candidates: CandidateCounts
    rounds: int
    seconds: float
    stopped_because: str = ""
    isolation: Isolation = NOT_ISOLATED
    tokens: TokenCounts = TokenCounts()
    usd: float | None = None
    calls: int = 0
    models: tuple[str, ...] = ()
    phases: tuple[Phase, ...] = ()
    regions: tuple[RegionShown, ...] = ()
    shapes: ServedShapes | None = None
    training: TrainingSummary | None = None
    export: str | None = None


# Roles are added from outside, so any name of that form will do. `assistant` talks with the person
# and has no part in a search.
RoleName = Annotated[str, Field(pattern=r"^[a-z][a-z_]*$")]


class ToolCall(Value):
    """A function that a model wants called, with its arguments as JSON, as far as it is any.

    `id` is ours, by which the result says what it is the result of.
    """

    name: str
    arguments: str = "{}"
    id: str = ""


class Message(Value):
    """One part of a prompt: our standing words, a question, or an earlier answer of the model.

    `calls` are the tools that the model called in that answer; `call` names the one of them that a
    tool's message is the result of.
    """

    author: Literal["system", "person", "model", "tool"]
    text: str
    calls: tuple[ToolCall, ...] = ()
    call: str = ""

    @property
    def content(self) -> str:
        """Everything that is sent of it, in one string."""
        called = (f"\x1f{item.id}\x1f{item.name}\x1f{item.arguments}" for item in self.calls)
        result = f"\x1f{self.call}" if self.call else ""
        return f"{self.author}\x1f{self.text}{''.join(called)}{result}"


class Prompt(Value):
    """A question to a model.

    `key` names the question within its run (`planner:2`, `coder:r2i1:write`, `...:again` after
    an answer that could not be read): a step that is taken again asks the same key. `reply_tokens`
    is the most that the answer may have; None leaves it to the model's profile. `answer_schema` is
    the JSON schema of an answer that is JSON, for servers that can enforce one: the messages
    describe it in words as well, so it is no part of the hash. The same holds of `tools`, a JSON
    list of functions that the model may call; what it calls comes back in the reply's `calls`.
    With `no_calls` it may call none of them any more. A server that takes no tools is asked without
    them, unless `needs_tools` says that whoever asks would rather know (`agents.llm.client`).
    """

    key: str
    role: RoleName
    messages: tuple[Message, ...]
    round: int = 0
    reply_tokens: int | None = None
    answer_schema: str = ""
    tools: str = ""
    no_calls: bool = False
    needs_tools: bool = False

    @property
    def sha256(self) -> str:
        """What tells prompts apart, whatever they are called."""
        text = "\x1e".join(item.content for item in self.messages)
        return sha256(text.encode()).hexdigest()


class ToolRun(Value):
    """One call of a tool by a role, with what came of it.

    `key` is the question's with the call's number (`coder:r1i2:0#3`). `failed` when the tool could
    not do what was asked, `result` saying why in a sentence.
    """

    key: str
    role: RoleName
    tool: str
    arguments: str
    result: str
    failed: bool = False
    seconds: float = 0.0
    round: int = 0


class Reply(Value):
    """What a model said; `reasoning` is the thinking that it showed beside its answer.

    `usd` is None where no price is known. `attempts` counts requests, so 1 means no retry;
    `finish` is the server's word for why it stopped (`stop`, `length`, ...).
    """

    text: str
    reasoning: str = ""
    model: str = ""
    tokens: TokenCounts = TokenCounts()
    usd: float | None = None
    seconds: float = 0.0
    attempts: int = 1
    finish: str = "stop"
    calls: tuple[ToolCall, ...] = ()

    @field_validator("text", "reasoning", "model", "finish")
    @classmethod
    def _encodable(cls, value: str) -> str:
        """Servers send halves of surrogate pairs; whole pairs are joined, lone ones replaced."""
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Call(Value):
    """A question with its reply, or with why there is none (one sentence).

    `lost` and `lost_usd` were spent without a reply to show for it, as when a stream broke off.
    """

    prompt: Prompt
    reply: Reply | None = None
    failure: str = ""
    lost: TokenCounts = TokenCounts()
    lost_usd: float | None = None
