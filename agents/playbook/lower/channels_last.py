"""A convolution called in channels-last layout, whose result loops read as it lies.

The plan needs no new word for it: a tensor whose channels were moved last, made contiguous and
moved back is a channels-last tensor, and libraries keep the layout of what they are given. Where
one does not, the plan's `contiguous` puts the result right, at the price of a copy.
"""

from __future__ import annotations

from agents.playbook.ir import PlanLine
from agents.playbook.lower import views
from agents.playbook.lower.arguments import Arguments, base
from agents.playbook.lower.context import Context
from agents.playbook.lower.library import cost, written
from agents.playbook.lower.views import View
from tools.nouns import Node, Ref, TensorSpec

# What is left of a convolution's time over images in this layout: of KernelBench's 1/50, 2/1 and
# 2/4 torch.compile, which turns them, took 0.63 to 0.79 of what the library took as written (H200).
_LEFT, _IMAGES = 0.75, 4


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
            uses.append(turned[ref.node])
            return f"{turned[ref.node]}.permute({views.words(first)})"
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
        cost_bytes=moved, cost_flops=int(flops * (_LEFT if rank == _IMAGES else 1.0)),
    ))  # fmt: skip


def _turned(context: Context, ref: Ref, last: tuple[int, ...]) -> str:
    """Adds the copy of a tensor with its channels last, a pass of its own; the copy's buffer."""
    view = _stored(context, context.value(ref))
    shape = tuple(view.shape[at] for at in last)
    spec = TensorSpec(shape=shape, dtype=context.buffers[view.buffer].dtype)
    made = context.buffer(f"{ref.node}_turned", spec)
    context.add(line=PlanLine(
        text=f"{made.buffer} = {view.text}.permute({views.words(last)}).contiguous()",
        makes=(made.buffer,), uses=(view.buffer,), operator="contiguous",
        cost_bytes=2 * spec.size_bytes,
    ))  # fmt: skip
    return made.buffer


def _stored(context: Context, view: View) -> View:
    return view if view.text is not None else context.copy(view)
