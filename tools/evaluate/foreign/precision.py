"""What a foreign candidate computes in: measured, as for our own, where the task lets it be.

What the file names and the settings that it changed say what to look for; the digits decide. Only
where they cannot be measured (a task in half precision, inputs that no probe suits) a setting is
taken at its word. A branch that names a type and loses nothing costs no label.
"""

from collections.abc import Mapping, Sequence

from kernelwright.tools.evaluate.foreign.reading import Reading
from kernelwright.tools.evaluate.verify.digits import Digits, Precision, ranked, resolve
from kernelwright.tools.evaluate.verify.precision import (
    SIGNIFICANT_BITS,
    lower_among,
    task_precision,
)
from kernelwright.tools.types import Task

# What is this near to single precision lost digits to another order of adding, not to a type.
_NEARLY_ALL_BITS = 20.0
_LOWER: Mapping[str, str] = {
    "matmul precision: high": "tf32",
    "matmul precision: medium": "bf16",
    "cuda tf32: True": "tf32",
    "fp16 reduction: True": "fp16",
}


def named(task: Task, read: Reading, settings: Sequence[str]) -> tuple[str, ...]:
    """Lower precisions that the file names or sets torch to, the finest first."""
    there = {*lower_among(task, read.words), *_set(settings)}
    return tuple(sorted(there, key=lambda name: -SIGNIFICANT_BITS[name]))


def label(
    task: Task, read: Reading, settings: Sequence[str], found: Digits | None
) -> tuple[Precision, tuple[str, ...]]:
    """The label, and remarks on settings that were changed.

    Args:
        task: its own precision, and what the person allowed.
        read: what the file says.
        settings: of torch, as the guest reports them after calls.
        found: what probes showed; None where nothing could be measured.
    """
    remarks = tuple(f"it changed torch's setting of {name}" for name in settings)
    own = task_precision(task)
    if found is None:
        lower = _set(settings) if own == "fp32" else ()
        return ranked(task, lower[0] if lower else own, None), remarks
    exact = found.in_range and (found.exact or found.bits >= _NEARLY_ALL_BITS)
    if exact:
        return Precision(label=own, bits=found.bits), remarks
    lower, turned = named(task, read, settings), found.as_turned
    return resolve(task, lower, found.bits, exact=False, as_turned=turned), remarks


def _set(settings: Sequence[str]) -> tuple[str, ...]:
    return tuple(_LOWER[name] for name in settings if name in _LOWER)
