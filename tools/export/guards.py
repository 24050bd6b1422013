"""What an export is made of, when there must be none, and when it runs its kernels.

The conditions under which it runs its kernels are printed as Python expressions: straight-line
code, because it runs at every call, and a loop over specifications would cost more than small
kernels do.
"""

import builtins
import keyword
from dataclasses import dataclass

from kernelwright.profiles.load import Hardware
from kernelwright.tools.types import (
    Baselines,
    Candidate,
    Effort,
    Evaluation,
    InputSpec,
    Scalar,
    Task,
    TensorSpec,
    Value,
    Verdict,
    WeightSpec,
)
from kernelwright.tools.types.backward import Backward
from kernelwright.tools.types.run import Summary
from kernelwright.tools.types.shapes import VerifiedShapes
from kernelwright.tools.types.speed_words import claim_words


class ExportRefusedError(ValueError):
    """There is nothing that may be exported, or no place for it; one sentence for a person."""


class Material(Value):
    """A verified candidate with everything that is known about it.

    `forced` says that the person wants the export although it is not faster, or computes in less
    than was asked; the export then says so itself. `name` is what people call the candidate in its
    run, such as `v7`. `shapes` are the sizes beside the example's that it was verified for.
    `backward` are kernels for the gradients, where a search found some. `effort` says how closely
    the candidate was judged, None where that is not known.
    """

    task: Task
    candidate: Candidate
    evaluation: Evaluation
    baselines: Baselines
    hardware: Hardware
    summary: Summary | None = None
    forced: bool = False
    name: str = ""
    shapes: VerifiedShapes | None = None
    backward: "OwnBackward | None" = None
    effort: Effort | None = None

    @property
    def improved(self) -> bool:
        """Whether it may be called faster than PyTorch: by the one rule for every headline."""
        claim = self.evaluation.claim
        return claim is not None and claim.outcome == "faster" and self.certified

    @property
    def certified(self) -> bool:
        """Whether it was judged as closely as a run's result is, or nobody knows otherwise."""
        return self.effort in (None, "certify")

    @property
    def claim(self) -> str:
        """What may be said of its speed, as a clause about `it`."""
        return claim_words(self.evaluation.claim, certified=self.certified)

    @property
    def apart(self) -> str:
        """Why it does not compete with those of the task's own precision; "" where it does."""
        return self.evaluation.verification.apart


class OwnBackward(Value):
    """A verified backward of the same task.

    `found` says what its arguments and results stand for, `material` is its candidate with what is
    known about it, as a task of its own; `forward` is that of the forward which keeps what the
    backward is given, where it is given more than the module's own forward has.
    """

    found: Backward
    material: Material
    forward: Material | None = None


Material.model_rebuild()


def check(material: Material) -> None:
    """Refuse what must not be exported.

    Raises:
        ExportRefusedError: When the candidate is not correct; or when it computes in a precision
            that nobody allowed, or is not faster, and is not forced.
    """
    verdict, name = material.evaluation.verdict, material.name or material.candidate.id
    if verdict is not Verdict.CORRECT:
        raise ExportRefusedError(
            f"candidate {name} cannot be exported: its verdict is {verdict.value}"
        )
    if material.apart and not material.forced:
        raise ExportRefusedError(
            f"candidate {name} {material.apart}, which was not allowed "
            "(search with --allow to admit it, or --force exports it all the same)"
        )
    if not material.improved and not material.forced:
        raise ExportRefusedError(
            f"candidate {name}: {material.claim} (--force exports it all the same)"
        )


# Vector loads of CUDA kernels need 16 bytes; the CPU's prelude assumes nothing, but a tensor that
# starts in the middle of an element row was not what was verified either.
ALIGNMENT_BYTES = 16


# Names that the exported functions use for something else.
OURS = frozenset(
    [
        "self",
        "args",
        "kwargs",
        "kernels",
        "weights",
        "updates",
        "prepared",
        "given",
        "index",
        "result",
        "results",
        "memory",
        "fresh",
        "value",
        "where",
        "t",
        "device",
        "like_verified",
        "records",
        "needed",
        "module",
        "gradients",
        "gradient",
        "found",
        "tensors",
        "backward",
        "torch",
        "nn",
        "math",
        "run",
        "verified",
        "wants_gradient",
        "special_mode",
        "why_not",
        "in_order",
        "as_called",
        "taken",
        "kernels_for",
        "is_ready",
        "OPERATOR",
        "PLAIN",
        "COUNTS",
        "load",
        "reference",
        "watch",
        "why",
    ]
)


# A schema of torch's has at most 64 arguments (torch 2.11 to 2.13): an operator that takes more
# tensors than this takes them as one list.
MOST_ARGUMENTS = 48


@dataclass(frozen=True)
class Argument:
    """A tensor that the plan is given, under the name that it has in the export."""

    name: str
    label: str
    tensor: TensorSpec
    path: str = ""
    is_buffer: bool = False

    @property
    def differentiable(self) -> bool:
        """Whether autograd can ask for its gradient."""
        return self.tensor.dtype.is_floating or self.tensor.dtype.is_complex

    @property
    def shape(self) -> str:
        """Its shape as Python."""
        return repr(self.tensor.shape)

    @property
    def dtype(self) -> str:
        """Its element type as torch calls it."""
        return self.tensor.dtype.value

    @property
    def strides(self) -> str:
        """Its strides as Python, None when contiguous."""
        return repr(self.tensor.strides)


def input_names(task: Task) -> list[str]:
    """The export's variables for the inputs: their own names where those are Python's."""
    taken = set(OURS) | set(dir(builtins))
    names: list[str] = []
    for number, spec in enumerate(task.inputs):
        plain = spec.name.isidentifier() and not keyword.iskeyword(spec.name)
        fine = plain and not spec.name.startswith("_") and spec.name not in taken
        names.append(spec.name if fine else f"input_{number}")
        taken.add(names[-1])
    return names


def weight_arguments(weights: tuple[WeightSpec, ...], taken: list[str]) -> list[Argument]:
    """The export's variables for parameters and buffers, and where a module keeps them."""
    arguments = []
    for number, weight in enumerate(weights):
        name = f"weight_{number}"
        while name in taken:
            name += "_"
        arguments.append(
            Argument(name, repr(weight.name), weight.tensor, weight_path(weight), weight.is_buffer)
        )
    return arguments


def constants_read(
    task: Task, names: tuple[str, ...]
) -> list[tuple[str, str, tuple[int, ...], str]]:
    """Which of these are tensors that the forward builds: name, type, shape, bytes in base64.

    A module does not have them, so an export makes them itself.
    """
    return [
        (str(node.target), node.out[0].dtype.value, node.out[0].shape, str(data.value))
        for node in task.graph.nodes
        if node.op == "constant" and str(node.target) in names
        for data in [dict(node.kwargs)["data"]]
        if isinstance(data, Scalar)
    ]


def weight_path(weight: WeightSpec) -> str:
    """The quickest way to a parameter or buffer: past the module's `__getattr__`."""
    *modules, last = weight.name.split(".")
    where = "_buffers" if weight.is_buffer else "_parameters"
    return "self" + "".join(f"._modules[{part!r}]" for part in modules) + f".{where}[{last!r}]"


def eager_conditions(item: Argument, device_type: str, sizes: str) -> list[str]:
    """That a tensor is like the verified one, in a call of PyTorch's usual kind.

    `sizes` is the condition on its shape.
    """
    name = item.name
    return [
        f"type({name}) in PLAIN and {name}.is_{device_type} and {name}.dtype is torch.{item.dtype}",
        f"{sizes} and {layout_condition(item)}",
        f"not {name}.data_ptr() % {ALIGNMENT_BYTES}",
    ]


def traced_conditions(item: Argument, device_type: str, sizes: str) -> list[str]:
    """The same where torch.compile looks on and there is no memory yet."""
    name = item.name
    return [
        f'{name}.device.type == "{device_type}" and {name}.dtype is torch.{item.dtype}',
        f"{sizes} and {layout_condition(item)}",
    ]


def layout_condition(item: Argument) -> str:
    """That a tensor's strides are the verified ones."""
    if item.tensor.strides is None:
        return f"{item.name}.is_contiguous()"
    return f"{item.name}.stride() == {item.strides}"


def scalar_condition(name: str, spec: InputSpec) -> str:
    """That a plain argument has the value for which the kernels were verified."""
    if spec.scalar is None:
        return f"{name} is None"
    kind = type(spec.scalar).__name__
    return f"type({name}) is {kind} and {name} == {spec.scalar!r}"


def same_device(items: list[Argument]) -> list[str]:
    """That all tensors are on the first one's device (there may be several GPUs)."""
    first, *others = items
    return [f"{item.name}.get_device() == {first.name}.get_device()" for item in others]
