"""Tensors baked into a forward (`torch.tensor([...])`): how they travel in the graph.

A tensor of one repeated value becomes `aten.full`. Any other becomes a `constant` node that
carries its bytes (base64, little-endian, row-major) in the keyword argument `data`, so that the
value survives without the user's file. Large tables belong in a buffer and are refused.
"""

from __future__ import annotations

import base64

import torch

from kernelwright.tools.tasks.checks import SUPPORTED
from kernelwright.tools.tasks.refusals import refuse
from kernelwright.tools.types import DType, DTypeArg, Graph, ListArg, Node, Scalar, TensorSpec

LARGEST_BYTES = 2**20


def constant_node(name: str, value: torch.Tensor) -> Node:
    """The node for a baked-in tensor; RefusedError when it is too large or of an odd type."""
    if value.dtype not in SUPPORTED:
        raise refuse(f"The forward builds a constant of type {value.dtype}; not supported.")
    spec = TensorSpec(
        shape=tuple(value.shape), dtype=DType(str(value.dtype).removeprefix("torch."))
    )
    if spec.size_bytes > LARGEST_BYTES:
        raise refuse(
            f"The forward builds a constant of {spec.size_bytes} bytes; register it as a buffer."
        )
    if isinstance(value, torch._subclasses.FakeTensor):
        raise refuse("The forward uses a tensor outside its parameters and buffers; register it.")
    flat = value.detach().contiguous().cpu().view(-1)
    if spec.numel and bool((flat == flat[0]).all()):
        return _full(name, spec, flat[0].item())
    data = base64.b64encode(flat.view(torch.uint8).numpy().tobytes()).decode("ascii")
    kwargs = (("data", Scalar(value=data)),)
    return Node(name=name, op="constant", target=name, kwargs=kwargs, out=(spec,))


def constants_of(graph: Graph, device: str) -> dict[str, torch.Tensor]:
    """The values of every `constant` node by its target, on `device`."""
    return {
        str(node.target): _decode(node).to(device) for node in graph.nodes if node.op == "constant"
    }


def _decode(node: Node) -> torch.Tensor:
    data = dict(node.kwargs)["data"]
    if not isinstance(data, Scalar):
        raise TypeError(f"constant {node.name} carries no data")
    dtype: torch.dtype = getattr(torch, node.out[0].dtype.value)
    raw = bytearray(base64.b64decode(str(data.value)))
    return torch.frombuffer(raw, dtype=dtype).view(node.out[0].shape)


def _full(name: str, spec: TensorSpec, value: bool | int | float) -> Node:
    shape = ListArg(items=tuple(Scalar(value=size) for size in spec.shape))
    return Node(
        name=name,
        op="aten.full.default",
        args=(shape, Scalar(value=value)),
        kwargs=(("dtype", DTypeArg(value=spec.dtype)),),
        out=(spec,),
    )
