"""The rewrites of whole graphs, by name, with what a person should read about each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agents.playbook.algebra.linear import sum_after_linear_map
from agents.playbook.algebra.normalised import sum_after_norm
from tools.nouns import Graph, Node

Change = Callable[[Graph, Node], Graph | None]
# No rewrite makes work for itself without end; this many are more than any module has.
MOST = 64


@dataclass(frozen=True)
class GraphRewrite:
    """One rewrite: `change` rewrites one node of a graph, or answers None."""

    name: str
    title: str
    proof: str
    conditions: str
    change: Change


REWRITES = (
    GraphRewrite(
        name="sum_after_linear_map",
        title="sum the weight, not the outputs",
        proof="sum_n sum_k x_k W_kn = sum_k x_k (sum_n W_kn): a finite double sum may be taken in "
        "either order, so a sum over outputs is a product with the summed weight",
        conditions="nothing else reads the outputs; float32 or float64; finite inputs",
        change=sum_after_linear_map,
    ),
    GraphRewrite(
        name="sum_after_norm",
        title="sum before normalising",
        proof="sum (x - m) r w + b = (sum x - n m) r w + n b, as a normalised value is affine in "
        "x, and sum x comes out of the pass that makes the statistics",
        conditions="nothing else reads the normalised values; float32 or float64; finite inputs",
        change=sum_after_norm,
    ),
)


def rewritten(graph: Graph) -> tuple[Graph, tuple[GraphRewrite, ...]]:
    """The graph after every rewrite that applies, and which ones did, in order."""
    used: list[GraphRewrite] = []
    for _ in range(MOST):
        found = _once(graph)
        if found is None:
            break
        graph, rewrite = found
        used.append(rewrite)
    return graph, tuple(dict.fromkeys(used))


def _once(graph: Graph) -> tuple[Graph, GraphRewrite] | None:
    for rewrite in REWRITES:
        for node in graph.nodes:
            changed = rewrite.change(graph, node)
            if changed is not None:
                return changed, rewrite
    return None
