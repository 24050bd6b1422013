"""A task: a reference to beat, as data, and what is known about it before it is searched.

Nothing here holds code of the user's that could run. Known before a search are doubts, what PyTorch
runs, and what judging needs. A file that cannot be a task is a `Refusal`, and `refuse` carries it
out of nested calls.
"""

from enum import StrEnum
from hashlib import sha256
from typing import Literal, get_args

from kernelwright.tools.types.graph import Graph, TensorSpec
from kernelwright.tools.types.packing import CallPacking, Packing
from kernelwright.tools.types.shapes import Dimension
from kernelwright.tools.types.value import Value


class Doubt(StrEnum):
    """Why beating a task may prove little, or what a reader of its results should know."""

    CONSTANT = "constant"  # the output is one value, whatever comes in
    INSENSITIVE = "insensitive"  # an input or a parameter does not matter
    EXPLOITABLE = "exploitable"  # a number learnt from other draws answers this one
    VOID = "void"  # there is nothing to compute
    DEAD_OPERATORS = "dead_operators"  # some of what PyTorch runs changes nothing
    NULL_PASSES = "null_passes"  # an answer without work is within the bound
    DRAWS_RANDOM = "draws_random"
    UPDATES_BUFFERS = "updates_buffers"
    NOT_AUDITED = "not_audited"  # part of the audit was left out, and why


# What a speed-up over such a task proves little by; the others are only good to know.
PROVES_LITTLE = frozenset(
    {Doubt.CONSTANT, Doubt.INSENSITIVE, Doubt.EXPLOITABLE, Doubt.VOID, Doubt.NULL_PASSES}
)


class Badge(Value):
    """One doubt about a task and its reason, a plain sentence with the numbers behind it."""

    name: str
    reason: str

    @property
    def proves_little(self) -> bool:
        """Whether it takes weight from a speed-up, rather than being good to know."""
        return self.name in PROVES_LITTLE

    @property
    def words(self) -> str:
        """The badge in one line."""
        return f"{self.name.replace('_', ' ')}: {self.reason}"


class Dispatched(Value):
    """A kernel (on a GPU) or operator (on the host) that PyTorch's own forward really ran.

    `time_ms` is its time in one forward, summed over `calls`; without what it calls in turn.
    """

    name: str
    calls: int
    time_ms: float


class MemoryNeeds(Value):
    """Bytes that judging a task takes, foreseen from its sizes, and what the device has left.

    `least_bytes` is what nothing can do without: inputs, weights and outputs, each where PyTorch
    and where a candidate has them. `eager_bytes` is an estimate of the forward's worst moment,
    `truth_bytes` of the float64 reference's, which comes in parts where it does not fit.
    """

    least_bytes: int
    eager_bytes: int
    candidate_bytes: int
    truth_bytes: int
    timing_bytes: int
    flush_bytes: int
    available_bytes: int

    @property
    def judge_bytes(self) -> int:
        """The most that is needed at once: truth and timing take turns."""
        verifying = self.candidate_bytes + self.truth_bytes
        return max(self.eager_bytes, verifying, self.timing_bytes + self.flush_bytes)


Domain = Literal["any", "nonnegative", "unit", "distribution", "sorted", "permutation"]
Precision = Literal["tf32", "fp16", "bf16", "fp8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


class InputSpec(Value):
    """One forward argument: a tensor, or a plain Python scalar that stays fixed.

    For tensors, the statistics of the values that the task itself drew: fresh integers come from
    the closed range [minimum, maximum], so that indices stay valid. `domain` is what those values
    have in common: all >= 0, all in [0, 1], rows that sum to one; for integers, ascending
    (offsets) or each value of the range once.
    """

    name: str
    tensor: TensorSpec | None = None
    scalar: bool | int | float | str | None = None
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    standard_deviation: float | None = None
    domain: Domain = "any"


class WeightSpec(Value):
    """A parameter or buffer, by its state-dict name."""

    name: str
    tensor: TensorSpec
    is_buffer: bool = False


class TracePolicy(Value):
    """How a file becomes a task; what the person may override on the command line.

    `inputs` overrides `get_inputs`: one text an argument, such as `4096x4096:float32`.
    `allow` names precisions below the task's own that a candidate may compute in; what computes in
    another one is kept, but ranked apart. A file that does nothing at all for `load_seconds` is
    given up; one that computes has `timeout_s`, or twice `load_seconds` where that was raised.
    A single one that ends in `.pt` is a file with saved tensors. With `makes` the entry is a
    function without arguments that returns the module, with its weights.
    `project` is the folder around the file where the person named a folder, or sent one; else it is
    found by what lies there. With `evaluation` the module is put into evaluation mode, whatever its
    constructor left it in. `shapes` names sizes beside the example's that it shall serve. `eights`
    takes numbers of eight bits, which nothing of ours but scaled products reads.
    """

    entry: str | None = None
    makes: bool = False
    evaluation: bool = False
    project: str = ""
    inputs: tuple[str, ...] = ()
    shapes: str = ""
    eights: bool = False
    allow: tuple[Precision, ...] = ()
    device: Literal["cpu", "cuda"] = "cpu"
    timeout_s: float = 120.0
    load_seconds: float = 60.0

    @property
    def limit_s(self) -> float:
        """How long reading a file may take that computes all the time."""
        raised = self.load_seconds > TracePolicy.model_fields["load_seconds"].default
        return max(self.timeout_s, 2 * self.load_seconds) if raised else self.timeout_s


class Refusal(Value):
    """Why a file cannot be a task: one clear sentence for the person, and detail for the curious.

    `exit_status` is 2 when the input is unusable and 3 when the environment lacks something.
    `choices` are entries of which one would have to be named; `draws_in_training` of a module that
    draws at random in the mode it was left in, and may not once it is put into evaluation mode.
    """

    sentence: str
    choices: tuple[str, ...] = ()
    draws_in_training: bool = False
    detail: str = ""
    exit_status: Literal[2, 3] = 2


class RefusedError(Exception):
    """Carries a Refusal out of nested calls; `trace` turns it back into a value."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


def refuse(sentence: str, detail: str = "", exit_status: Literal[2, 3] = 2) -> RefusedError:
    """A RefusedError to raise, with the sentence the person will read."""
    return RefusedError(Refusal(sentence=sentence, detail=detail, exit_status=exit_status))


class ProjectFile(Value):
    """A file that a user's code was seen to read, as it was then.

    `path` is relative to the project's folder. Small ones are carried: `content` is then what they
    hold, in base64, and None for others, which are read where they lie, `origin`.
    """

    path: str
    sha256: str
    size_bytes: int
    content: str | None = None
    origin: str = ""


class Project(Value):
    """What a user's file needs of the files around it.

    `module` is its dotted name, `file` its path relative to the project's folder, `roots` folders
    in there that its imports are looked up in, and `names` what is found in these.
    """

    module: str
    file: str
    roots: tuple[str, ...]
    names: tuple[str, ...]
    files: tuple[ProjectFile, ...] = ()

    @property
    def digest(self) -> str:
        """Names the content of all its files."""
        listed = (f"{item.path} {item.sha256}" for item in self.files)
        return sha256("\n".join((self.module, *listed)).encode()).hexdigest()

    @property
    def elsewhere(self) -> tuple[ProjectFile, ...]:
        """Files that are too large to be carried."""
        return tuple(item for item in self.files if item.content is None)


class Part(Value):
    """A submodule of a model that cannot be traced as a whole, which can be traced by itself.

    `kind` is its class, `inputs` what every call gives it, `calls` how often one forward calls it.
    """

    path: str
    kind: str
    inputs: tuple[TensorSpec, ...]
    calls: int


class Untraced(Value):
    """A submodule, or with an empty path the model itself, whose own code stays PyTorch's."""

    path: str
    kind: str
    why: str


class Submodule(Value):
    """A submodule of what was traced, or that itself under an empty path, and what it computes by.

    `kind` is its class, or "= " and the path under which it stands already. `attributes` are those
    that hold plain values, as Python, or "?" where a forward changes them. `hooks` counts what is
    hooked to it, and `shared` names its parameters that have another name before.
    """

    path: str
    kind: str
    hooks: int = 0
    attributes: tuple[tuple[str, str], ...] = ()
    shared: tuple[tuple[str, str], ...] = ()


class Task(Value):
    """A reference to beat.

    `source` is the text of the user's file; it is executed in workers only. `bytes_moved` counts
    every input, parameter and buffer that is read once and every output written once; `flops`
    follows torch's FlopCounterMode for contractions plus one per element and pointwise operator.
    `badges` are the audit's doubts, `warnings` the sentences that a person is shown.
    `call` says how `inputs` become the forward's arguments where they are not simply given in
    order, and `returns` how `outputs` are packed where that is more than a tuple or list.
    `allow` is the person's word on precisions below the task's own. `project` is there where the
    file needs others, of a package that it is in or beside it. `batch` holds inputs that the person
    saved, and `state` the weights of a model that a function of the person's made. `parts` are
    there where the forward cannot be traced as a whole: `graph` then is one call of the model, and
    `untraced` says what keeps it from being more. `dimensions` are sizes of the inputs that shall
    not stay the example's. `unkept_draws` names operators that draw random numbers in an order that
    no other implementation could keep. `submodules` are what an export compares itself with; None
    in tasks that were traced before they were written down.
    """

    name: str
    path: str
    source: str
    source_sha256: str
    entry: str
    entry_kind: Literal["kernelbench", "module", "function", "built"]
    input_override: tuple[str, ...] = ()
    inputs: tuple[InputSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: tuple[WeightSpec, ...] = ()
    graph: Graph
    call: CallPacking | None = None
    returns: Packing | None = None
    bytes_moved: int
    flops: int
    training: bool = False
    evaluation: bool = False
    draws_random: bool = False
    unkept_draws: tuple[str, ...] = ()
    allow: tuple[Precision, ...] = ()
    warnings: tuple[str, ...] = ()
    badges: tuple[Badge, ...] = ()
    project: Project | None = None
    batch: ProjectFile | None = None
    state: ProjectFile | None = None
    parts: tuple[Part, ...] = ()
    untraced: tuple[Untraced, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    submodules: tuple[Submodule, ...] | None = None

    @property
    def digest(self) -> str:
        """Names what defines the reference: the file's text, and that of those it needs."""
        saved = "".join(item.sha256 for item in (self.batch, self.state) if item is not None)
        return f"{self.source_sha256}{self.project.digest if self.project else ''}{saved}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Warnings that no badge stands for."""
        told = {badge.words for badge in self.badges}
        return tuple(words for words in self.warnings if words not in told)

    @property
    def tensor_inputs(self) -> tuple[InputSpec, ...]:
        """The inputs that are tensors, in order."""
        return tuple(spec for spec in self.inputs if spec.tensor is not None)
