"""Masks of attention that are the same in every call: causal ones said as such, idle ones left out.

A model often makes its mask of positions alone, by comparing, counting and gathering numbers of
`arange`. What is made of no input and no weight is known before the first call, so it is computed
here, once, with PyTorch's own operators on the CPU. A mask that keeps exactly the columns up to the
row's own number is the call's `is_causal`, for which libraries have kernels that never look at what
lies above the diagonal; one that keeps everything is none.

Exact: the same scores are kept, and no other. Of masks that are added, zero keeps a score, and what
is below half of the type's most negative number leaves nothing of it beside one that is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from kernelwright.tools.codegen.algebra.sketch import Sketch, leaf
from kernelwright.tools.codegen.ir.scores import ATTENTION_CALL
from kernelwright.tools.codegen.lower.nests.context import Arguments
from kernelwright.tools.types import Arg, DTypeArg, Graph, ListArg, Node, Ref, Scalar
from kernelwright.tools.types.graph import draws, refs

if TYPE_CHECKING:
    import torch

Kept = Literal["columns up to the row", "all"]

_MASK, _CAUSAL = 3, 5
# What is computed here for it has no more nodes, and takes no more memory in all.
_MOST_NODES, _MOST_BYTES = 256, 1 << 30
# Where a tensor is made; here that is the CPU.
_PLACED = frozenset({"device", "layout", "pin_memory"})


def known_mask(graph: Graph, node: Node) -> Graph | None:
    """The graph with that node's mask, where it is known, left to `is_causal` or left out.

    Every other call with the same mask is changed too.
    """
    mask = _mask_of(node)
    if mask is None:
        return None
    sketch, (query, key) = Sketch(graph), node.args[:2]
    kept = _kept(sketch, mask, (sketch.shape(query)[-2], sketch.shape(key)[-2]))
    if kept is None:
        return None
    for other in graph.nodes:
        if _mask_of(other) == mask:
            graph = _without_mask(graph, other, is_causal=kept != "all")
    return graph


def _mask_of(node: Node) -> Ref | None:
    """The mask of an attention call; None where it has none, or is causal besides."""
    if node.op != ATTENTION_CALL:
        return None
    arguments = Arguments(node)
    return None if arguments.flag(_CAUSAL, "is_causal") else arguments.ref(_MASK, "attn_mask")


def _without_mask(graph: Graph, node: Node, *, is_causal: bool) -> Graph:
    sketch = Sketch(graph)
    dropout = node.args[4] if len(node.args) > 4 else Scalar(value=0.0)
    args = (*node.args[:_MASK], Scalar(value=None), dropout, Scalar(value=is_causal))
    named = [(key, arg) for key, arg in node.kwargs if key not in ("attn_mask", "is_causal")]
    return sketch.finished(node.name, sketch.like(node, args, named))


def _kept(sketch: Sketch, mask: Ref, sides: tuple[int, int]) -> Kept | None:
    """What a mask of queries by keys keeps in every call; None where it is not known, or neither.

    One that is broadcast over queries has no triangle.
    """
    nodes = _made_of(sketch, mask.node)
    if nodes is None:
        return None
    value = _computed(nodes)
    keeps = None if value is None else _truth(value)
    if keeps is None:
        return None
    if bool(keeps.all()):
        return "all"
    is_triangle = keeps.shape[-2:] == sides and bool((keeps == keeps.new_ones(sides).tril()).all())
    return "columns up to the row" if is_triangle else None


def _made_of(sketch: Sketch, name: str) -> list[Node] | None:
    """What a node is made of, itself last; None where an input, a weight or chance is among it."""
    found: dict[str, Node] = {}
    pending = [name]
    while pending:
        node = sketch.node(pending[-1])
        if leaf(node) or draws(node.op) or len(found) > _MOST_NODES:
            return None
        missing = [each for each in refs(node) if each not in found]
        if not missing:
            found[pending.pop()] = node
        pending += missing
    held_bytes = sum(spec.size_bytes for node in found.values() for spec in node.out)
    return list(found.values()) if held_bytes <= _MOST_BYTES else None


def _computed(nodes: list[Node]) -> torch.Tensor | None:
    """The last one's value; None where PyTorch's operators do not make a tensor of it here."""
    import torch  # takes seconds, which few tasks have to wait for

    values: dict[str, object] = {}
    with torch.no_grad():
        for node in nodes:
            packet, _, overload = node.op.removeprefix("aten.").partition(".")
            operator = getattr(getattr(torch.ops.aten, packet, None), overload, None)
            if operator is None:
                return None
            args = [_given(arg, values) for arg in node.args]
            named = {key: _given(arg, values) for key, arg in node.kwargs if key not in _PLACED}
            try:
                values[node.name] = operator(*args, **named)
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
                return None
    last = values[nodes[-1].name]
    return last if isinstance(last, torch.Tensor) else None


def _given(arg: Arg, values: Mapping[str, object]) -> object:
    """An argument as PyTorch takes it."""
    import torch

    if isinstance(arg, Ref):
        return values[arg.node]
    if isinstance(arg, DTypeArg):
        return getattr(torch, arg.value.value)
    return [_given(item, values) for item in arg.items] if isinstance(arg, ListArg) else arg.value


def _truth(value: torch.Tensor) -> torch.Tensor | None:
    """Where a mask keeps a score; None where it adds anything else."""
    import torch

    if value.dtype is torch.bool:
        return value
    if not value.dtype.is_floating_point:
        return None
    keeps, removes = value == 0, value < torch.finfo(value.dtype).min / 2
    return keeps if bool((keeps | removes).all()) else None
