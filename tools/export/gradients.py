"""How an export answers calls that autograd records, and when it can only run the reference.

An export whose forward runs kernels recomputes through the reference for its gradients: those are
right to any order, as the reference's are. A whole training step is then slower than the
reference's by the time of the kernels, so the default stays the reference unless a backward of our
own was found that makes the step faster. That one holds the example's sizes: where an export serves
others, a step at those is the reference's. The choice stands in module.py as `GRADIENTS`.

A forward that updates buffers cannot be run again for its gradients: with a backward of our own
the kernels write new values once, as the forward does; without one a step is the reference's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.tools.candidates.plan import Plan, validate_plan
from kernelwright.tools.export.guards import Argument, Material
from kernelwright.tools.languages import language_of
from kernelwright.tools.types import InputSpec, Task
from kernelwright.tools.types.backward import BackwardRead, ReadKind
from kernelwright.tools.types.training import TrainingSummary

_TWICE = "it updates buffers, which a second forward would update again"
_NOTHING_GAINED = "a step that recomputes takes longer than the reference's own, by the kernels."


@dataclass(frozen=True)
class Gradients:
    """What an export can do where gradients are recorded.

    Attributes:
        refused: why only the reference can; "" where the kernels may run forward.
        floating_outputs: the places of the results that can have a gradient.
        training: what is known of a step with a backward of our own; None where there is none.
        once: whether the forward can run once alone, as it updates buffers.
    """

    refused: str
    floating_outputs: tuple[int, ...]
    training: TrainingSummary | None = None
    once: bool = False

    @property
    def trainable(self) -> bool:
        """Whether the kernels may run forward under autograd."""
        return not self.refused

    @property
    def choice(self) -> str:
        """What `GRADIENTS` is to begin with."""
        return "own" if self.training is not None and self.training.pays else "reference"

    @property
    def why(self) -> str:
        """Why it is that."""
        return _NOTHING_GAINED if self.training is None else f"{self.training.words}."


def gradients_of(material: Material) -> Gradients:
    """What the export of a candidate can do."""
    task = material.task
    floating = tuple(at for at, spec in enumerate(task.outputs) if spec.dtype.is_floating)
    source = language_of(material.candidate).parse(material.candidate.kernel)
    plan = validate_plan(material.candidate.plan, source)
    refused = _refused(task, plan, floating)
    known = not refused and _reads(material) <= _known(material, plan)
    training = training_of(material) if known else None
    once = bool(plan.updates or task.graph.mutations)
    if once and not refused and training is None:
        refused = _TWICE
    return Gradients(refused, floating, training, once)


def is_own(material: Material) -> bool:
    """Whether the export has kernels for its gradients."""
    return gradients_of(material).training is not None


def training_of(material: Material) -> TrainingSummary | None:
    """A step by kernels beside the reference's; None without a backward that is right."""
    own = material.backward
    if own is None or (own.found.forward and own.forward is None):
        return None
    first = own.forward or material
    found = own.found
    forward, backward = _over_eager(first), _over_eager(own.material)
    # What the ratio of the forward is against: the operators of the file that was searched.
    operators_ms = found.eager_step_forward_ms if found.forward else found.eager_forward_ms
    if forward is None or backward is None or not operators_ms:
        return None
    # Searches were made at different times: the ratios of kernels and PyTorch's operators carry
    # over to the times of one and the same hour, their milliseconds would not.
    return TrainingSummary(
        reference_forward_ms=found.forward_ms,
        reference_step_ms=found.step_ms,
        forward_ms=operators_ms / forward + _prepare_ms(first),
        backward_ms=found.eager_backward_ms / backward,
        in_turns=None not in (_in_turns(first), _in_turns(own.material)),
    )


def _prepare_ms(material: Material) -> float:
    """What is done once of weights that stay; a step changes them, so each does it."""
    prepares = "def prepare" in material.candidate.plan
    return (material.evaluation.prepare_ms or 0.0) if prepares else 0.0


def why_not_own(material: Material) -> str:
    """Why an export of this has no kernels for its gradients; "" where it has."""
    found = gradients_of(material)
    if found.training is not None or found.refused not in ("", _TWICE):
        return found.refused
    if material.backward is None:
        return "no kernels were found for it"
    source = language_of(material.candidate).parse(material.candidate.kernel)
    plan = validate_plan(material.candidate.plan, source)
    lacking = sorted(f"{r.kind} {r.name}" for r in _reads(material) - _known(material, plan))
    return (
        f"a step needs the {lacking[0]}, which the forward's kernels are not given"
        if lacking
        else "its kernels were not timed"
    )


def _in_turns(material: Material) -> float | None:
    """Eager's time over the candidate's, timed in turns; None where they were not."""
    compared = (c for c in material.evaluation.comparisons if c.baseline == "eager")
    return next((item.ratio for item in compared), None)


def _over_eager(material: Material) -> float | None:
    """The same, else the least that times of different moments leave possible; None without either.

    Each may have been taken while something else ran, which would be said of the kernels otherwise.
    """
    if (in_turns := _in_turns(material)) is not None:
        return in_turns
    eager, took_ms = material.baselines.named("eager"), material.evaluation.median_ms
    if eager is None or eager.measurement is None or not took_ms:
        return None
    screen, theirs = material.evaluation.screen, eager.measurement
    slow_ms = max(took_ms, screen.p90_ms) if screen is not None else took_ms
    return min(theirs.p10_ms, theirs.median_ms) / slow_ms


def _known(material: Material, plan: Plan) -> set[BackwardRead]:
    """What the export can give a backward: what forwards read and keep, and the result's ends."""
    task, own = material.task, material.backward
    kept = {BackwardRead(kind="kept", name=str(at)) for at in range(own.found.kept if own else 0)}
    ends = {BackwardRead(kind=kind, name=name) for kind, name in _ends(task)}
    inputs = {BackwardRead(kind="input", name=spec.name) for spec in task.tensor_inputs}
    weights = {BackwardRead(kind="weight", name=name) for name in plan.weights}
    return kept | ends | inputs | weights


def _ends(task: Task) -> dict[tuple[ReadKind, str], str]:
    """The floating results and their gradients, and what the export calls them."""
    places = [at for at, spec in enumerate(task.outputs) if spec.dtype.is_floating]
    found: dict[tuple[ReadKind, str], str] = {}
    for number, at in enumerate(places):
        name = str(at) if len(task.outputs) > 1 else ""
        found["result", name] = f"results[{at}]"
        found["gradient", name] = f"gradients[{number}]"
    return found


def _refused(task: Task, plan: Plan, floating: tuple[int, ...]) -> str:
    weights = [w for w in task.weights if not w.is_buffer]
    parameters = [w for w in weights if w.tensor.dtype.is_floating or w.tensor.dtype.is_complex]
    unread = [item.name for item in parameters if item.name not in plan.weights]
    given = any(spec.tensor is not None and spec.tensor.dtype.is_floating for spec in task.inputs)
    if task.draws_random:
        return "it draws random numbers, of which a second forward would draw others"
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
    if found.training is not None:
        return (
            "those of float64 were compared with the backward's kernels for what these are given "
            "(`backward/VERIFICATION.md`); forward and backward together are compared by "
            f"`verify.py`. {_second_derivatives(found)}{_other_sizes(material)}"
        )
    return (
        "there is no backward of our own. Where autograd is recording, `module.py` runs the "
        'reference. With `GRADIENTS = "recompute"` in it, the kernels run forward and the '
        "backward runs the reference's forward again: less is kept between the two, but a step "
        "takes longer by the kernels' time. It was not timed."
    )


def _second_derivatives(found: Gradients) -> str:
    if found.once:
        return (
            "Buffers are written by the forward's kernels. There are no second derivatives, as the "
            "forward updates buffers."
        )
    return "Second derivatives recompute through the reference."


def _other_sizes(material: Material) -> str:
    if material.shapes is None:
        return ""
    return " At other sizes than the example's the reference runs both ways."


def values(
    material: Material, inputs: Sequence[Argument], weights: Sequence[Argument]
) -> dict[str, object]:
    """What the templates are filled with.

    Args:
        material: what is exported.
        inputs: the tensors among its inputs, as they are called in the export.
        weights: parameters and buffers that the plan is given, likewise.
    """
    found = gradients_of(material)
    names = _ends(material.task)
    # What is no tensor stands among a task's inputs, but not here.
    specs = [spec for spec in material.task.inputs if spec.tensor is not None]
    for spec, item in zip(specs, inputs, strict=True):
        names["input", spec.name] = item.name
    by_label = {item.label: item.name for item in weights}
    for weight in material.task.weights:
        if repr(weight.name) in by_label:
            names["weight", weight.name] = by_label[repr(weight.name)]
    own = found.training is not None
    return {
        "trainable": found.trainable,
        "floating_outputs": found.floating_outputs,
        "own": own,
        "once": found.once,
        "updates_made": _updates_made(material),
        "operator_backward": own and not found.once and not _keeps(material),
        "gradients_choice": found.choice,
        "gradients_why": found.why,
        **_own(material, names, [*inputs, *weights] if own else []),
    }


def _keeps(material: Material) -> int:
    return 0 if material.backward is None else material.backward.found.kept


def _updates_made(material: Material) -> dict[str, int]:
    """By what a buffer is called in the export: where the step's forward returns its new value."""
    if material.backward is None:
        return {}
    first = len(material.task.outputs)
    return {repr(name): first + at for at, name in enumerate(material.backward.found.updates)}


def _reads(material: Material) -> set[BackwardRead]:
    """What both directions of a step are given."""
    if material.backward is None:
        return set()
    return {*material.backward.found.reads, *material.backward.found.forward_reads}


def _laid_out(name: str, read: BackwardRead, spec: InputSpec) -> str:
    """A tensor as the backward's kernels were verified with it, whatever made it, as Python."""
    if read.kind not in ("kept", "result") or spec.tensor is None:
        return name
    return f"_laid_out({name}, {spec.tensor.strides})"


def _own(
    material: Material, names: dict[tuple[ReadKind, str], str], tensors: Sequence[Argument]
) -> dict[str, object]:
    """What the backward is given, and where its results belong, as Python."""
    if material.backward is None or not tensors:
        return {"backward_reads": [], "backward_gives": [], "forward_reads": [], "keeps": 0}
    found = material.backward.found
    names |= {("kept", str(at)): f"kept[{at}]" for at in range(found.kept)}
    of = {
        names[item.kind, item.name]: names["gradient", item.of]
        if item.place is None
        else f"found[{item.place}]"
        for item in found.gives
        if (item.kind, item.name) in names
    }
    return {
        "keeps": found.kept,
        "forward_reads": [names[read.kind, read.name] for read in found.forward_reads],
        "backward_reads": [
            _laid_out(names[read.kind, read.name], read, spec)
            for read, spec in zip(found.reads, material.backward.material.task.inputs, strict=True)
        ],
        "backward_gives": [of.get(item.name, "None") for item in tensors],
    }
