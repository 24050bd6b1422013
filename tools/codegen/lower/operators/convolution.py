"""A convolution's bias moves into the loop that follows, where it costs nothing.

On a GPU the library adds it in a pass of its own over the whole output. Where nothing of ours
follows, the call keeps its bias.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelwright.tools.codegen.lower.nests import views
from kernelwright.tools.codegen.lower.nests.arguments import Arguments, base
from kernelwright.tools.codegen.lower.nests.context import Context
from kernelwright.tools.codegen.lower.operators.adaptive import ADAPTIVE
from kernelwright.tools.codegen.lower.operators.channels_last import convolved
from kernelwright.tools.codegen.lower.operators.indexing import store
from kernelwright.tools.codegen.lower.operators.library import call
from kernelwright.tools.codegen.lower.operators.pointwise import POINTWISE
from kernelwright.tools.codegen.lower.operators.reductions import REDUCTIONS
from kernelwright.tools.codegen.lower.operators.resampling import RESAMPLING
from kernelwright.tools.codegen.lower.operators.shapes import SHAPES
from kernelwright.tools.codegen.lower.operators.windows import WINDOWS, reads_indices
from kernelwright.tools.types import Arg, Graph, ListArg, Node, Ref, Scalar

Users = Mapping[str, tuple[Node, ...]]


def users_of(graph: Graph) -> dict[str, tuple[Node, ...]]:
    """The nodes that read each node."""
    users: dict[str, tuple[Node, ...]] = {}
    for node in graph.nodes:
        for name in {name for arg in node.args for name in _names(arg)}:
            users[name] = (*users.get(name, ()), node)
    return users


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
    return any(name in table for table in (POINTWISE, REDUCTIONS, WINDOWS, ADAPTIVE, RESAMPLING))


def without_bias(context: Context, node: Node) -> bool:
    """Translates a convolution as a call without bias and an addition; False if it has none."""
    bias = Arguments(node).ref(2)
    if bias is None:
        return False
    args = (*node.args[:2], Scalar(value=None), *node.args[3:])
    bare = node.model_copy(update={"name": f"{node.name}_bare", "args": args})
    if context.channels_last:
        convolved(context, bare)
    else:
        call(context, bare)
    x, added = context.value(Ref(node=bare.name)), context.value(bias)
    for _ in x.dims[2:]:
        added = views.unsqueeze(added, len(added.dims))
    space = context.space([x, added], x.shape)
    first, second = (context.read(where) for where in space.addresses)
    store(context, node, space, context.ops("add", first, second))
    return True
