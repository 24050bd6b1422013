"""What parent and worker say to each other: one request, any number of stages, one reply.

A request asks for one thing on one task. The worker says that it is ready and which stage it is at,
and answers. What is asked about foreign code is asked of a judge of its own. Nothing is unpickled
from a child: all of it is JSON, in the frames of `wire`.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.hardware import Ceilings
from kernelwright.tools.languages import Built
from kernelwright.tools.types import (
    Badge,
    Baseline,
    Baselines,
    Candidate,
    Dispatched,
    Effort,
    Evaluation,
    HostCounters,
    KernelTime,
    MemoryNeeds,
    Missing,
    Phase,
    Refusal,
    Task,
    TracePolicy,
)
from kernelwright.tools.types.backward import Backward
from kernelwright.tools.types.outline import Outline
from kernelwright.tools.types.value import Value


class Foreign(Value):
    """Foreign code as it was handed in.

    Attributes:
        name: What to call it in reports.
        source: The Python file.
        entry: The class to construct in it.
    """

    name: str
    source: str
    entry: str = "ModelNew"


class ForeignRequest(Value):
    """Verify foreign code, and time it beside PyTorch's own ways.

    `compare_to` names those in the order in which they are tried; none when only verifying.
    `broker` is the descriptor, inherited by the judge, of who brings guests in.
    """

    kind: Literal["foreign"] = "foreign"
    task: Task
    hardware: Hardware
    rules: Rules
    foreign: Foreign
    seed: int
    broker: int | None = None
    compare_to: tuple[str, ...] = ()


# The file in the worker's folder that holds recorded launches.
LAUNCHES = "launches"


class TraceRequest(Value):
    """Turn a user's file into a task."""

    kind: Literal["trace"] = "trace"
    source: str
    path: str
    policy: TracePolicy


class RehearseRequest(Value):
    """Import what tracing a file needs, so that the next request does not wait for it.

    With `compiler` what torch.compile needs instead. Nothing runs on the device.
    """

    kind: Literal["rehearse"] = "rehearse"
    compiler: bool = False


class AuditRequest(Value):
    """Does this task prove anything: which answers without work would pass it?"""

    kind: Literal["audit"] = "audit"
    task: Task
    hardware: Hardware
    rules: Rules
    seed: int


class DispatchRequest(Value):
    """What does PyTorch really run for this task, and how long does each kernel take?"""

    kind: Literal["dispatch"] = "dispatch"
    task: Task
    hardware: Hardware
    rules: Rules
    seed: int


class OutlineRequest(Value):
    """Run the task's reference operator by operator: where does its time go?"""

    kind: Literal["outline"] = "outline"
    task: Task
    hardware: Hardware
    rules: Rules
    seed: int


class BackwardRequest(Value):
    """Trace the backward of the task's reference as a module file of its own."""

    kind: Literal["backward"] = "backward"
    task: Task
    hardware: Hardware
    rules: Rules
    seed: int


class CeilingsRequest(Value):
    """Measure what the device can really do."""

    kind: Literal["ceilings"] = "ceilings"
    hardware: Hardware


class BuildRequest(Value):
    """Build one of torch.compile's baselines, in a process that no candidate has been in.

    At once, or in steps of which the second runs nothing on the device: the module and memory for
    its inputs are placed there, and it is compiled. What that leaves open is built as a whole.
    """

    kind: Literal["build"] = "build"
    step: Literal["place", "compile", "whole"] = "whole"
    task: Task
    hardware: Hardware
    rules: Rules
    name: str
    seed: int


class BaselineRequest(Value):
    """Measure one way in which PyTorch itself does the task.

    `compiled` are folders with what was built for it elsewhere.
    """

    kind: Literal["baseline"] = "baseline"
    task: Task
    hardware: Hardware
    rules: Rules
    name: str
    seed: int
    compiled: tuple[Path, ...] = ()


class JudgeRequest(Value):
    """Verify and time one compiled candidate.

    `compare_to` names the baselines for interleaved timing, none when only screening;
    `best_ms` is the best known time, which lets a hopeless candidate go early; `compiled` are
    folders with what was built for the baselines elsewhere. Comparisons share the time until
    `until_s`, on the clock of `time.monotonic` that all processes of a machine have; None for no
    end but that of the rules.
    """

    kind: Literal["judge"] = "judge"
    task: Task
    hardware: Hardware
    rules: Rules
    candidate: Candidate
    built: Built
    effort: Effort
    seed: int
    baselines: Baselines | None = None
    compare_to: tuple[str, ...] = ()
    best_ms: float | None = None
    compiled: tuple[Path, ...] = ()
    timed: bool = True
    until_s: float | None = None


class OpenProfilerRequest(Value):
    """Make a profiler of the device ready, in a worker that never judges."""

    kind: Literal["open_profiler"] = "open_profiler"


class ProfileRequest(Value):
    """Time the kernels of one candidate's call."""

    kind: Literal["profile"] = "profile"
    task: Task
    hardware: Hardware
    rules: Rules
    candidate: Candidate
    built: Built
    seed: int


class HoldoutRequest(Value):
    """Is a candidate right on other shapes than its task's too? May lose the worker."""

    kind: Literal["holdout"] = "holdout"
    task: Task
    hardware: Hardware
    rules: Rules
    candidate: Candidate
    built: Built
    seed: int


class RecordRequest(Value):
    """Record the launches of one call of a C++ candidate on its task's inputs."""

    kind: Literal["record"] = "record"
    task: Task
    hardware: Hardware
    rules: Rules
    candidate: Candidate
    built: Built
    seed: int


Request = Annotated[
    TraceRequest
    | RehearseRequest
    | AuditRequest
    | DispatchRequest
    | OutlineRequest
    | BackwardRequest
    | CeilingsRequest
    | BuildRequest
    | BaselineRequest
    | JudgeRequest
    | OpenProfilerRequest
    | ProfileRequest
    | ForeignRequest
    | HoldoutRequest
    | RecordRequest,
    Field(discriminator="kind"),
]

REQUEST: TypeAdapter[Request] = TypeAdapter(Request)


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
    """The answer to `DispatchRequest`; `failure` says why there is nothing to list.

    Times are medians of `runs` forwards after others that warmed up.
    """

    kind: Literal["dispatch_seen"] = "dispatch_seen"
    kernels: tuple[Dispatched, ...] = ()
    runs: int = 0
    needs: MemoryNeeds | None = None
    failure: str = ""


class OutlineSeen(Value):
    """The answer to `OutlineRequest`; `failure` says why there is none."""

    kind: Literal["outline_seen"] = "outline_seen"
    outline: Outline | None = None
    failure: str = ""


class BackwardSeen(Value):
    """The answer to `BackwardRequest`; `failure` says why there is none."""

    kind: Literal["backward_seen"] = "backward_seen"
    backward: Backward | None = None
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
    | OutlineSeen
    | BackwardSeen
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
