"""What no nest covers is left to PyTorch: one call in the plan for each such node."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod

from kernelwright.tools.codegen.ir import PlanLine
from kernelwright.tools.codegen.ir.library_attention import AttentionSizes
from kernelwright.tools.codegen.ir.recurrence import GATES
from kernelwright.tools.codegen.ir.roofline import HALF_PRODUCTS
from kernelwright.tools.codegen.lower.nests import views
from kernelwright.tools.codegen.lower.nests.context import (
    Arguments,
    Context,
    base,
)
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.types import (
    Arg,
    DType,
    DTypeArg,
    ListArg,
    Node,
    Ref,
    Scalar,
    TensorSpec,
)

# What the library's convolutions reached of the fp16 tensor rate on an H200, by input channels of a
# group (coverage in benchmarks/results/h200/kernelbench_level2_sample.jsonl; PyTorch lets it use
# TF32): 0.16 over images and 0.12 to 0.13 over volumes from 32 on, 0.03 with 8, and with 3, where
# it used no TF32, 0.002 to 0.015. Half precision is taken to reach twice as much; not measured.
_ON_TENSOR_CORES = {DType.FLOAT32: 0.15, DType.FLOAT16: 0.3, DType.BFLOAT16: 0.3}
_MANY, _FEW, _WITH_FEW = 32, 8, 0.01
# Windows in which no channel meets another, with channels last: 10.9 TFLOP/s of 989 over the 18 of
# a ConvNeXt (7 x 7, bf16; 1,234 us on an H200).
_DEPTHWISE = 0.011
# Single positions in groups of several channels, float32: 44.3 GFLOP of a ShuffleNet's in 3.06 ms
# on an H200 (model_kernels_networks.jsonl), as no TF32 is used for them.
_GROUPED = 0.0146

# What is left of a convolution's own time over images once they are turned: torch.compile, which
# turns them, took 0.48 to 0.65 of it in KernelBench's 2/1, 2/4 and 2/17 on an H200 (its whole time
# less its passes, reckoned at 4.3 TB/s).
LEFT_TURNED, _IMAGES = 0.6, 4

_ATTENTION = "scaled_dot_product_attention"
# Dimensions of a result that has heads: they, rows and their width, behind at least one of batches.
_WITH_HEADS = 4

# Placement is the plan's business; these arguments are dropped.
PLACEMENT = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking"})


def call(context: Context, node: Node) -> None:
    """Adds the library call that makes a node's results."""
    uses: list[str] = []

    def spell(ref: Ref) -> str:
        view = context.value(ref)
        if view.text is None:
            view = context.copy(view)
        uses.append(view.buffer)
        return view.text or view.buffer

    def spell_whole(ref: Ref) -> str:
        view = context.value(ref)
        return spell(ref) if view.text == view.buffer else _copied(context, view, uses)

    given = [
        written(arg, spell_whole if _are_weights(node, at) else spell)
        for at, arg in enumerate(node.args)
    ]
    given += [f"{key}={written(arg, spell)}" for key, arg in node.kwargs if key not in PLACEMENT]
    made = [context.buffer(node.name, spec) for spec in node.out]
    names = tuple(view.buffer for view in made)
    text = f"{', '.join(names)} = aten.{base(node.op)}({', '.join(given)})"
    context.values[node.name] = tuple(_packed(view) for view in made)
    turned, launches = _turned(context, uses, node)
    flops = _flops(context, node)
    context.add(line=PlanLine(
        text=text, makes=names, uses=tuple(dict.fromkeys(uses)), operator=node.op,
        cost_bytes=_bytes(context, uses, node),
        cost_flops=int(flops * LEFT_TURNED) if launches else flops,
        tensor_share=tensor_share(context, node), attention=_attention_sizes(context, node),
        dependent_steps=_dependent_steps(node), turned_bytes=turned, turned_launches=launches,
    ))  # fmt: skip
    if base(node.op) == _ATTENTION and len(node.out[0].shape) >= _WITH_HEADS:
        context.values[node.name] = (_heads_turned(context, node, made[0]),)


def _heads_turned(context: Context, node: Node, made: View) -> View:
    """Attention's result as it lies in memory: the heads of a row together.

    So libraries store it, and kernels of ours, as a module reads it: the product behind it takes
    all heads of a row. Read as if heads lay apart it would be copied for every loop.
    """
    rank = len(made.shape)
    order = (*range(rank - 3), rank - 2, rank - 3, rank - 1)
    spec = TensorSpec(shape=tuple(made.shape[at] for at in order), dtype=made.dtype)
    turned = context.buffer(f"{node.name}_rows", spec)
    text = f"{turned.buffer} = {made.buffer}.permute({views.words(order)})"
    context.add(
        line=PlanLine(text=text, makes=(turned.buffer,), uses=(made.buffer,), operator="view")
    )
    return views.permute(turned, order)


def _are_weights(node: Node, at: int) -> bool:
    """Whether an argument lists a recurrent layer's weights, which are buffers of their own."""
    return at == 2 and base(node.op) in GATES and node.op.endswith(".input")


def _copied(context: Context, view: View, uses: list[str]) -> str:
    made = context.copy(view)
    uses.append(made.buffer)
    return made.buffer


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


def _turned(context: Context, uses: list[str], node: Node) -> tuple[int, int]:
    """Bytes that a convolution's call turns, and in how many kernels; zeros where it turns none.

    Over images with windows of several positions it turns the input and the weight, then its
    result. Single positions are products of matrices, and few channels, groups and volumes have
    kernels for the layout as it is (or were not seen to turn it).
    """
    share = tensor_share(context, node)
    if base(node.op) != "convolution" or share in (None, _WITH_FEW, _DEPTHWISE):
        return 0, 0
    arguments = Arguments(node)
    weight = context.value(arguments.tensor(1)).shape
    steps = arguments.integers(3) or ()
    is_single = prod(weight[2:]) == 1 and not any(step > 1 for step in steps)
    if len(weight) != _IMAGES or is_single or arguments.integer(8) > 1 or arguments.flag(6):
        return 0, 0
    return _bytes(context, uses, node), 3


def _flops(context: Context, node: Node) -> int:
    """Multiply-adds of the contractions, counted as two; one an output element otherwise."""
    shapes = [context.value(arg).shape for arg in node.args if isinstance(arg, Ref)]
    out, name = node.out[0], base(node.op)
    if name in ("mm", "bmm", "linear", "matmul") and shapes:
        return 2 * out.numel * shapes[0][-1]
    if name in ("addmm", "baddbmm") and len(shapes) > 1:
        return 2 * out.numel * shapes[1][-1]
    if name == "addbmm" and len(shapes) > 1:
        return 2 * out.numel * shapes[1][0] * shapes[1][2]
    if name == "convolution" and len(shapes) > 1:
        return _convolution_flops(node, shapes[0], shapes[1])
    if name in GATES:
        return _recurrent_flops(context, node)
    if "scaled_dot_product" in name and len(shapes) > 2:
        query, key, value = shapes[:3]
        pairs = prod(query[:-1]) * key[-2] // (2 if _is_causal(node) else 1)
        return 2 * pairs * (query[-1] + value[-1])
    return sum(spec.numel for spec in node.out)


def _recurrent_flops(context: Context, node: Node) -> int:
    """Every weight of a recurrent layer is applied to every token."""
    params = [ref for ref in Arguments(node).tensors(2) if ref is not None]
    weights = sum(prod(context.value(ref).shape) for ref in params)
    return 2 * prod(node.out[0].shape[:-1]) * weights


def _dependent_steps(node: Node) -> int:
    """Steps of all layers of a recurrence; both directions go at the same time."""
    if base(node.op) not in GATES or not node.op.endswith(".input"):
        return 0
    arguments = Arguments(node)
    steps = node.out[0].shape[1 if arguments.flag(8) else 0]
    return steps * arguments.integer(4)


def _is_causal(node: Node) -> bool:
    return base(node.op) == _ATTENTION and Arguments(node).flag(5, "is_causal")


def _attention_sizes(context: Context, node: Node) -> AttentionSizes | None:
    """What a call of attention asks for; None for any other."""
    if base(node.op) != _ATTENTION:
        return None
    arguments = Arguments(node)
    query, key, value = (context.value(arguments.tensor(at)) for at in range(3))
    given = arguments.ref(3, "attn_mask")
    mask = context.value(given) if given is not None else None
    return AttentionSizes(
        dtype=query.dtype,
        heads=prod(query.shape[:-2]),
        queries=query.shape[-2],
        keys=key.shape[-2],
        width=query.shape[-1],
        value_width=value.shape[-1],
        is_causal=_is_causal(node),
        mask="" if mask is None else "rows" if prod(mask.shape[-2:-1]) > 1 else "row",
        flags=prod(mask.shape) if mask is not None and mask.dtype is DType.BOOL else 0,
    )


def tensor_share(context: Context, node: Node) -> float | None:
    """The share of the fp16 tensor rate at which a call computes; None at the plain rate."""
    if base(node.op) in ("mm", "addmm", "bmm", "addbmm"):
        return HALF_PRODUCTS if node.out[0].dtype in (DType.FLOAT16, DType.BFLOAT16) else None
    if base(node.op) != "convolution" or node.out[0].dtype not in _ON_TENSOR_CORES:
        return None
    arguments = Arguments(node)
    groups = arguments.integer(8)
    channels = context.value(arguments.tensor(0)).shape[1] // groups
    if channels == 1 < groups and context.lowering.channels_last:
        return _DEPTHWISE
    is_single = prod(context.value(arguments.tensor(1)).shape[2:]) == 1
    if channels > 1 < groups and is_single and node.out[0].dtype is DType.FLOAT32:
        return _GROUPED
    if channels < _FEW:
        return _WITH_FEW
    if node.out[0].dtype is DType.FLOAT32 and not context.is_tf32:
        return None
    return _ON_TENSOR_CORES[node.out[0].dtype] * min(1.0, channels / _MANY)


def _convolution_flops(node: Node, x: tuple[int, ...], weight: tuple[int, ...]) -> int:
    transposed = len(node.args) > 6 and node.args[6] == Scalar(value=True)
    # A transposed convolution uses its weight once for every input element instead.
    positions = prod(x) // x[1] if transposed else node.out[0].numel // node.out[0].shape[1]
    return 2 * positions * prod(weight)
