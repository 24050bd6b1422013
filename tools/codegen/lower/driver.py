"""The whole way from Graph to Program, and the choice of what to store.

What is computed again instead of stored is decided by trying: every value that several loops
computed for themselves, or that a reduction computed on the way, is once kept in a buffer,
and stays so if fewer bytes move.
"""

from __future__ import annotations

from dataclasses import replace

from kernelwright.tools.codegen.ir import Buffer, Loop, PlanLine, Program
from kernelwright.tools.codegen.lower.fusion.schedule import DEAREST_LAUNCH_BYTES, Fusion
from kernelwright.tools.codegen.lower.nests.context import Context, Step
from kernelwright.tools.codegen.lower.nests.layout import tidy
from kernelwright.tools.codegen.lower.nests.statements import loop_of
from kernelwright.tools.codegen.lower.nests.views import View
from kernelwright.tools.codegen.lower.translate import translate
from kernelwright.tools.types import Graph, Ref, TensorSpec

# Each trial is a whole schedule, so there are few, and none where a graph is long.
TRIALS, TRIAL_STEPS = 12, 250


def lower(
    graph: Graph,
    parameters: tuple[str, ...] | None = None,
    *,
    channels_last: bool = False,
    one_pass: bool = False,
) -> Program:
    """A forward as loops and library calls.

    Args:
        graph: what tracing found; shapes are concrete.
        parameters: names of all forward arguments in order, where some are plain scalars;
            by default the graph's tensor inputs.
        channels_last: whether convolutions that loops read are called in that layout.
        one_pass: whether windows over normalised rows compute the rows' statistics themselves.

    Returns:
        The program; without any loop when nothing in the graph is memory-bound work of ours.
    """
    context = translate(graph, channels_last=channels_last)
    returned = [_returned(context, name) for name in graph.outputs]
    updates = [
        (m.target, _stored(context, context.value(Ref(node=m.node)))) for m in graph.mutations
    ]
    needed = frozenset([view.buffer for view in returned] + [view.buffer for _, view in updates])
    steps = _scheduled(context, needed, one_pass)
    steps = [one for step in steps for one in _tidied(context, step)]
    lines = [_update(target, view) for target, view in updates]
    returned = _told_apart(context, returned, lines)
    return _program(graph, context, steps, returned, lines, parameters)


def _tidied(context: Context, step: Step) -> list[Step]:
    if step.nest is None:
        return [step]
    return [replace(step, nest=nest) for nest in tidy(context.ops, step.nest)]


def _returned(context: Context, name: str) -> View:
    """An output as a view the plan can write; views of inputs are handed out as they are."""
    view = context.values[name][0]
    if view is None:
        raise KeyError(name)
    return view if view.text is not None else context.copy(view)


def _stored(context: Context, view: View) -> View:
    return view if view.text is not None else context.copy(view)


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


def _scheduled(context: Context, needed: frozenset[str], one_pass: bool) -> list[Step]:
    best = Fusion(context, needed, absorb=one_pass).run()
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
            made.append(loop_of(context.pool, step.nest, f"L{count}"))
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
