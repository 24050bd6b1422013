"""How an export answers calls that autograd records, and when it can only run the reference.

An export whose forward runs kernels recomputes through the reference for its gradients: those are
right to any order, as the reference's are. A whole training step is then slower than the
reference's by the time of the kernels, so the default stays the reference unless a backward of our
own was found that makes the step faster. The choice stands in module.py as `GRADIENTS`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.tools.candidates.plan import validate_plan
from kernelwright.tools.export.guards import Material
from kernelwright.tools.languages import language_of

_NOTHING_GAINED = "a step that recomputes takes longer than the reference's own, by the kernels."


@dataclass(frozen=True)
class Gradients:
    """What an export can do where gradients are recorded.

    Attributes:
        refused: why only the reference can; "" where the kernels may run forward.
        floating_outputs: the places of the results that can have a gradient.
    """

    refused: str
    floating_outputs: tuple[int, ...]

    @property
    def trainable(self) -> bool:
        """Whether the kernels may run forward under autograd."""
        return not self.refused


def gradients_of(material: Material) -> Gradients:
    """What the export of a candidate can do."""
    task = material.task
    floating = tuple(at for at, spec in enumerate(task.outputs) if spec.dtype.is_floating)
    return Gradients(_refused(material, floating), floating)


def _refused(material: Material, floating: tuple[int, ...]) -> str:
    task = material.task
    source = language_of(material.candidate).parse(material.candidate.kernel)
    plan = validate_plan(material.candidate.plan, source)
    parameters = [w for w in task.weights if not w.is_buffer and w.tensor.dtype.is_floating]
    unread = [item.name for item in parameters if item.name not in plan.weights]
    given = any(spec.tensor is not None and spec.tensor.dtype.is_floating for spec in task.inputs)
    if plan.updates or task.graph.mutations:
        return "it updates buffers, which a second forward would update again"
    if task.returns is not None:
        return "its results are packed in more than a list"
    if unread:
        return f"the kernels do not read the parameter `{unread[0]}`"
    if not floating or not (given or parameters):
        return "there is nothing to be differentiated"
    return ""


def words(material: Material) -> str:
    """What VERIFICATION.md says of gradients."""
    found = gradients_of(material)
    if not found.trainable:
        return (
            "there is no backward. Where autograd is recording, `module.py` runs the reference: "
            f"{found.refused}."
        )
    return (
        "there is no backward of our own. Where autograd is recording, `module.py` runs the "
        'reference. With `GRADIENTS = "recompute"` in it, the kernels run forward and the '
        "backward runs the reference's forward again: less is kept between the two, but a step "
        "takes longer by the kernels' time. It was not timed."
    )


def values(found: Gradients) -> dict[str, object]:
    """What the templates are filled with."""
    return {
        "trainable": found.trainable,
        "floating_outputs": found.floating_outputs,
        "gradients_choice": "reference",
        "gradients_why": _NOTHING_GAINED,
    }
