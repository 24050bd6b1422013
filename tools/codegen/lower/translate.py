"""From the traced graph to nests and library calls, one node at a time; nothing is fused yet.

Every value is a View of some buffer. Operators that no table covers, that draw random numbers
or whose tensors are empty go to the library.
"""

from __future__ import annotations

from kernelwright.tools.codegen.lower.nests.arguments import Arguments, UnlikeError, base
from kernelwright.tools.codegen.lower.nests.context import Context
from kernelwright.tools.codegen.lower.nests.expr import NARROW, computed
from kernelwright.tools.codegen.lower.operators.adaptive import ADAPTIVE
from kernelwright.tools.codegen.lower.operators.channels_last import convolved
from kernelwright.tools.codegen.lower.operators.convolution import (
    Users,
    read_by_loops,
    users_of,
    without_bias,
)
from kernelwright.tools.codegen.lower.operators.depthwise import depthwise
from kernelwright.tools.codegen.lower.operators.indexing import INDEXING, store
from kernelwright.tools.codegen.lower.operators.library import call
from kernelwright.tools.codegen.lower.operators.meaning import PointwiseCall
from kernelwright.tools.codegen.lower.operators.pointwise import POINTWISE, TO_FLOAT
from kernelwright.tools.codegen.lower.operators.products import PRODUCTS
from kernelwright.tools.codegen.lower.operators.reductions import REDUCTIONS
from kernelwright.tools.codegen.lower.operators.resampling import RESAMPLING
from kernelwright.tools.codegen.lower.operators.scans import WIDENED
from kernelwright.tools.codegen.lower.operators.shapes import SHAPES
from kernelwright.tools.codegen.lower.operators.windows import WINDOWS, reads_indices
from kernelwright.tools.types import DType, Graph, Node, Ref, Scalar


def translate(graph: Graph, *, channels_last: bool = False) -> Context:
    """Every node of the graph as steps over virtual buffers."""
    users = users_of(graph)
    kept = {*graph.outputs, *(mutation.node for mutation in graph.mutations)}
    single = frozenset(name for name, nodes in users.items() if len(nodes) == 1) - kept
    context = Context(single=single, channels_last=channels_last)
    for name in graph.inputs:
        _leaf(context, graph.node(name), "input")
    for node in graph.nodes:
        if node.name not in context.values:
            _node(context, node, users)
        if node.out:
            context.specs[node.name] = node.out[0]
    return context


def _node(context: Context, node: Node, users: Users) -> None:
    if node.op in ("weight", "constant", "input"):
        _leaf(context, node, "weight")
    elif base(node.op) == "getitem" or node.op == "getitem":
        at = Arguments(node).integer(1)
        source = context.values[Arguments(node).tensor(0).node]
        context.values[node.name] = (source[at],)
    elif base(node.op) == "convolution":
        _convolution(context, node, users)
    elif reads_indices(node, users):
        call(context, node)
    else:
        _operation(context, node)


def _convolution(context: Context, node: Node, users: Users) -> None:
    """A window of our own where channels do not meet; else the library's, its bias moved on."""
    empty = any(0 in spec.shape for spec in node.out)
    try:
        if empty:
            raise UnlikeError("nothing to convolve")
        depthwise(context, node, Arguments(node))
    except UnlikeError:
        ours = read_by_loops(node, users)
        if ours and without_bias(context, node):
            return
        if ours and context.channels_last:
            convolved(context, node)
        else:
            call(context, node)


def _leaf(context: Context, node: Node, role: str) -> None:
    target = node.target or node.name
    wanted = node.name if role == "input" else target.replace(".", "_")
    view = context.buffer(wanted, node.out[0], role)
    context.values[node.name] = (view,)
    context.leaves.add(node.name)
    if role == "weight":
        context.weights[view.buffer] = target


def _operation(context: Context, node: Node) -> None:
    empty = any(0 in spec.shape for spec in node.out) or _reads_empty(context, node)
    if empty or not _covered(context, node):
        call(context, node)


def _reads_empty(context: Context, node: Node) -> bool:
    refs = [arg for arg in node.args if isinstance(arg, Ref)]
    return any(0 in context.value(ref).shape for ref in refs)


def _covered(context: Context, node: Node) -> bool:
    """Translates the node if a table knows it; False, and nothing changed, if none does."""
    name, arguments = base(node.op), Arguments(node)
    steps = len(context.steps)
    try:
        if name in SHAPES:
            context.values[node.name] = SHAPES[name](context, node, arguments)
        elif name in REDUCTIONS:
            REDUCTIONS[name](context, node, arguments)
        elif name == "copy" and _is_source(context, node, arguments):
            context.values[node.name] = (context.value(arguments.tensor(1)),)
        elif name in WIDENED and WIDENED[name](context, node, arguments):
            pass
        elif name in INDEXING:
            INDEXING[name](context, node, arguments)
        elif name in RESAMPLING:
            RESAMPLING[name](context, node, arguments)
        elif name in ADAPTIVE:
            ADAPTIVE[name](context, node, arguments)
        elif name in WINDOWS:
            WINDOWS[name](context, node, arguments)
        elif name in PRODUCTS:
            PRODUCTS[name](context, node, arguments)
        elif name in POINTWISE:
            _pointwise(context, node, arguments)
        else:
            return False
    except UnlikeError:
        del context.steps[steps:]
        return False
    return True


def _pointwise(context: Context, node: Node, arguments: Arguments) -> None:
    if name_draws(node) or (node.op.endswith("decimals") and arguments.integer(1, "decimals")):
        raise UnlikeError("no pointwise form")
    refs = list(dict.fromkeys(arg.node for arg in _refs(node)))
    views = [context.value(Ref(node=name)) for name in refs]
    shape = node.out[0].shape
    space = context.space(views, shape)
    loaded = {name: context.read(where) for name, where in zip(refs, space.addresses, strict=True)}
    out = computed(node.out[0].dtype)
    work = _work(context, node, out)
    value = POINTWISE[base(node.op)](PointwiseCall(context.ops, arguments, loaded, work, out))
    store(context, node, space, value)
    if node.out[0].dtype in NARROW:
        # Arithmetic here is in int64; wrapping happens in the store, so the store must stay.
        context.exact.add(context.value(Ref(node=node.name)).buffer)


def _is_source(context: Context, node: Node, arguments: Arguments) -> bool:
    """Whether what a `copy` writes is its source as it is."""
    source, spec = context.value(arguments.tensor(1)), node.out[0]
    return source.shape == spec.shape and source.dtype is spec.dtype


def name_draws(node: Node) -> bool:
    """Whether a node's operator has an output argument variant that is not functional."""
    return node.op.endswith((".out", "_"))


def _refs(node: Node) -> list[Ref]:
    given = [*node.args, *(arg for _, arg in node.kwargs)]
    return [arg for arg in given if isinstance(arg, Ref)]


def _work(context: Context, node: Node, out: DType) -> DType:
    """The type that operands are brought to: PyTorch's promotion, in the types computed in."""
    if base(node.op) in TO_FLOAT or (out is not DType.BOOL and out.is_floating):
        return out if out is not DType.BOOL else DType.FLOAT32
    if out is DType.INT64:
        return out
    views = [context.value(ref) for ref in _refs(node)]
    sized = [computed(view.dtype) for view in views if view.dims]
    single = [computed(view.dtype) for view in views if not view.dims]
    plain = [_kind(arg.value) for arg in node.args[:2] if isinstance(arg, Scalar)]
    best = DType.BOOL
    for group in (sized, single, [kind for kind in plain if kind is not None]):
        high = max(group, key=_rank, default=DType.BOOL)
        if _category(high) > _category(best):
            best = high
    return best


_RANKS = (DType.BOOL, DType.INT64, DType.FLOAT32, DType.FLOAT64)


def _rank(dtype: DType) -> int:
    return _RANKS.index(dtype)


def _category(dtype: DType) -> int:
    return min(_rank(dtype), 2)


def _kind(value: object) -> DType | None:
    if isinstance(value, bool):
        return DType.BOOL
    if isinstance(value, int):
        return DType.INT64
    return DType.FLOAT32 if isinstance(value, float) else None
