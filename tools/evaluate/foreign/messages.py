"""What judge, guest and program say to each other about foreign code.

The judge asks, the guest answers; what a guest says is a claim, and only its buffers count. Tensors
travel in shared memory, never here. `GuestQuestion` and `GuestAnswer` are what the judge asks the
program about its guests, and what it is told.

`Books` is what the kernel has on record about a process and everything that it started. It is read
from outside, so that walls and lies make no difference. Not covered: the time of processes that
came and went between two readings.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from kernelwright.tools.evaluate.sandbox.ending import Ended
from kernelwright.tools.types import Task
from kernelwright.tools.types.value import Value

_PROC = Path("/proc")


class Books(Value):
    """One reading. `names` are those of the processes, in the order of their numbers."""

    cpu_ms: float
    threads: int
    processes: int
    held_bytes: int
    names: tuple[str, ...] = ()


def books(members: Sequence[int], held_bytes: int) -> Books:
    """What these processes used, and how many threads they have now.

    Args:
        members: of one tree, by their numbers as this program sees them.
        held_bytes: what they hold together.
    """
    tasks = {member: _tasks(member) for member in members}
    return Books(
        cpu_ms=sum(_ran_ns(m, t) for m, numbers in tasks.items() for t in numbers) / 1e6,
        threads=sum(len(numbers) for numbers in tasks.values()),
        processes=len(members),
        held_bytes=held_bytes,
        names=tuple(name_of(member) for member in members),
    )


def name_of(pid: int) -> str:
    """What the kernel calls a process; "" for one that is gone."""
    try:
        return (_PROC / str(pid) / "comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _tasks(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(_PROC / str(pid) / "task")]
    except OSError:
        return []


def _ran_ns(pid: int, task: int) -> int:
    """Time on a CPU in nanoseconds, which `stat` only counts in hundredths of a second."""
    try:
        text = (_PROC / str(pid) / "task" / str(task) / "schedstat").read_text(encoding="utf-8")
    except OSError:
        return 0
    return int(text.split()[0])


class GuestQuestion(Value):
    """About one guest: what it used, or how it ended (`stop` says what the judge saw of that).

    With `seat` a fresh one takes the place of whoever has the name, and the judge's end of its
    socket comes beside the answer. With `pause` everything that it started stands still, without
    it goes on again.
    """

    guest: Literal["candidate", "reference"]
    stop: Literal["", "timed_out", "exited"] = ""
    limit_s: float = 0.0
    seat: bool = False
    pause: bool | None = None


class GuestAnswer(Value):
    """The answer: one of the two, or neither where a guest was seated or paused.

    `woke` names those that did not stand still until they were to go on.
    """

    books: Books | None = None
    ended: Ended | None = None
    woke: tuple[str, ...] = ()


INQUIRY: TypeAdapter[GuestQuestion] = TypeAdapter(GuestQuestion)
FINDING: TypeAdapter[GuestAnswer] = TypeAdapter(GuestAnswer)


Constant = bool | int | float | str | None
Way = Literal["call", "null", "audit", "profile"]


class TensorPlace(Value):
    """A tensor in the shared memory: bytes from its beginning, then elements."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


class Slot(Value):
    """One argument of a forward: a tensor in shared memory, or a plain value."""

    place: TensorPlace | None = None
    constant: Constant = None


class Named(Value):
    """A weight by its state-dict name."""

    name: str
    place: TensorPlace


class Call(Value):
    """One call: which set of arguments, and which places its answer goes to."""

    arguments: int
    outputs: int


class Memory(Value):
    """The shared memory, whose descriptor comes beside this message."""

    kind: Literal["memory"] = "memory"
    device: Literal["cpu", "cuda"]
    size_bytes: int


class Make(Value):
    """Build the foreign module: run the file, construct the entry under the seed.

    `arguments` is JSON of the reference's constructor arguments; None when they cannot be said
    in JSON, and the file's own `get_init_inputs` has to do. With `evaluation` it is put into
    evaluation mode, as its reference was.
    """

    kind: Literal["make"] = "make"
    source: str
    entry: str
    arguments: str | None
    seed: int
    evaluation: bool = False


class MakeReference(Value):
    """Build the reference itself, in the way of one of PyTorch's baselines."""

    kind: Literal["make_reference"] = "make_reference"
    task: Task
    seed: int
    way: str


class Weights(Value):
    """Copy these weights into the module, where it has the names."""

    kind: Literal["weights"] = "weights"
    weights: tuple[Named, ...]


class Store(Value):
    """Copy the module's weights of these names back into the shared memory."""

    kind: Literal["store"] = "store"
    weights: tuple[Named, ...]


class Arrange(Value):
    """Arguments and places for answers, by number, for the calls to come."""

    kind: Literal["arrange"] = "arrange"
    arguments: tuple[tuple[Slot, ...], ...]
    outputs: tuple[tuple[TensorPlace, ...], ...]


class Rehearse(Value):
    """Write the answer that calls of the kind `null` deliver, as a kernel just would have.

    It lies in the caches then as an answer does that was computed, and costs no timed call a thing.
    """

    kind: Literal["rehearse"] = "rehearse"


class Go(Value):
    """Make these calls, in this order; the clock runs.

    `null` delivers what was rehearsed, `audit` watches which library operators run,
    `profile` adds up the durations of kernels. With `exact` an answer must be plain tensors. With
    `one_order` plain calls are made under the library's deterministic algorithms. With `as_bytes`
    answers are taken from where they lie, without PyTorch: whoever replaced its copy, to do the
    work in it and save the copy, has no answer there.
    """

    kind: Literal["go"] = "go"
    calls: tuple[Call, ...]
    way: Way = "call"
    exact: bool = True
    one_order: bool = False
    as_bytes: bool = False


# No figure of a guest's is compared with another one in vain.
Told = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class Done(Value):
    """Something was carried out.

    Attributes:
        names: Weights that the module has.
        seconds: How long a construction took.
        own_ms: The guest's clock around the calls: device events, or the monotonic clock.
        work_ms: Summed durations of kernels, where they were asked for.
        library_ms: Time within library operators, of an audit.
        operators: Their names.
        kernels: Names of kernels that ran, of a profile.
        python_threads: Names of Python's threads besides the main one.
        settings: Global settings of torch that the code changed.
    """

    kind: Literal["done"] = "done"
    names: tuple[str, ...] = ()
    seconds: Told = 0.0
    own_ms: Told = 0.0
    work_ms: Told | None = None
    library_ms: Told = 0.0
    operators: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    python_threads: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()


class Failed(Value):
    """The foreign code failed, or what it returned is no answer."""

    kind: Literal["failed"] = "failed"
    how: Literal["import", "construct", "forward", "not_a_tensor", "wrong_shape", "memory"]
    words: str


Order = Annotated[
    Memory | Make | MakeReference | Weights | Store | Arrange | Rehearse | Go,
    Field(discriminator="kind"),
]
Report = Annotated[Done | Failed, Field(discriminator="kind")]

ORDER: TypeAdapter[Order] = TypeAdapter(Order)
REPORT: TypeAdapter[Report] = TypeAdapter(Report)
