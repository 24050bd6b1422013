"""What is known about a task before it is searched: doubts, what PyTorch runs, what it needs."""

from enum import StrEnum

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
