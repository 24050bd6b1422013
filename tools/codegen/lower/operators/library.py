"""What no nest covers is left to PyTorch: one call in the plan for each such node."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod

from kernelwright.tools.codegen.ir import PlanLine
from kernelwright.tools.codegen.lower.nests.arguments import Arguments, base
from kernelwright.tools.codegen.lower.nests.context import Context
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.types import Arg, DType, DTypeArg, ListArg, Node, Ref, Scalar

# What the library's convolutions reached of the fp16 tensor rate on an H200, by input channels of a
# group (coverage in benchmarks/results/h200/kernelbench_level2_sample.jsonl; PyTorch lets it use
# TF32): 0.16 over images and 0.12 to 0.13 over volumes from 32 on, 0.03 with 8, and with 3, where
# it used no TF32, 0.002 to 0.015. Half precision is taken to reach twice as much; not measured.
_ON_TENSOR_CORES = {DType.FLOAT32: 0.15, DType.FLOAT16: 0.3, DType.BFLOAT16: 0.3}
_MANY, _FEW, _WITH_FEW = 32, 8, 0.01

# Placement is the plan's business; these arguments are dropped.
_DROPPED = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking"})


def call(context: Context, node: Node) -> None:
    """Adds the library call that makes a node's results."""
    uses: list[str] = []

    def spell(ref: Ref) -> str:
        view = context.value(ref)
        if view.text is None:
            view = context.copy(view)
        uses.append(view.buffer)
        return view.text or view.buffer

    given = [written(arg, spell) for arg in node.args]
    given += [f"{key}={written(arg, spell)}" for key, arg in node.kwargs if key not in _DROPPED]
    made = [context.buffer(node.name, spec) for spec in node.out]
    names = tuple(view.buffer for view in made)
    text = f"{', '.join(names)} = aten.{base(node.op)}({', '.join(given)})"
    context.values[node.name] = tuple(_packed(view) for view in made)
    context.add(line=PlanLine(
        text=text, makes=names, uses=tuple(dict.fromkeys(uses)), operator=node.op,
        cost_bytes=_bytes(context, uses, node), cost_flops=_flops(context, node),
        tensor_share=tensor_share(context, node),
    ))  # fmt: skip


def _packed(view: View) -> View:
    """Whatever layout tracing saw: nests read the result made contiguous."""
    return view


def written(arg: Arg, spell: Callable[[Ref], str]) -> str:
    """An argument as plan source; `spell` writes a tensor."""
    if isinstance(arg, Ref):
        return spell(arg)
    if isinstance(arg, Scalar):
        return _plain(arg.value)
    if isinstance(arg, DTypeArg):
        return f'"{arg.value.value}"'
    items = [written(item, spell) for item in arg.items] if isinstance(arg, ListArg) else []
    return f"[{', '.join(items)}]"


def _plain(value: bool | int | float | str | None) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # inf, -inf and nan are words of the plan
    return f'"{value}"' if isinstance(value, str) else repr(value)


def cost(context: Context, uses: list[str], node: Node) -> tuple[int, int]:
    """Bytes and operations of a call."""
    return _bytes(context, uses, node), _flops(context, node)


def _bytes(context: Context, uses: list[str], node: Node) -> int:
    read = sum(
        prod(context.buffers[name].shape) * context.buffers[name].dtype.itemsize_bytes
        for name in dict.fromkeys(uses)
    )
    return read + sum(spec.size_bytes for spec in node.out)


def _flops(context: Context, node: Node) -> int:
    """Multiply-adds of the contractions, counted as two; one an output element otherwise."""
    shapes = [context.value(arg).shape for arg in node.args if isinstance(arg, Ref)]
    out, name = node.out[0], base(node.op)
    if name in ("mm", "bmm", "linear", "matmul") and shapes:
        return 2 * out.numel * shapes[0][-1]
    if name in ("addmm", "baddbmm") and len(shapes) > 1:
        return 2 * out.numel * shapes[1][-1]
    if name == "convolution" and len(shapes) > 1:
        return _convolution_flops(node, shapes[0], shapes[1])
    if "scaled_dot_product" in name and len(shapes) > 2:
        query, key = shapes[0], shapes[1]
        return 4 * prod(query) * key[-2]
    return sum(spec.numel for spec in node.out)


def tensor_share(context: Context, node: Node) -> float | None:
    """The share of the fp16 tensor rate at which a convolution computes; None for other calls."""
    if base(node.op) != "convolution" or node.out[0].dtype not in _ON_TENSOR_CORES:
        return None
    arguments = Arguments(node)
    channels = context.value(arguments.tensor(0)).shape[1] // arguments.integer(8)
    if channels < _FEW:
        return _WITH_FEW
    return _ON_TENSOR_CORES[node.out[0].dtype] * min(1.0, channels / _MANY)


def _convolution_flops(node: Node, x: tuple[int, ...], weight: tuple[int, ...]) -> int:
    transposed = len(node.args) > 6 and node.args[6] == Scalar(value=True)
    # A transposed convolution uses its weight once for every input element instead.
    positions = prod(x) // x[1] if transposed else node.out[0].numel // node.out[0].shape[1]
    return 2 * positions * prod(weight)
