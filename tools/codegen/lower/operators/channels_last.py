"""A convolution called in channels-last layout, whose result loops read as it lies.

The plan needs no new word for it: a tensor that was stored with its channels last and moved back by
`permute` is a channels-last tensor, and libraries keep the layout of what they are given. Where one
does not, the plan's `contiguous` puts the result right, at the price of a copy. What is turned is
turned by a loop like any other: it takes in what made the tensor, and strategies are chosen for it.
"""

from __future__ import annotations

from kernelwright.tools.codegen.ir import PlanLine
from kernelwright.tools.codegen.lower.nests import views
from kernelwright.tools.codegen.lower.nests.arguments import Arguments, base
from kernelwright.tools.codegen.lower.nests.context import Context
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.codegen.lower.operators.library import cost, tensor_share, written
from kernelwright.tools.types import Node, Ref, TensorSpec

# What is left of a convolution's own time over images in this layout: torch.compile, which turns
# them, took 0.48 to 0.65 of it in KernelBench's 2/1, 2/4 and 2/17 on an H200 (its whole time less
# its passes, reckoned at 4.3 TB/s). Groups of several channels are slower so, by what PyTorch's
# Inductor reckons with (1.358). Volumes are not known.
_LEFT, _GROUPED, _IMAGES = 0.6, 1.36, 4


def convolved(context: Context, node: Node) -> None:
    """Adds the call; the node's value is a view of a buffer with the channels last."""
    arguments, spec = Arguments(node), node.out[0]
    rank = len(spec.shape)
    last, first = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
    turned = {
        arg.node: _turned(context, arg, last) for arg in (arguments.tensor(0), arguments.tensor(1))
    }
    uses: list[str] = []

    def spell(ref: Ref) -> str:
        if ref.node in turned:
            uses.append(turned[ref.node].buffer)
            return f"{turned[ref.node].text}.permute({views.words(first)})"
        view = _stored(context, context.value(ref))
        uses.append(view.buffer)
        return view.text or view.buffer

    given = ", ".join(written(arg, spell) for arg in node.args)
    shape = tuple(spec.shape[at] for at in last)
    made = context.buffer(node.name, TensorSpec(shape=shape, dtype=spec.dtype))
    text = f"{made.buffer} = aten.{base(node.op)}({given}).permute({views.words(last)})"
    moved, flops = cost(context, uses, node)
    context.values[node.name] = (views.permute(made, first),)
    context.add(line=PlanLine(
        text=text, makes=(made.buffer,), uses=tuple(dict.fromkeys(uses)), operator=node.op,
        cost_bytes=moved, cost_flops=int(flops * _left(arguments, context)),
        tensor_share=tensor_share(context, node),
    ))  # fmt: skip


def _left(arguments: Arguments, context: Context) -> float:
    """The share of its time as written that a convolution takes in this layout."""
    shape = context.value(arguments.tensor(0)).shape
    groups = arguments.integer(8)
    if 1 < groups < shape[1]:
        return _GROUPED
    return _LEFT if len(shape) == _IMAGES else 1.0


def _turned(context: Context, ref: Ref, last: tuple[int, ...]) -> View:
    """A tensor with its channels last, in a buffer of its own where it does not lie so."""
    view = views.permute(context.value(ref), last)
    lies = views.whole(view.buffer, TensorSpec(shape=view.shape, dtype=view.dtype))
    if view.text is not None and (view.dims, view.offset) == (lies.dims, 0):
        return view
    return context.copy(view, named="turned")


def _stored(context: Context, view: View) -> View:
    return view if view.text is not None else context.copy(view)
