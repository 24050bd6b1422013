"""What the parent asks of a worker, and what the program asks its judge about foreign code."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.languages import Built
from kernelwright.tools.types import Baselines, Candidate, Effort, Task, TracePolicy
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
    folders with what was built for the baselines elsewhere.
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
