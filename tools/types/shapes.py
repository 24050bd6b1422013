"""Which sizes a candidate serves beside its example's, and what was verified of them.

A dimension is a name with the places in the inputs that have its size. It is a range of sizes or a
few single ones.
"""

from kernelwright.tools.types.value import Value
from kernelwright.tools.types.verdict import Verdict


class Dimension(Value):
    """One size that may change from call to call.

    `places` are (number of the input, dimension of it); the first one is read, the others must have
    the same size. Sizes are `low` to `high`, both included, or those of `points` alone.
    """

    name: str
    places: tuple[tuple[int, int], ...]
    example: int
    low: int = 0
    high: int = 0
    points: tuple[int, ...] = ()

    @property
    def least(self) -> int:
        """The smallest size."""
        return min(self.points, default=self.low)

    @property
    def most(self) -> int:
        """The largest size."""
        return max(self.points, default=self.high)

    @property
    def sizes_words(self) -> str:
        """The sizes as they are written on the command line."""
        return "|".join(map(str, self.points)) if self.points else f"{self.low}..{self.high}"

    def holds(self, size: int) -> bool:
        """Whether a size is one of these."""
        return size in self.points if self.points else self.low <= size <= self.high


class LinearSize(Value):
    """A size as `factor` times a dimension's, plus `more`; a constant where `of` is None."""

    of: int | None = None
    factor: int = 0
    more: int = 0

    def printed(self, names: tuple[str, ...]) -> str:
        """The expression, with dimensions called by these names."""
        if self.of is None:
            return str(self.more)
        scaled = names[self.of] if self.factor == 1 else f"{self.factor} * {names[self.of]}"
        return f"{scaled} {'-' if self.more < 0 else '+'} {abs(self.more)}" if self.more else scaled


class SizeCheck(Value):
    """What the judge found at one choice of sizes, in the order of the dimensions.

    `eager_ms` is PyTorch's time there and `candidate_ms` the candidate's; None where not timed.
    """

    sizes: tuple[int, ...]
    verdict: Verdict
    reason: str
    error_ratio: float | None = None
    distributions: tuple[str, ...] = ()
    candidate_ms: float | None = None
    eager_ms: float | None = None


class VerifiedShapes(Value):
    """The sizes that a candidate was verified to serve.

    `outputs` are the shapes of the results as they follow from the sizes; `variants` says how many
    sets of kernels there are, each of which is compiled once whatever sizes come.
    """

    candidate: str
    dimensions: tuple[Dimension, ...]
    outputs: tuple[tuple[LinearSize, ...], ...]
    variants: int = 1
    checks: tuple[SizeCheck, ...] = ()

    @property
    def words(self) -> str:
        """The sizes in one line."""
        return ", ".join(f"{item.name}={item.sizes_words}" for item in self.dimensions)


class ServedShapes(Value):
    """What became of a person's wish for other sizes: verified, or why the example's only.

    `interrupted` where somebody ended it before that was known; resuming the run goes on with it.
    """

    asked: str
    verified: VerifiedShapes | None = None
    problem: str = ""
    interrupted: bool = False

    @property
    def words(self) -> str:
        """One sentence for the person."""
        found = self.verified
        if found is None:
            return f"for the example's sizes only, not {self.asked}: {self.problem}"
        sets = "one set of kernels" if found.variants == 1 else f"{found.variants} sets of kernels"
        names = ", ".join(item.name for item in found.dimensions)
        looked = ", ".join("x".join(map(str, check.sizes)) for check in found.checks)
        return f"{found.words} with {sets}, verified at {names} = {looked}"
