"""What a worker says: that it is ready, which stage it is at, and one reply to a request."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from kernelwright.tools.hardware import Ceilings
from kernelwright.tools.types import (
    Badge,
    Baseline,
    Dispatched,
    Evaluation,
    HostCounters,
    KernelTime,
    MemoryNeeds,
    Missing,
    Phase,
    Refusal,
    Task,
)
from kernelwright.tools.types.value import Value


class Ready(Value):
    """The worker has loaded what it needs and waits for a request."""

    kind: Literal["ready"] = "ready"
    pid: int


class Stage(Value):
    """The worker begins something that may hang or crash; `limit_s` from now is too long.

    `blame` says whose fault it is if it does, `baseline` which one was being made, if any.
    """

    kind: Literal["stage"] = "stage"
    words: str
    limit_s: float
    blame: Literal["candidate", "reference", "judge"]
    baseline: str = ""


class Traced(Value):
    """The answer to `TraceRequest`."""

    kind: Literal["traced"] = "traced"
    result: Task | Refusal


class Rehearsed(Value):
    """The answer to `RehearseRequest`."""

    kind: Literal["rehearsed"] = "rehearsed"


class Audited(Value):
    """The answer to `AuditRequest`: doubts about the task, or why it cannot be judged.

    `notes` say what of the audit, or of the judging to come, is done in parts or left out.
    """

    kind: Literal["audited"] = "audited"
    badges: tuple[Badge, ...] = ()
    notes: tuple[str, ...] = ()
    refusal: Refusal | None = None


class DispatchSeen(Value):
    """The answer to `DispatchRequest`; `failure` says why there is nothing to list."""

    kind: Literal["dispatch_seen"] = "dispatch_seen"
    kernels: tuple[Dispatched, ...] = ()
    needs: MemoryNeeds | None = None
    failure: str = ""


class CeilingsMeasured(Value):
    """The answer to `CeilingsRequest`."""

    kind: Literal["ceilings_measured"] = "ceilings_measured"
    ceilings: Ceilings


class BuiltElsewhere(Value):
    """The answer to `BuildRequest`: what was compiled lies in the process's own folder.

    `complete` says whether nothing is left to be compiled when it is used.
    """

    kind: Literal["built"] = "built"
    complete: bool = True


class BaselineMeasured(Value):
    """The answer to `BaselineRequest`."""

    kind: Literal["baseline_measured"] = "baseline_measured"
    baseline: Baseline


class Judged(Value):
    """The answer to `JudgeRequest`."""

    kind: Literal["judged"] = "judged"
    evaluation: Evaluation


class Profiled(Value):
    """The answer to `ProfileRequest`, and without times to `OpenProfilerRequest`.

    `launches` are those of a call, library kernels included; None where nobody counted. On a CPU
    `host` holds what was counted, and `uncounted` why the hardware counted nothing.
    """

    kind: Literal["profiled"] = "profiled"
    times: tuple[KernelTime, ...] = ()
    launches: int | None = None
    missing: Missing | None = None
    host: HostCounters | None = None
    uncounted: Missing | None = None


class LaunchesRecorded(Value):
    """The answer to `RecordRequest`, written to `LAUNCHES` in the worker's folder unless `problem`.

    The worker does not say where: whoever asked knows its folder, and takes no file from elsewhere.
    """

    kind: Literal["launches_recorded"] = "launches_recorded"
    problem: str = ""


class ShapesTried(Value):
    """The answer to `HoldoutRequest`: the candidate's label, as `Verification.shapes` holds it."""

    kind: Literal["shapes_tried"] = "shapes_tried"
    words: str


class Lacking(Value):
    """What was to be judged needs something that this machine has not; a sentence says what."""

    kind: Literal["lacking"] = "lacking"
    words: str


class Broken(Value):
    """An exception that nobody expected: Kernelwright itself is broken."""

    kind: Literal["broken"] = "broken"
    words: str
    detail: str


Answer = Annotated[
    Traced
    | Rehearsed
    | Audited
    | CeilingsMeasured
    | BuiltElsewhere
    | BaselineMeasured
    | Judged
    | ShapesTried
    | LaunchesRecorded
    | DispatchSeen
    | Profiled
    | Lacking
    | Broken,
    Field(discriminator="kind"),
]


class Reply(Value):
    """The worker is done; `retire` says why it must not be asked again (a poisoned device).

    `phases` say where the time of the question went.
    """

    kind: Literal["reply"] = "reply"
    answer: Answer
    retire: str = ""
    phases: tuple[Phase, ...] = ()


Message = Annotated[Ready | Stage | Reply, Field(discriminator="kind")]

MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)
