"""The whole way from Graph to Program, and the choice of what to store.

`translate` goes from the traced graph to nests and library calls, one node at a time, and fuses
nothing. Every value is a View of some buffer. Operators that no table covers, that draw random
numbers or whose tensors are empty go to the library.

In `lower`, what is computed again instead of stored is decided by trying: every value that several
loops computed for themselves, or that a reduction computed on the way, is once kept in a buffer,
and stays so if fewer bytes move.
"""

from __future__ import annotations

from dataclasses import replace

from kernelwright.tools.codegen.ir import Buffer, Loop, PlanLine, Program
from kernelwright.tools.codegen.ir.contraction import PRODUCT
from kernelwright.tools.codegen.lower.fusion.schedule import DEAREST_LAUNCH_BYTES, Fusion
from kernelwright.tools.codegen.lower.nests.context import (
    Arguments,
    Context,
    Lowering,
    Step,
    UnlikeError,
    base,
)
from kernelwright.tools.codegen.lower.nests.expressions import NARROW, computed
from kernelwright.tools.codegen.lower.nests.layout import tidy
from kernelwright.tools.codegen.lower.nests.nest import loop_of
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.codegen.lower.operators.attention import ATTENTION
from kernelwright.tools.codegen.lower.operators.convolving import (
    Users,
    convolve,
    users_of,
    with_viewed,
)
from kernelwright.tools.codegen.lower.operators.indexing import INDEXING, store
from kernelwright.tools.codegen.lower.operators.library import call
from kernelwright.tools.codegen.lower.operators.pointwise import POINTWISE, PointwiseCall
from kernelwright.tools.codegen.lower.operators.pooled import pooled_by
from kernelwright.tools.codegen.lower.operators.promotion import work_type
from kernelwright.tools.codegen.lower.operators.reductions import PRODUCTS, REDUCTIONS
from kernelwright.tools.codegen.lower.operators.resampling import RESAMPLING
from kernelwright.tools.codegen.lower.operators.scans import WIDENED
from kernelwright.tools.codegen.lower.operators.shapes import SHAPES
from kernelwright.tools.codegen.lower.operators.windows import ADAPTIVE, WINDOWS, reads_indices
from kernelwright.tools.codegen.lower.scored import SCORED
from kernelwright.tools.types import DType, Graph, Node, Ref, TensorSpec
from kernelwright.tools.types.graph import refs, words


def translate(graph: Graph, lowering: Lowering) -> Context:
    """Every node of the graph as steps over virtual buffers."""
    users = users_of(graph)
    leaves = frozenset([*graph.outputs, *(mutation.node for mutation in graph.mutations)])
    single = frozenset(name for name, nodes in users.items() if len(nodes) == 1) - leaves
    context = Context(
        single=single,
        kept=with_viewed(graph, leaves),
        lowering=lowering,
        is_tf32=graph.is_tf32,
        sums=graph.sums,
        pooled=pooled_by(graph) if lowering.folds else {},
    )
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
    elif _is_complex(context, node) or _reads_eights(context, node):
        call(context, node)
    elif base(node.op) == "convolution":
        convolve(context, node, users)
    elif reads_indices(node, users):
        call(context, node)
    else:
        _operation(context, node)


def _is_complex(context: Context, node: Node) -> bool:
    """Whether a node reads or makes complex values, which no loop of ours computes."""
    read = any(context.specs[name].dtype.is_complex for name in refs(node) if name in context.specs)
    return read or any(spec.dtype.is_complex for spec in node.out)


# What reads numbers of eight bits as they are: products, and views.
_OF_EIGHTS = words("_scaled_mm permute transpose t view reshape expand unsqueeze squeeze slice")


def _reads_eights(context: Context, node: Node) -> bool:
    """Whether a node computes with numbers of eight bits, which kernels of ours only multiply."""
    read = [context.specs[name] for name in refs(node) if name in context.specs]
    eights = any(spec.dtype is DType.FLOAT8_E4M3FN for spec in (*read, *node.out))
    return eights and base(node.op) not in _OF_EIGHTS


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
        elif node.op in SCORED:
            SCORED[node.op](context, node, arguments)
        elif name in ATTENTION:
            ATTENTION[name](context, node, arguments)
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
    work = work_type(context, node, out)
    value = POINTWISE[base(node.op)](PointwiseCall(context.ops, arguments, loaded, work, out))
    store(context, node, space, value)
    if node.out[0].dtype in NARROW:
        # Arithmetic here is in int64; wrapping happens in the store, so the store must stay.
        context.stored.add(context.value(Ref(node=node.name)).buffer)


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


# Each trial is a whole schedule, so there are few, and none where a graph is long.
TRIALS, TRIAL_STEPS = 12, 250
AS_USUAL = Lowering()


def lower(
    graph: Graph,
    parameters: tuple[str, ...] | None = None,
    lowering: Lowering = AS_USUAL,
) -> Program:
    """A forward as loops and library calls.

    Args:
        graph: what tracing found; shapes are concrete.
        parameters: names of all forward arguments in order, where some are plain scalars;
            by default the graph's tensor inputs.
        lowering: which operators become loops, and in which layout.

    Returns:
        The program; without any loop when nothing in the graph is memory-bound work of ours.
    """
    context = translate(graph, lowering)
    returned = [_returned(context, graph, name) for name in graph.outputs]
    updates = [
        (m.target, context.in_plan(context.value(Ref(node=m.node)))) for m in graph.mutations
    ]
    needed = frozenset([view.buffer for view in returned] + [view.buffer for _, view in updates])
    steps = _scheduled(context, needed)
    steps = [one for step in steps for one in _tidied(context, step)]
    lines = [_update(target, view) for target, view in updates]
    returned = _told_apart(context, returned, lines)
    return _program(graph, context, steps, returned, lines, parameters)


def _tidied(context: Context, step: Step) -> list[Step]:
    if step.nest is None:
        return [step]
    return [replace(step, nest=nest) for nest in tidy(context.ops, step.nest)]


# What makes a tensor that is nobody else's, of one that loops read where it lies.
_COPIES = frozenset({"clone", "lift_fresh_copy", "view_copy"})
_LEAVES = frozenset({"constant", "input", "weight"})


def _returned(context: Context, graph: Graph, name: str) -> View:
    """An output as a view the plan can write.

    Views of inputs and weights are handed out as they are, copies of them as copies.
    """
    view = context.values[name][0]
    if view is None:
        raise KeyError(name)
    given = {one.buffer for leaf in context.leaves for one in context.values[leaf] if one}
    is_copy = view.buffer in given and _is_copied(graph, name)
    return context.copy(view) if is_copy else context.in_plan(view)


def _is_copied(graph: Graph, name: str) -> bool:
    """Whether an operator between a leaf and this view of it makes a tensor of its own.

    One that no loop of ours has to compute does so as well, as resampling to the same size.
    """
    while (node := graph.node(name)).op not in _LEAVES:
        operator = base(node.op)
        if operator in _COPIES or not (operator in SHAPES or operator == "getitem"):
            return True
        (name, *_) = refs(node)
    return False


def _told_apart(context: Context, returned: list[View], lines: list[PlanLine]) -> list[View]:
    """Gives a name of its own to each further view of a buffer that is returned in several."""
    texts: dict[str, str | None] = {}
    result: list[View] = []
    for view in returned:
        if texts.setdefault(view.buffer, view.text) != view.text:
            spec = TensorSpec(shape=view.shape, dtype=view.dtype)
            other = context.buffer(f"{view.buffer}_view", spec, "output")
            text = f"{other.buffer} = {view.text}"
            lines.append(
                PlanLine(text=text, makes=(other.buffer,), uses=(view.buffer,), operator="view")
            )
            view = other
        result.append(view)
    return result


def _update(target: str, view: View) -> PlanLine:
    return PlanLine(
        text=f'update("{target}", {view.text})', makes=(), uses=(view.buffer,), operator="update"
    )


def _scheduled(context: Context, needed: frozenset[str]) -> list[Step]:
    best = Fusion(context, needed, absorb=context.lowering.one_pass).run()
    if best.sums:
        best = _better(best, replace(best, stores_sums=True))
    if len(context.steps) > TRIAL_STEPS:
        return best.steps
    for name in best.cuttable[:TRIALS]:
        trial = _better(best, replace(best, cut=best.cut | {name}))
        # More loops than before must pay even where a launch is dear.
        if trial.cost(DEAREST_LAUNCH_BYTES) < best.cost(DEAREST_LAUNCH_BYTES):
            best = trial
    for name in best.splittable[:TRIALS]:
        best = _better(best, replace(best, split=best.split | {name}))
    for name in _worth_trying(context, best)[:TRIALS]:
        best = _better(best, replace(best, keep=best.keep | {name}))
    return best.steps


def _better(best: Fusion, trial: Fusion) -> Fusion:
    return trial if trial.run().cost() < best.cost() else best


def _worth_trying(context: Context, fusion: Fusion) -> list[str]:
    """Values computed more than once, and those that feed a reduction; the most used first."""
    feeds = {
        buffer
        for step in context.steps
        if step.nest is not None and step.nest.inner
        for buffer in step.reads
    }
    found = [
        (count, buffer) for buffer, count in fusion.inlined.items() if count > 1 or buffer in feeds
    ]
    return [buffer for _, buffer in sorted(found, key=lambda item: (-item[0], item[1]))]


def _program(
    graph: Graph,
    context: Context,
    steps: list[Step],
    returned: list[View],
    lines: list[PlanLine],
    parameters: tuple[str, ...] | None,
) -> Program:
    inputs = [context.value(Ref(node=name)).buffer for name in graph.inputs]
    made = _numbered(context, steps)
    used = _used(made, lines) | {view.buffer for view in returned} | set(inputs)
    outputs = {view.buffer for view in returned}
    return Program(
        parameters=_parameters(context, graph, inputs, parameters),
        weights=tuple((name, target) for name, target in context.weights.items() if name in used),
        buffers=tuple(
            _with_role(buffer, outputs) for name, buffer in context.buffers.items() if name in used
        ),
        steps=(*made, *lines),
        returns=tuple(view.buffer for view in returned),
        views=_expressions(context, returned),
        output_structure=graph.output_structure,
    )


def _parameters(
    context: Context, graph: Graph, inputs: list[str], given: tuple[str, ...] | None
) -> tuple[str, ...]:
    if given is None:
        return tuple(inputs)
    names = dict(zip(graph.inputs, inputs, strict=True))
    # A plain scalar is fixed in the graph; the plan takes it under a name that hides nothing.
    return tuple(names[name] if name in names else context.name(name) for name in given)


def _numbered(context: Context, steps: list[Step]) -> tuple[Loop | PlanLine, ...]:
    """Loops with names, and library results that loops read made contiguous first."""
    read = frozenset[str]().union(*(step.reads for step in steps if step.nest is not None))
    made: list[Loop | PlanLine] = []
    count = 0
    for step in steps:
        if step.nest is not None:
            loop = loop_of(context.pool, step.nest, f"L{count}")
            is_product = context.lowering.products and step.nest.is_product
            told = {"family": PRODUCT, "sums": context.sums}
            made.append(loop.model_copy(update=told) if is_product else loop)
            count += 1
        elif step.line is not None:
            made.append(step.line)
            made += [_contiguous(name) for name in step.line.makes if name in read]
    return tuple(made)


def _contiguous(name: str) -> PlanLine:
    return PlanLine(
        text=f"{name} = {name}.contiguous()", makes=(name,), uses=(name,), operator="contiguous"
    )


def _used(steps: tuple[Loop | PlanLine, ...], lines: list[PlanLine]) -> set[str]:
    names: set[str] = set()
    for step in (*steps, *lines):
        if isinstance(step, PlanLine):
            names |= {*step.makes, *step.uses}
        else:
            names |= {store.access.buffer for store in step.stores}
            names |= {stmt.access.buffer for stmt in step.body if stmt.access is not None}
    return names


def _with_role(buffer: Buffer, outputs: set[str]) -> Buffer:
    if buffer.role == "temporary" and buffer.name in outputs:
        return buffer.model_copy(update={"role": "output"})
    return buffer


def _expressions(context: Context, returned: list[View]) -> tuple[tuple[str, str], ...]:
    """Plan expressions of outputs that are views of what was stored."""
    return tuple((view.buffer, view.text) for view in returned if view.text and view.chain)
