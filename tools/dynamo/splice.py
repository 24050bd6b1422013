"""Puts kernels of the library in the places of a graph's regions."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import torch
from torch import fx

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates import ContractError
from kernelwright.tools.dynamo.graphs import Outlined, outlined
from kernelwright.tools.dynamo.operators import Loaded, loaded, task_of
from kernelwright.tools.dynamo.report import Spliced, tell
from kernelwright.tools.export import ExportRefusedError
from kernelwright.tools.memory import Kept, KernelLibrary, TaskKey, device_of, key_of
from kernelwright.tools.tasks.regions import find_regions, in_order, region_source
from kernelwright.tools.tasks.regions.classes import operators_of, region_key
from kernelwright.tools.types import RefusedError, Task
from kernelwright.tools.types.outline import Outline, Region


def with_kernels(
    gm: fx.GraphModule, inputs: Sequence[object], number: int, hardware: Hardware, home: Path
) -> fx.GraphModule | None:
    """The graph with every kernel that the library has for it; None where it has none.

    Args:
        gm: as dynamo traced it.
        inputs: of the call that it was traced on.
        number: of the graph, by which what is done is told.
        hardware: the device of its tensors.
        home: the data folder.

    Raises:
        RefusedError: the graph is none that regions can be found in.
    """
    found = outlined(gm, inputs)
    regions = find_regions(found.graph, joined=hardware.kind == "cuda")
    nodes = {node.name: node for node in found.graph.nodes}
    classes: dict[str, list[Region]] = {}
    for region in regions:
        classes.setdefault(region_key(nodes, region), []).append(region)
    at_home: dict[Region, _Placed] = {}
    for equal in classes.values():
        words = operators_of(equal[0], nodes)
        placed = _known(found, equal[0], words, number, hardware, home)
        if placed is not None:
            at_home |= dict.fromkeys(equal, placed)
            kept = placed.kept
            item = Spliced(graph=number, words=words, places=len(equal), source=kept.words)
            tell(item.model_copy(update={"ratio": kept.proof.ratio}))
    return _written(found, at_home) if at_home else None


@dataclass(frozen=True)
class _Placed:
    """A kernel, and which of the region's results each of its own is."""

    kept: Kept
    kernel: Loaded
    order: tuple[int, ...]


# A kernel's results may lie in memory otherwise than PyTorch's did, which a view behind them (or
# behind what PyTorch makes of them) would refuse; this one copies where it has to.
_OF_ANY_LAYOUT: Mapping[object, torch._ops.OpOverload] = dict.fromkeys(
    (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default),
    torch.ops.aten.reshape.default,
)
# A kernel may return its results in another order than a region makes them.
_REORDERED = 4


def _known(
    found: Outlined, region: Region, words: str, number: int, hardware: Hardware, home: Path
) -> _Placed | None:
    """The kernel for a region, ready to be called; None where there is none, which is told."""
    why = "the library has no kernel for it that was certified on this device"
    try:
        outline = Outline(graph=found.graph, seen=(), whole_ms=1.0)
        task = task_of(region_source(outline, region, "A region of a graph"))
        for order in _orders(len(region.outputs)):
            key = key_of(_returning(task, order))
            kept = _certified(key, hardware, home) if key is not None else None
            if kept is not None and key is not None:
                outputs = tuple(region.outputs[at] for at in order)
                same = region.model_copy(update={"outputs": outputs})
                task = task_of(region_source(outline, same, "A region of a graph"))
                return _Placed(kept, loaded(kept, task, key, hardware, home), order)
    except (RefusedError, ExportRefusedError, ContractError) as error:
        why = str(error)
    tell(Spliced(graph=number, words=words, why=why))
    return None


def _orders(count: int) -> Iterable[tuple[int, ...]]:
    """The orders of so many results, their own first."""
    return permutations(range(count)) if count <= _REORDERED else [tuple(range(count))]


def _returning(task: Task, order: tuple[int, ...]) -> Task:
    """The task with its results in that order."""
    outputs = tuple(task.graph.outputs[at] for at in order)
    return task.model_copy(update={"graph": task.graph.model_copy(update={"outputs": outputs})})


def _certified(key: TaskKey, hardware: Hardware, home: Path) -> Kept | None:
    """The fastest kernel that was certified here, ahead of PyTorch and called launch by launch.

    In the graph that it is put into it is called so.
    """
    device = device_of(hardware)
    every = KernelLibrary(home).exactly(key, hardware.kind, device)
    fit = (i for i in every if i.device == device and i.proof.certified and i.faster)
    return next((item for item in fit if not item.merged and item.mode == "eager"), None)


def _written(found: Outlined, at_home: Mapping[Region, _Placed]) -> fx.GraphModule:
    """The graph anew, each region one call, everything behind what it reads."""
    graph, made = fx.Graph(), dict[str, fx.Node]()
    for number, place in enumerate(found.places):
        given = graph.placeholder(f"arg{number}")
        if place is not None:
            made[place] = given
    of = {node: name for name, node in found.nodes.items()}
    for unit in in_order(found.graph, at_home):
        if isinstance(unit, Region):
            _call(graph, made, unit, at_home[unit], found)
        elif unit.name not in made:
            node = found.nodes[unit.name]
            copied = graph.node_copy(node, lambda at: made[of[at]])
            copied.target = _OF_ANY_LAYOUT.get(node.target, node.target)
            made[unit.name] = copied
    graph.output(tuple(made[of[node]] for node in found.traced.outputs))
    return fx.GraphModule(torch.nn.Module(), graph)


def _call(
    graph: fx.Graph, made: dict[str, fx.Node], region: Region, placed: _Placed, found: Outlined
) -> None:
    kernel = placed.kernel
    weights = {f"w{number}": name for number, name in enumerate(region.weights)}
    given = [made[name] for name in (*region.inputs, *(weights[at] for at in kernel.weights))]
    called = graph.call_function(kernel.operator, kernel.arguments(given))
    # Whoever compiles the graph may look at what its values are like.
    names = [region.outputs[at] for at in placed.order]
    several = [found.nodes[name].meta.get("val") for name in names]
    called.meta["val"] = several[0] if len(several) == 1 else tuple(several)
    for number, name in enumerate(names):
        result = called
        if len(names) > 1:
            result = graph.call_function(operator.getitem, (called, number))
            result.meta["val"] = several[number]
        made[name] = result
