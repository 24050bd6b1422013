"""PyTorch's own result with channels last, where its convolutions may be coarser there.

PyTorch lets convolutions of single precision be computed in TF32 unless told otherwise, and the
library decides by shape and layout whether it does. On an H200 a convolution of 8 channels was
computed in fp32 as written, and in TF32 with channels last, which is also what torch.compile makes
of it: 1,200 times the error, to four digits the same for both. So such a task has two answers that
are PyTorch's own, and a candidate no further from the truth than the coarser one does what its
settings allow; it is labelled `tf32`. Whoever wants fp32 switches `torch.backends.cudnn.allow_tf32`
off in the file, a setting that torch.compile's library calls go by as well.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.tasks import Reference
from kernelwright.tools.types import DType, Task

COARSER = "tf32"
AS_TURNED = (
    "; as close to the truth as PyTorch's own result with channels last, where the library "
    "computes convolutions in TF32, as its settings allow"
)
_LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}


def may_be_coarser(task: Task, device: str) -> bool:
    """Whether the library may compute a convolution of this task in TF32."""
    return device == "cuda" and _allowed() and DType.FLOAT32 in convolved(task)


def convolved(task: Task) -> set[DType]:
    """The types of what the library's convolutions make in a task."""
    nodes = [n for n in task.graph.nodes if n.op.removeprefix("aten.").startswith("convolution")]
    return {spec.dtype for node in nodes for spec in node.out}


def with_channels_last(
    reference: Reference, task: Task, arguments: Sequence[Argument]
) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Outputs and buffers of a copy of the module whose tensors lie so; the module stays as it is.

    Raises:
        torch.OutOfMemoryError: There is no room for the copies.
    """
    module = _laid_out(copy.deepcopy(reference.module))
    other = Reference(module, task, reference.device)
    outputs = other.forward([_turned(one) if isinstance(one, Tensor) else one for one in arguments])
    return outputs, dict(other.weights())


def _laid_out(module: nn.Module) -> nn.Module:
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = _turned(tensor.data)
    return module


def _turned(tensor: Tensor) -> Tensor:
    layout = _LAYOUTS.get(tensor.dim())
    return tensor if layout is None else tensor.contiguous(memory_format=layout)


def _allowed() -> bool:
    try:
        return torch.backends.cudnn.allow_tf32
    except RuntimeError:  # the newer name was used to set it, and the older one is then refused
        return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")  # type: ignore[attr-defined]
