"""Convolutions: a loop of ours where there is one, else the library's call, in either layout.

A convolution's bias moves into the loop that follows, where it costs nothing: on a GPU the library
adds it in a pass of its own over the whole output. Where nothing of ours follows, the call keeps
its bias.

A convolution may be called in channels-last layout, whose result loops read as it lies. The plan
needs no new word for it: a tensor that was stored with its channels last and moved back by
`permute` is a channels-last tensor, and libraries keep the layout of what they are given. Where one
does not, the plan's `contiguous` puts the result right, at the price of a copy. What is turned is
turned by a loop like any other: it takes in what made the tensor, and strategies are chosen for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from kernelwright.tools.codegen.ir import PlanLine
from kernelwright.tools.codegen.lower.nests import views
from kernelwright.tools.codegen.lower.nests.context import (
    Arguments,
    Context,
    UnlikeError,
    base,
)
from kernelwright.tools.codegen.lower.nests.views import View, channels_first, channels_last
from kernelwright.tools.codegen.lower.operators.convolutions import (
    convolution,
    is_of_channels,
    product_of_channels,
)
from kernelwright.tools.codegen.lower.operators.indexing import store
from kernelwright.tools.codegen.lower.operators.library import (
    LEFT_TURNED,
    call,
    cost,
    tensor_share,
    written,
)
from kernelwright.tools.codegen.lower.operators.pointwise import POINTWISE
from kernelwright.tools.codegen.lower.operators.reductions import REDUCTIONS
from kernelwright.tools.codegen.lower.operators.resampling import RESAMPLING
from kernelwright.tools.codegen.lower.operators.shapes import SHAPES
from kernelwright.tools.codegen.lower.operators.sliding import depthwise, is_depthwise, is_summed
from kernelwright.tools.codegen.lower.operators.windows import ADAPTIVE, WINDOWS, reads_indices
from kernelwright.tools.types import (
    Arg,
    Graph,
    ListArg,
    Node,
    Ref,
    Scalar,
    TensorSpec,
)
from kernelwright.tools.types.graph import refs

# Groups of several channels are slower in this layout, by what PyTorch's Inductor reckons with
# (1.358). Volumes are not known.
_GROUPED, _IMAGES = 1.36, 4


def convolved(context: Context, node: Node, users: Users) -> None:
    """Adds the call; the node's value is a view of a buffer with the channels last.

    What it convolves is that from here on too, where all that read it can: a residual that another
    loop adds is stored once then, and read as what it is added to lies.
    """
    arguments, spec = Arguments(node), node.out[0]
    last, first = channels_last(len(spec.shape)), channels_first(len(spec.shape))
    turned = {
        arguments.tensor(0).node: _turned_input(context, arguments.tensor(0), users),
        arguments.tensor(1).node: _turned(context, arguments.tensor(1), last),
    }
    uses: list[str] = []

    def spell(ref: Ref) -> str:
        if ref.node in turned:
            uses.append(turned[ref.node].buffer)
            return f"{turned[ref.node].text}.permute({views.words(first)})"
        view = context.in_plan(context.value(ref))
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


def convolve(context: Context, node: Node, users: Users) -> None:
    """A loop of our own where there is one; else the library's call, its bias moved on."""
    if any(0 in spec.shape for spec in node.out):
        call(context, node)
        return
    if not context.lowering.calls_windows and _made(
        context, node, partial(_weighted_windows, users=users)
    ):
        return
    if _made(context, node, convolution):
        return
    if is_of_channels(context, node, Arguments(node)):
        _product_of_channels(context, node, users)
        return
    takes = _takes_any if context.lowering.channels_last else _in_loop
    readers = users.get(node.name, ())
    read = bool(readers) and all(takes(reader, users) for reader in readers)
    if read and without_bias(context, node, users):
        return
    if read and context.lowering.channels_last:
        convolved(context, node, users)
    else:
        call(context, node)


def _made(context: Context, node: Node, ours: Callable[[Context, Node, Arguments], None]) -> bool:
    """Whether a loop of our own makes what a node makes; where not, nothing changed."""
    steps = len(context.steps)
    try:
        ours(context, node, Arguments(node))
    except UnlikeError:
        del context.steps[steps:]
        return False
    return True


def _turned_input(context: Context, ref: Ref, users: Users, *, is_stored: bool = False) -> View:
    """What a window slides over, with its channels last; so it lies for all, where all can.

    Neighbours read it again and again, and what made it lies otherwise more often than not: where a
    loop of ours does, it is stored.
    """
    rank = len(context.value(ref).shape)
    turned = _turned(context, ref, channels_last(rank))
    stays = ref.node in context.leaves or ref.node in context.kept
    if not stays and all(_takes_any(item, users) for item in users[ref.node]):
        context.values[ref.node] = (views.permute(turned, channels_first(rank)),)
    if is_stored and turned.buffer not in context.weights:
        context.stored.add(turned.buffer)
    return turned


def _product_of_channels(context: Context, node: Node, users: Users) -> None:
    """A convolution of single positions as a product."""
    read = Arguments(node).tensor(0)
    product_of_channels(context, node, _turned_input(context, read, users, is_stored=True))


def _weighted_windows(context: Context, node: Node, arguments: Arguments, *, users: Users) -> None:
    """A convolution in which no channel meets another as a loop of ours.

    Raises:
        UnlikeError: As `depthwise` says.
    """
    x, weight = (context.value(arguments.tensor(at)).shape for at in (0, 1))
    summed = context.lowering.sums_windows and is_summed(weight[2:])
    if not (context.lowering.channels_last and summed and is_depthwise(arguments, x, weight)):
        depthwise(context, node, arguments)
        return
    turned = _turned_input(context, arguments.tensor(0), users, is_stored=True)
    depthwise(context, node, arguments, views.permute(turned, channels_first(len(turned.shape))))


def _takes_any(node: Node, users: Users) -> bool:
    """Whether what a node reads may lie in any order, as for loops and what is turned for them."""
    convolves = base(node.op) == "convolution"
    return read_by_loops(node, users) if convolves else _in_loop(node, users)


def _left(arguments: Arguments, context: Context) -> float:
    """The share of its time as written that a convolution takes in this layout."""
    shape = context.value(arguments.tensor(0)).shape
    groups = arguments.integer(8)
    if 1 < groups < shape[1]:
        return _GROUPED
    if 1 < groups == shape[1]:
        return 1.0  # measured in this layout
    return LEFT_TURNED if len(shape) == _IMAGES else 1.0


def _turned(context: Context, ref: Ref, last: tuple[int, ...]) -> View:
    """A tensor with its channels last, in a buffer of its own where it does not lie so."""
    view = views.permute(context.value(ref), last)
    lies = views.whole(view.buffer, TensorSpec(shape=view.shape, dtype=view.dtype))
    if view.text is not None and (view.dims, view.offset) == (lies.dims, 0):
        return view
    if view not in context.turned:
        context.turned[view] = context.copy(view, named="turned")
    return context.turned[view]


Users = Mapping[str, tuple[Node, ...]]


def users_of(graph: Graph) -> dict[str, tuple[Node, ...]]:
    """The nodes that read each node."""
    users: dict[str, tuple[Node, ...]] = {}
    for node in graph.nodes:
        for name in {name for arg in node.args for name in _names(arg)}:
            users[name] = (*users.get(name, ()), node)
    return users


def with_viewed(graph: Graph, names: frozenset[str]) -> frozenset[str]:
    """The named nodes, and those that they are views of."""
    found = set(names)
    for node in reversed(graph.nodes):
        if node.name in found and base(node.op) in SHAPES:
            found |= set(refs(node))
    return frozenset(found)


def _names(arg: Arg) -> list[str]:
    if isinstance(arg, ListArg):
        return [name for item in arg.items for name in _names(item)]
    return [arg.node] if isinstance(arg, Ref) else []


def read_by_loops(node: Node, users: Users) -> bool:
    """Whether every reader of a node becomes part of a loop, views between them allowed."""
    readers = users.get(node.name, ())
    return bool(readers) and all(_in_loop(reader, users) for reader in readers)


def _in_loop(node: Node, users: Users) -> bool:
    name = base(node.op)
    if name in SHAPES:
        return read_by_loops(node, users)
    if reads_indices(node, users):
        return False
    tables = POINTWISE, REDUCTIONS, WINDOWS, ADAPTIVE, RESAMPLING
    return name == "cat" or any(name in table for table in tables)


def without_bias(context: Context, node: Node, users: Users) -> bool:
    """Translates a convolution as a call without bias and an addition; False if it has none."""
    bias = Arguments(node).ref(2)
    if bias is None:
        return False
    args = (*node.args[:2], Scalar(value=None), *node.args[3:])
    bare = node.model_copy(update={"name": f"{node.name}_bare", "args": args})
    if context.lowering.channels_last:
        convolved(context, bare, users)
    else:
        call(context, bare)
    x, added = context.value(Ref(node=bare.name)), context.value(bias)
    for _ in x.dims[2:]:
        added = views.unsqueeze(added, len(added.dims))
    space = context.space([x, added], x.shape)
    first, second = (context.read(where) for where in space.addresses)
    store(context, node, space, context.ops("add", first, second))
    return True
