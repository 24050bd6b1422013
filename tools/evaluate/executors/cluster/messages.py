"""What is said between a search, the broker of its cluster and the devices there: lines of JSON.

A `Job` is one thing for one device to do, an `Answer` what came of it. Both travel as text, so that
neither Ray nor the broker need know what they hold. `Said` is what the broker tells the search,
`Asked` what it is told.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.batch.bundle import Probed
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import Baselines, Candidate, Evaluation, Profile, Value

JobKind = Literal["probe", "screen", "precise", "certify", "profile"]
# A line holds a task with its graph, or samples of many pairs; a pipe's usual limit is smaller.
LONGEST_LINE_BYTES = 2**28


class Job(Value):
    """One thing for one device to do.

    Attributes:
        id: Names the job; a result is kept under it, and what has a result is not done again.
        kind: Look at the task and time PyTorch (`probe`), judge a candidate, or profile it.
        task: A `Task` as JSON text, which is made once and parsed once by each device.
        task_key: Tells tasks apart.
        rules: The judge's figures.
        seed: Every draw of inputs and weights follows from it.
        candidate: Which one; None for a probe.
        baselines: What is known of PyTorch's own times on such a device.
    """

    id: str
    kind: JobKind
    task: str
    task_key: str
    rules: Rules
    seed: int
    candidate: Candidate | None = None
    baselines: Baselines | None = None


class Answer(Value):
    """What came of a job.

    Attributes:
        job: Its id.
        device: Who did it, in words.
        seconds: What it took there.
        probed: Of a probe.
        evaluation: Of a judged candidate.
        profile: Of a profiled one.
        lacks: What that machine lacks; nobody can be told more.
        broken: How the judge itself failed there; another device may fare better.
    """

    job: str
    device: str = ""
    seconds: float = 0.0
    probed: Probed | None = None
    evaluation: Evaluation | None = None
    profile: Profile | None = None
    lacks: str = ""
    broken: str = ""


class Greeting(Value):
    """How a device introduces itself.

    Attributes:
        hardware: What it is, by its driver; ceilings are measured with the first probe.
        node: The machine's name.
        unit: What is timed exclusively: a GPU's own id, or the machine's processors.
        software: What must be the same everywhere for times and verdicts to compare.
        lacks: Why no candidate may run there; "" where it may.
        pid: The process that judges.
    """

    hardware: Hardware
    node: str
    unit: str
    software: str
    lacks: str = ""
    pid: int


class Up(Value):
    """A device is ready for a job; `device` names its place in the cluster."""

    say: Literal["up"] = "up"
    device: str
    kind: str
    greeting: Greeting


class Down(Value):
    """A device is gone, at least for a while."""

    say: Literal["down"] = "down"
    device: str
    words: str


class Done(Value):
    """A call came back, with an `Answer` as text."""

    say: Literal["done"] = "done"
    call: int
    answer: str


class Lost(Value):
    """A call will never come back."""

    say: Literal["lost"] = "lost"
    call: int
    words: str


class Seen(Value):
    """What the cluster holds: how many devices of each kind, and its machines in words."""

    say: Literal["seen"] = "seen"
    kinds: dict[str, int]
    nodes: tuple[str, ...]


class Failed(Value):
    """There is no cluster, and why; the last thing said."""

    say: Literal["failed"] = "failed"
    words: str


Said = Up | Down | Done | Lost | Seen | Failed
SAID: TypeAdapter[Said] = TypeAdapter(Annotated[Said, Field(discriminator="say")])


class Run(Value):
    """Let a device do a job, which is given as text."""

    ask: Literal["run"] = "run"
    call: int
    device: str
    job: str


class End(Value):
    """End the process of a device that takes too long; another one takes its place."""

    ask: Literal["end"] = "end"
    device: str


Asked = Run | End
ASKED: TypeAdapter[Asked] = TypeAdapter(Annotated[Asked, Field(discriminator="ask")])


class Ground(Value):
    """Where a broker finds its devices.

    Attributes:
        address: Of a cluster that is joined, as HOST:PORT; "" for one of this machine's own.
        kinds: Which devices are wanted, as `H200` or `cpu`; none to be told what there is.
        every: Whether all devices are wanted, of whatever kind.
        cpus: How many processes share the processors of this machine, in a cluster of its own.
        folder: For Ray's session, in a cluster of this machine's own.
        threads: The person's OMP_NUM_THREADS, which Ray would replace.
    """

    address: str = ""
    kinds: tuple[str, ...] = ()
    every: bool = False
    cpus: int = 1
    folder: str = ""
    threads: str = ""
