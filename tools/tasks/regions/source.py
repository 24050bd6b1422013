"""Writes a region as a module file of its own, so that it is a task like any other.

The file holds PyTorch's own operators on tensors of the shapes, types and layouts that the region
has in the model, with values drawn like those of the real run: same mean and spread, inside the
same sign. Weights that are all equal in the model, as new norms' are, vary a little, so that the
judge can see whether a candidate reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernelwright.tools.types.graph import (
    MAKERS,
    Arg,
    DType,
    DTypeArg,
    ListArg,
    Node,
    Ref,
    Scalar,
    TensorSpec,
    base,
    reads,
)
from kernelwright.tools.types.outline import NodeSeen, Outline, Region

# Without a tensor to take the device from, these would make their result on the host.
_CREATORS = MAKERS | {"empty"}
_LEAST_DEVIATION = 0.05

_HEAD = '''"""{title}"""

import torch
from torch import nn

aten = torch.ops.aten


def drawn(shape, dtype, mean, deviation, low):
    values = torch.randn(shape) * deviation + mean
    return (values if low is None else values.abs() + low).to(dtype)


def laid_out(values, strides):
    return torch.empty_strided(values.shape, strides, dtype=values.dtype).copy_(values)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
'''


def region_source(outline: Outline, region: Region, title: str) -> str:
    """The text of a file with `Model` and `get_inputs`.

    Its forward takes the region's inputs in their order and returns its outputs, a tuple where
    there are several. Weight `i` of the region is the parameter or buffer `w{i}`.
    """
    nodes = {node.name: node for node in outline.graph.nodes}
    names = {at: f"x{number}" for number, at in enumerate(region.inputs)}
    names |= {at: f"self.w{number}" for number, at in enumerate(region.weights)}
    lines = [_HEAD.format(title=title.replace('"', "'")).rstrip("\n")]
    for number, at in enumerate(region.weights):
        lines.append(f"        {_weight(number, nodes[at], outline.of(at))}")
    parameters = "".join(f", x{number}" for number in range(len(region.inputs)))
    lines += ["", f"    def forward(self{parameters}):"]
    dead = _last_reads(region, nodes)
    for number, name in enumerate(region.nodes):
        names[name] = f"v{number}"
        lines.append(f"        v{number} = {_call(nodes[name], nodes, names)}")
        if dead[name]:
            lines.append(f"        del {', '.join(names[at] for at in dead[name])}")
    lines.append(f"        return {', '.join(names[name] for name in region.outputs)}")
    drawn = [f"        {_input(nodes[at], outline.of(at))}," for at in region.inputs]
    lines += ["", "", "def get_inputs():", "    return [", *drawn, "    ]"]
    return "\n".join(lines) + "\n"


def _last_reads(region: Region, nodes: dict[str, Node]) -> dict[str, list[str]]:
    """What nothing reads any more behind each node: kept alive, it would be memory.

    The names of a large model's backward would hold every value of it, which the reference's do
    not: in float64 more than a GPU has.
    """
    last: dict[str, str] = {}
    for name in region.nodes:
        last |= dict.fromkeys((name, *reads(nodes[name])), name)
    dead: dict[str, list[str]] = {name: [] for name in region.nodes}
    for name in region.nodes:
        if name not in region.outputs:
            dead[last[name]].append(name)
    return dead


def _weight(number: int, node: Node, seen: NodeSeen) -> str:
    values = _values(node.out[0], seen)
    if node.op == "weight" and node.out[0].dtype.is_floating:
        return f"self.w{number} = nn.Parameter({values}, requires_grad=False)"
    return f'self.register_buffer("w{number}", {values})'


def _input(node: Node, seen: NodeSeen) -> str:
    spec = node.out[0]
    values = _values(spec, seen)
    return f"laid_out({values}, {spec.strides})" if keeps_layout(spec) else values


def keeps_layout(spec: TensorSpec) -> bool:
    """Whether a region is given such a tensor as it lies: turned, without gaps and overlaps.

    Any other is given contiguous.
    """
    if spec.strides is None:
        return False
    laid = zip(spec.strides, spec.shape, strict=True)
    expected = 1
    for stride, size in sorted(pair for pair in laid if pair[1] > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _values(spec: TensorSpec, seen: NodeSeen) -> str:
    """An expression for fresh values like those seen."""
    shape = f"({', '.join(map(str, spec.shape))}{',' if len(spec.shape) == 1 else ''})"
    if not spec.dtype.is_floating:
        low, high = int(seen.minimum or 0), int(seen.maximum or 0)
        made = f"torch.randint({low}, {max(high, low) + 1}, {shape})"
        if spec.dtype is DType.BOOL:
            made = f"torch.randint(0, 2, {shape})"
        return f"{made}.to(torch.{spec.dtype.value})"
    mean = seen.mean if seen.mean is not None else 0.0
    deviation = _wide_enough(seen.deviation or 0.0, mean) if math.isfinite(mean) else 1.0
    low_end: float | None = None
    if seen.minimum is not None and seen.minimum >= 0 and mean > 0:
        # All of one sign: variances, probabilities. The half of a normal has this mean.
        deviation = _wide_enough((mean - seen.minimum) * 1.25, mean)
        low_end, mean = seen.minimum, 0.0
    return (
        f"drawn({shape}, torch.{spec.dtype.value}, {mean:.6g}, {deviation:.6g}, "
        f"{low_end if low_end is None else format(low_end, '.6g')})"
    )


def _wide_enough(deviation: float, mean: float) -> float:
    """The deviation, or more where values hardly differ.

    A thousand probabilities that are drawn wider than they are sum up to 40, and a backward through
    twelve such layers to no number at all.
    """
    return max(deviation, _LEAST_DEVIATION * (abs(mean) if deviation else max(1.0, abs(mean))))


def _call(node: Node, nodes: dict[str, Node], names: dict[str, str]) -> str:
    types = _own_types(node, nodes, names)
    device = ["device=x0.device"] if "x0" in names.values() else []
    if node.op == "constant":
        from kernelwright.tools.tasks.graph.convert import decoded

        spec = node.out[0]
        given = [_literal(decoded(node).tolist()), f"dtype=torch.{spec.dtype.value}", *device]
        return f"torch.tensor({', '.join(given)})"
    given = [_text(arg, names, types) for arg in node.args]
    if node.op == "getitem":
        return f"{given[0]}[{given[1]}]"
    given += [f"{key}={_keyword(key, arg, names, types)}" for key, arg in node.kwargs]
    if base(node.op) in _CREATORS:
        given += device
    return f"{node.op}({', '.join(given)})"


def _literal(value: object) -> str:
    """Numbers in nested lists, as Python spells them."""
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    is_odd = isinstance(value, float) and not math.isfinite(value)
    return f'float("{value}")' if is_odd else repr(value)


Types = Mapping[DType, str]


def _own_types(node: Node, nodes: dict[str, Node], names: dict[str, str]) -> Types:
    """A floating type that an operator is told and reads is told as that of what it reads.

    What the judge holds a candidate against is a copy in float64, in which a softmax's backward
    with "float32" is refused on a GPU, and a sum would be rounded.
    """
    read = [nodes[arg.node] for arg in node.args if isinstance(arg, Ref)]
    kinds = [(one.out[0].dtype, f"{names[one.name]}.dtype") for one in reversed(read) if one.out]
    return {dtype: text for dtype, text in kinds if dtype.is_floating}


def _keyword(key: str, arg: Arg, names: dict[str, str], types: Types) -> str:
    if key == "memory_format" and isinstance(arg, Scalar) and arg.value:
        return f"torch.{arg.value}"
    return _text(arg, names, types)


def _text(arg: Arg, names: dict[str, str], types: Types) -> str:
    if isinstance(arg, Ref):
        return names[arg.node]
    if isinstance(arg, DTypeArg):
        return types.get(arg.value, f"torch.{arg.value.value}")
    if isinstance(arg, ListArg):
        return f"[{', '.join(_text(item, names, types) for item in arg.items)}]"
    return _literal(arg.value)
