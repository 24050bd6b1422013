"""What a region must at least compute, and what torch.compile may make of it at best.

Operations are counted from the shapes of a graph's nodes: products, convolutions and attention by
their sums, everything else by one an element. Not covered: `einsum`, `tensordot` and `bilinear`,
which count as if they were elementwise, so that their floor is too low and never too high.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from kernelwright.tools.tasks.regions.partition import CONTRACTIONS, is_view
from kernelwright.tools.types.graph import Arg, Node, Scalar, base, refs

_PRODUCTS = frozenset({"bmm", "linear", "matmul", "mm"})
_ADDED_PRODUCTS = frozenset({"addmm", "baddbmm"})
# Where operators of the attention family take `is_causal`, by PyTorch's own signatures.
_CAUSAL_AT = {
    "scaled_dot_product_attention": 5,
    "_scaled_dot_product_attention_math": 5,
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_flash_attention_for_cpu": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
}


def operations(node: Node, nodes: Mapping[str, Node]) -> int:
    """Operations of one node; none for a view."""
    if is_view(node) or not node.out:
        return 0
    name, numel = base(node.op), node.out[0].numel
    shapes = [nodes[at].out[0].shape for at in refs(node) if nodes[at].out]
    if name in _PRODUCTS and len(shapes) > 1:
        return 2 * numel * shapes[0][-1]
    if name in _ADDED_PRODUCTS and len(shapes) > 2:
        return 2 * numel * shapes[1][-1]
    if name.startswith("conv") and len(shapes) > 1:
        return _convolution(node, shapes[0], shapes[1])
    if "scaled_dot_product" in name and len(shapes) > 2:
        query, key, value = shapes[:3]
        pairs = prod(query[:-1]) * key[-2] // (2 if _is_causal(node) else 1)
        return 2 * pairs * (query[-1] + value[-1])
    return numel


def _convolution(node: Node, x: tuple[int, ...], weight: tuple[int, ...]) -> int:
    """A weight is used at each place of the result, transposed at each one of the input."""
    out = node.out[0]
    transposed = "transpose" in node.op or (
        base(node.op) == "convolution" and len(node.args) > 6 and _is_true(node.args[6])
    )
    if min(len(x), len(out.shape)) < len(weight):  # without a batch
        return out.numel
    positions = prod(x) // x[1] if transposed else out.numel // out.shape[1]
    return 2 * positions * prod(weight)


def _is_causal(node: Node) -> bool:
    given = [value for key, value in node.kwargs if key == "is_causal"]
    if (at := _CAUSAL_AT.get(base(node.op))) is not None:
        given += node.args[at : at + 1]
    return any(map(_is_true, given))


def _is_true(arg: Arg) -> bool:
    return isinstance(arg, Scalar) and arg.value is True


def fused_ms(made: Iterable[Node], times_ms: Mapping[str, float]) -> float:
    """What torch.compile may make of some nodes: the library's calls, and all others in one pass.

    One pass takes no less than the longest of the operators that are fused in it took alone.
    """
    products = others = 0.0
    for node in made:
        took_ms = times_ms.get(node.name, 0.0)
        if base(node.op) in CONTRACTIONS:
            products += took_ms
        else:
            others = max(others, took_ms)
    return products + others
