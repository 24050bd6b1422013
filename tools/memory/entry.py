"""A kernel of the library: the candidate, what it computes, and what was measured of it.

Nothing of the user's source is in it: weights are named `w0`, `w1`, ... in the order of their use.
The task's name and the run are there for the user's own eyes, and are left out of files that are
given away.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from typing import Literal

from pydantic import ValidationError

from kernelwright.profiles.load import Hardware
from kernelwright.tools.memory.structure import TaskKey, with_weights_named
from kernelwright.tools.types.idea import CallMode, Candidate, LanguageName, Setting
from kernelwright.tools.types.measurement import SETTLED_WIDTH, Conditions
from kernelwright.tools.types.value import Value
from kernelwright.tools.types.verdict import SpeedOutcome

_LONGEST_LINE = 2_000_000


def device_of(hardware: Hardware) -> str:
    """What a device is known by: times on fewer cores of a processor are another device's."""
    return f"{hardware.name}, {hardware.cores} cores" if hardware.cores else hardware.name


class Shaped(Value):
    """Shape and type of a tensor input."""

    shape: tuple[int, ...]
    dtype: str


class Proof(Value):
    """What the judge found, in short; times in milliseconds, `ratio` is baseline / candidate.

    `certified` says that it was certified by itself, or as a part of a model that was; `outcome` is
    what might be said of it beside PyTorch, "" in libraries from before that was kept.
    `seconds` is what the search that found it was allowed, or what it took where a near task's
    result ended it. `screened_share` is the task's floor over the time that it was screened at, 0.0
    where that is not known or the search was ended so.
    """

    median_ms: float
    baseline: str
    ratio: float
    ci95: tuple[float, float]
    floor_fraction: float
    method: str
    coverage: float | None = None
    precision: str = ""
    certified: bool = False
    outcome: SpeedOutcome | Literal[""] = ""
    seconds: float = 0.0
    screened_share: float = 0.0
    conditions: Conditions | None = None


class Kept(Value):
    """One kernel of the library.

    `device` is the name, `kind` and `architecture` what its compiler is told. `mode` is how its
    plan was called when it was judged, eagerly before that was kept. `versions` are those of
    Kernelwright, torch and whatever else made it. `merged` came out of somebody's file.
    """

    key: TaskKey
    inputs: tuple[Shaped, ...]
    device: str
    kind: str
    architecture: str = ""
    language: LanguageName
    kernel: str
    plan: str
    settings: tuple[Setting, ...] = ()
    mode: CallMode = "eager"
    strategies: tuple[str, ...] = ()
    origin: Literal["playbook", "model", "person"] = "playbook"
    candidate: str
    proof: Proof
    versions: tuple[tuple[str, str], ...] = ()
    at: datetime
    task: str = ""
    run: str = ""
    merged: bool = False

    @property
    def id(self) -> str:
        """One for every task, device and implementation."""
        settings = ",".join(f"{item.name}={item.value}" for item in self.settings)
        called = () if self.mode == "eager" else (self.mode,)
        parts = (self.key.exact, self.device, self.kernel, self.plan, settings, *called)
        return sha256("\x1f".join(parts).encode()).hexdigest()[:24]

    @property
    def faster(self) -> bool:
        """Whether it was certainly ahead of what it was compared with."""
        return self.proof.ci95[0] > 1.0

    @property
    def outcome(self) -> SpeedOutcome:
        """What may be said of it beside PyTorch; by its interval where no more was kept."""
        if self.proof.outcome:
            return self.proof.outcome
        low, high = self.proof.ci95
        if high >= 1.0 and high - low > SETTLED_WIDTH * self.proof.ratio:
            return "not settled"
        return "faster" if low > 1.0 else "slower" if high < 1.0 else "not distinguishable"

    @property
    def what(self) -> str:
        """`softmax of 4096 x 1024 float32`."""
        shape = " x ".join(map(str, self.key.shape)) or "scalar"
        return f"{self.task or self.key.words} of {shape} {self.key.dtype}"

    @property
    def where(self) -> str:
        """`run softmax-1121-k3f9`, or that it came out of somebody's file."""
        return f"run {self.run}" if self.run else "merged from a file"

    @property
    def words(self) -> str:
        """`softmax of 4096 x 1024 float32, run softmax-1121-k3f9`."""
        return f"{self.what}, {self.where}"

    def plan_for(self, key: TaskKey) -> str | None:
        """The plan on another task's weights; None where these are not as many."""
        if len(key.weights) != len(self.key.weights):
            return None
        return with_weights_named(self.plan, dict(zip(self.key.weights, key.weights, strict=True)))

    @classmethod
    def of(cls, candidate: Candidate, key: TaskKey, **rest: object) -> "Kept | None":
        """A candidate with its plan in the library's words; None where that cannot be said."""
        own = tuple(f"w{number}" for number in range(len(key.weights)))
        plan = with_weights_named(candidate.plan, dict(zip(key.weights, own, strict=True)))
        if plan is None:
            return None
        fields = {
            "key": key.model_copy(update={"weights": own}),
            "language": candidate.language,
            "kernel": candidate.kernel,
            "plan": plan,
            "settings": candidate.settings,
            "mode": candidate.mode,
            "strategies": candidate.strategies,
            "origin": candidate.origin,
            "candidate": candidate.id,
        }
        return cls.model_validate({**fields, **rest})


def file_lines(kept: Iterable[Kept]) -> Iterator[str]:
    """What a file to be given away holds: a JSON line for each, without names and runs."""
    for item in kept:
        yield item.model_copy(update={"task": "", "run": "", "merged": False}).model_dump_json()


def read_lines(lines: Iterable[str]) -> Iterator[Kept]:
    """The kernels of such a file, which prove nothing here before they are judged.

    Raises:
        ValueError: A line is none of ours; the message says which.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"line {number} is too long to be a kernel")
        try:
            found = Kept.model_validate_json(line)
        except ValidationError:
            raise ValueError(f"line {number} is no kernel of a library") from None
        proof = found.proof.model_copy(update={"certified": False})
        yield found.model_copy(update={"merged": True, "run": "", "proof": proof})
