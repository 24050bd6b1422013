"""Renders module.py for a model that is traced in parts: its own forward, some parts of it faster.

Every part that has kernels keeps its class, its weights and its place, and gets another forward.
"""

from dataclasses import dataclass

from kernelwright.tools.candidates.plan import validate_plan
from kernelwright.tools.candidates.plan.validate import weights_read
from kernelwright.tools.candidates.plan.vocabulary import PART
from kernelwright.tools.export import guards, traced
from kernelwright.tools.export.guards import ExportRefusedError, Material
from kernelwright.tools.languages import language_of
from kernelwright.tools.types import Task, TensorSpec, WeightSpec
from kernelwright.tools.types.task import Part

WORDS = "The reference, some of whose parts run kernels where they are called as verified."


@dataclass(frozen=True)
class PartPrinted:
    """What the template says of one part; `found` are its weights as it reaches them itself."""

    number: int
    path: str
    inputs: tuple[TensorSpec, ...]
    weights: tuple[WeightSpec, ...]
    traced: str

    @property
    def names(self) -> tuple[str, ...]:
        """Of its weights, in the whole."""
        return tuple(weight.name for weight in self.weights)

    @property
    def found(self) -> tuple[str, ...]:
        """Expressions for its weights."""
        own = (
            weight.model_copy(update={"name": weight.name.removeprefix(f"{self.path}.")})
            for weight in self.weights
        )
        return tuple(map(guards.weight_path, own))


def in_parts(material: Material) -> dict[str, object]:
    """What the template is filled with besides what every module's is.

    Raises:
        ExportRefusedError: when the plan computes no part, or reads what the module does not have.
    """
    task, candidate = material.task, material.candidate
    language = language_of(candidate)
    source = language.parse(candidate.kernel)
    reads = weights_read(candidate.plan)
    named = {weight.name: weight for weight in task.weights}
    validate_plan(candidate.plan, source)
    printed = [
        _printed(number, part, reads[f"{PART}{number}"], named, task)
        for number, part in enumerate(task.parts)
        if f"{PART}{number}" in reads
    ]
    if not printed:
        raise ExportRefusedError("the candidate computes no part of the model")
    return {"parts": printed, "class_words": WORDS}


def _printed(
    number: int, part: Part, reads: tuple[str, ...], named: dict[str, WeightSpec], task: Task
) -> PartPrinted:
    missing = set(reads) - named.keys()
    if missing:
        raise ExportRefusedError(f"the plan reads {min(missing)!r}, which the module does not have")
    weights = tuple(named[name] for name in reads)
    return PartPrinted(
        number=number,
        path=part.path,
        inputs=part.inputs,
        weights=weights,
        traced=traced.printed(traced.under(task.submodules, part.path)),
    )
