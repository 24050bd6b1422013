"""Classes of equal regions, with their share of the time and what there is to gain.

Two regions are equal when their operators, constants and wiring are, and the shapes, types and
layouts of what they read, weights told apart from other tensors. One search serves a class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256

from kernelwright.tools.tasks.regions.partition import boundary, find_regions, is_view
from kernelwright.tools.tasks.regions.work import fused_ms, operations
from kernelwright.tools.types.graph import (
    Arg,
    DTypeArg,
    ListArg,
    Node,
    Ref,
    Scalar,
    TensorSpec,
    base,
    refs,
)
from kernelwright.tools.types.outline import (
    LeftAlone,
    ModelRegions,
    Outline,
    Region,
    RegionClass,
)

# Milliseconds that so many bytes and operations take at least.
Floor = Callable[[int, int], float]


def model_regions(outline: Outline, floor: Floor, *, joined: bool = False) -> ModelRegions:
    """The regions of a model by what they can bring, and what is left alone.

    Args:
        outline: the model as it ran.
        floor: of bytes and operations on its device.
        joined: see `find_regions`.
    """
    nodes = {node.name: node for node in outline.graph.nodes}
    times = {item.name: item.time_ms for item in outline.seen}
    total_ms = sum(times.values()) or 1.0
    groups: dict[str, list[Region]] = {}
    for region in find_regions(outline.graph, joined=joined):
        spent = sum(times.get(name, 0.0) for name in region.nodes)
        timed = region.model_copy(update={"time_ms": spent})
        groups.setdefault(region_key(nodes, region), []).append(timed)
    ordered = sorted(groups.items(), key=lambda item: -sum(r.time_ms for r in item[1]))
    made = tuple(
        _class(f"R{number}", key, regions, nodes, times, total_ms, floor)
        for number, (key, regions) in enumerate(ordered, start=1)
    )
    inside = {name for regions in groups.values() for one in regions for name in one.nodes}
    left = tuple(_left_alone(nodes, inside, times, total_ms))
    by_gain = tuple(sorted(made, key=lambda item: -item.gain_ms))
    return ModelRegions(classes=by_gain, left=left, whole_ms=outline.whole_ms)


def _class(
    name: str,
    key: str,
    regions: Sequence[Region],
    nodes: dict[str, Node],
    times: dict[str, float],
    total_ms: float,
    floor: Floor,
) -> RegionClass:
    time_ms = sum(region.time_ms for region in regions)
    moved, made = _cost(regions[0], nodes)
    compiled = (fused_ms((nodes[name] for name in region.nodes), times) for region in regions)
    return RegionClass(
        name=name,
        key=key,
        words=operators_of(regions[0], nodes),
        regions=tuple(regions),
        time_ms=time_ms,
        share=time_ms / total_ms,
        floor_ms=len(regions) * floor(moved, made),
        fused_ms=sum(compiled),
    )


def _cost(region: Region, nodes: dict[str, Node]) -> tuple[int, int]:
    """Bytes that come in and go out, and operations."""
    ends = (*region.inputs, *region.weights, *region.outputs)
    moved = sum(nodes[name].out[0].size_bytes for name in ends)
    return moved, sum(operations(nodes[name], nodes) for name in region.nodes)


def operators_of(region: Region, nodes: dict[str, Node]) -> str:
    """A region's operators in order, without views, equal neighbours counted."""
    names = [base(nodes[name].op).lstrip("_") for name in region.nodes if not is_view(nodes[name])]
    counts = Counter(names)
    told = [name if counts[name] == 1 else f"{counts[name]} {name}" for name in counts]
    return ", ".join(told[:6]) + (", ..." if len(told) > 6 else "")


def region_key(nodes: dict[str, Node], region: Region) -> str:
    """Equal for regions that one candidate can serve."""
    inside = {name: f"%{number}" for number, name in enumerate(region.nodes)}
    outside = {at: f"x{number}" for number, at in enumerate(region.inputs)}
    outside |= {at: f"w{number}" for number, at in enumerate(region.weights)}
    names = inside | outside
    lines = [f"{outside[at]}:{_spec(nodes[at].out[0])}" for at in outside]
    for name in region.nodes:
        node = nodes[name]
        given = [_text(arg, names) for arg in node.args]
        given += [f"{key}={_text(arg, names)}" for key, arg in node.kwargs]
        lines.append(f"{names[name]}={node.op}({', '.join(given)})")
    lines.append(" ".join(names[name] for name in region.outputs))
    return sha256("\n".join(lines).encode()).hexdigest()[:12]


def _spec(spec: TensorSpec) -> str:
    return f"{spec.shape},{spec.strides},{spec.dtype.value}"


def _text(arg: Arg, names: dict[str, str]) -> str:
    if isinstance(arg, Ref):
        return names[arg.node]
    if isinstance(arg, ListArg):
        return f"[{', '.join(_text(item, names) for item in arg.items)}]"
    if isinstance(arg, DTypeArg):
        return arg.value.value
    return repr(arg.value) if isinstance(arg, Scalar) else str(arg)


def _left_alone(
    nodes: dict[str, Node], inside: set[str], times: dict[str, float], total_ms: float
) -> list[LeftAlone]:
    """What is in no region, by operator, the longest first; views are nobody's work."""
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for node in nodes.values():
        if node.name in inside or not refs(node) or is_view(node):
            continue
        why = boundary(node, nodes) or "it only makes what others read"
        kind = base(node.op).lstrip("_"), why
        calls, spent = found.get(kind, (0, 0.0))
        found[kind] = calls + 1, spent + times.get(node.name, 0.0)
    made = [
        LeftAlone(words=name, calls=calls, time_ms=spent, share=spent / total_ms, why=why)
        for (name, why), (calls, spent) in found.items()
    ]
    return sorted(made, key=lambda item: -item.time_ms)
