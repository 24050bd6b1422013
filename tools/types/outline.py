"""A model as PyTorch runs it, operator by operator, and its regions, as plain values.

An outline keeps the operators whole that eager PyTorch runs as one (a layer norm, a linear layer),
each with the time it took; a task's own graph breaks them into what can be fused. A region is a
connected part of the outline that kernels of ours may compute; regions that one kernel can serve
are one class. How they are found is `tools.tasks.regions`.
"""

from __future__ import annotations

from typing import Literal

from kernelwright.tools.types.graph import Graph
from kernelwright.tools.types.value import Value


class NodeSeen(Value):
    """What one node of an outline did in a real run.

    `time_ms` is the least of a few runs, 0 for what runs nothing (inputs, weights). The other
    figures are of its first result's values, None where they are not numbers.
    """

    name: str
    time_ms: float = 0.0
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    deviation: float | None = None


class Outline(Value):
    """The forward as PyTorch runs it; `whole_ms` is the least of a few whole calls.

    Of a model that is traced in parts, `parts` are their graphs, and `graph` is all of them beside
    each other.
    """

    graph: Graph
    seen: tuple[NodeSeen, ...]
    whole_ms: float
    parts: tuple[Graph, ...] = ()

    def of(self, name: str) -> NodeSeen:
        """What the node of that name did; nothing where it was not seen."""
        return next((item for item in self.seen if item.name == name), NodeSeen(name=name))


class Region(Value):
    """Nodes of an outline that one candidate may compute, all by name, in the graph's order.

    `inputs` are results of other nodes, `weights` the weight and constant nodes read, `outputs`
    what others read of it, in the order in which the region makes them. `time_ms` is PyTorch's.
    """

    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    outputs: tuple[str, ...]
    time_ms: float = 0.0


class RegionClass(Value):
    """Regions that are equal up to which tensors they read, so that one search serves them all.

    Attributes:
        name: `R1` takes the most time, then `R2`.
        key: equal for equal regions.
        words: its operators, for people.
        regions: where it stands, in the model's order.
        time_ms: of all of them together, by PyTorch, in one call.
        share: of the time of all operators.
        floor_ms: what all of them take at least, by their bytes and operations.
        fused_ms: what torch.compile may make of all of them at best, `time_ms` where that is not
            known; an estimate out of operators' times, to choose by and not to claim.
    """

    name: str
    key: str
    words: str
    regions: tuple[Region, ...]
    time_ms: float
    share: float
    floor_ms: float
    fused_ms: float | None = None

    @property
    def compiled_ms(self) -> float:
        """What they take by torch.compile, as far as that is known."""
        return self.time_ms if self.fused_ms is None else min(self.time_ms, self.fused_ms)

    @property
    def gain_ms(self) -> float:
        """What a perfect kernel would bring to one call of the whole, beside torch.compile."""
        return max(0.0, self.compiled_ms - self.floor_ms)


class LeftAlone(Value):
    """Operators that stay PyTorch's, of one kind, and why."""

    words: str
    calls: int
    time_ms: float
    share: float
    why: str


RegionState = Literal["waiting", "searched", "used", "left alone"]


class RegionShown(Value):
    """One class of regions as a person sees it: where it stands, and what came of it.

    `before_ms` and `after_ms` are of all its places together, the first as it ran in the model,
    the second by the ratio that its search measured; None where nothing was found. `why` says why
    it is left alone; `run` is the search over it.
    """

    name: str
    words: str
    places: int
    share: float
    before_ms: float
    after_ms: float | None = None
    state: RegionState = "waiting"
    why: str = ""
    run: str = ""


class ModelRegions(Value):
    """A model as a list of regions: `classes` by what they can bring, then what is left alone."""

    classes: tuple[RegionClass, ...]
    left: tuple[LeftAlone, ...]
    whole_ms: float
