"""What was measured of a shape, a JSON line each, and files of such lines.

A record holds everything that its claims rest on: the task, the kernel, the verdict with all
samples, the library's own times, and every candidate that was tried. Lines are appended whole as
they are made; a last line that was cut off is left out when the file is read.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import ValidationError, field_validator

from kernelwright.profiles.load import Hardware
from kernelwright.tools.gemm.candidates import Proposal
from kernelwright.tools.gemm.problem import Arithmetic
from kernelwright.tools.gemm.shapes import GemmShape
from kernelwright.tools.types import (
    Baselines,
    Comparison,
    Evaluation,
    Setting,
    Task,
    Value,
    Verdict,
)

Ended = Literal["measured", "none_correct", "failed"]


class RecordsError(ValueError):
    """A file is no file of records; one sentence for a person."""


class Terms(Value):
    """Under what a grid was measured; records of other terms are not put together.

    `figures` names the judge's rules and the budget of a shape.
    """

    arithmetic: Arithmetic
    seed: int
    device: str
    kernelwright: str
    torch: str
    figures: str


class Tried(Value):
    """A candidate that was screened; `ms` is its device time where it was right."""

    strategy: str
    settings: tuple[Setting, ...]
    verdict: Verdict
    reason: str = ""
    ms: float | None = None


class ModelView(Value):
    """What the cost model says of a shape: its first strategy, that one's first tile, the time."""

    strategy: str
    tile: int
    predicted_ms: float


class GemmRecord(Value):
    """One shape's outcome.

    `best` is the candidate that was certified with `evaluation`; without one the library keeps the
    shape, and `words` say why.
    """

    shape: GemmShape
    terms: Terms
    ended: Ended
    words: str = ""
    task: Task | None = None
    hardware: Hardware | None = None
    baselines: Baselines | None = None
    model: ModelView | None = None
    best: Proposal | None = None
    evaluation: Evaluation | None = None
    tried: tuple[Tried, ...] = ()
    seconds: float = 0.0

    @field_validator("task")
    @classmethod
    def _told_by_name(cls, task: Task | None) -> Task | None:
        """The task's text is our own and in no file: where it was made is nobody's business."""
        return task and task.model_copy(update={"path": Path(task.path).name})

    @property
    def offline(self) -> tuple[Comparison, ...]:
        """Queued calls under cold caches, beside each way of the library that there is."""
        return self.evaluation.comparisons if self.is_right and self.evaluation else ()

    @property
    def server(self) -> tuple[Comparison, ...]:
        """Calls after random gaps, beside the fastest of them and the autotuned one."""
        if not self.is_right or self.evaluation is None:
            return ()
        return tuple(one.comparison for one in self.evaluation.modes if one.mode == "server")

    @property
    def is_right(self) -> bool:
        """Whether the best candidate is, in the task's own precision."""
        found = self.evaluation.verification if self.evaluation else None
        return found is not None and found.verdict is Verdict.CORRECT and not found.apart

    @property
    def overflown(self) -> tuple[str, ...]:
        """Kinds of values on which sums in fp16 overflow, the library's too: nothing was judged."""
        in_fp16 = self.terms.arithmetic.accumulate == "fp16"
        return self.evaluation.verification.overflown if in_fp16 and self.evaluation else ()

    @property
    def absent(self) -> tuple[str, ...]:
        """The library's ways that could not be measured, each with the reason."""
        items = self.baselines.items if self.baselines else ()
        return tuple(f"{item.name}: {item.failure}" for item in items if item.measurement is None)


def beside(comparisons: Iterable[Comparison], name: str) -> Comparison | None:
    """The one beside that way of the library."""
    return next((one for one in comparisons if one.baseline == name), None)


def append(path: Path, record: GemmRecord) -> None:
    """Add a line, in one write, so that several processes may share a file."""
    line = record.model_dump_json() + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        file.write(line.encode())
        os.fsync(file.fileno())


def read(path: Path) -> tuple[GemmRecord, ...]:
    """The records of a file, of a shape that was measured again the last one.

    Raises:
        RecordsError: It cannot be read, or a line before the last one is no record.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RecordsError(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None
    found: dict[GemmShape, GemmRecord] = {}
    for number, line in enumerate(lines, start=1):
        try:
            record = GemmRecord.model_validate_json(line)
        except ValidationError:
            if number == len(lines):
                break  # cut off when it was written
            raise RecordsError(f"{path}:{number} is no record of a product") from None
        found.pop(record.shape, None)
        found[record.shape] = record
    return tuple(found.values())


def mend(path: Path) -> None:
    """Cut off a last line that was not written to its end, before others are added."""
    if not path.exists():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        path.write_bytes(content[: content.rfind(b"\n") + 1])
