"""The rewrites of whole graphs, by name, with what a person should read about each."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.tools.codegen.algebra.affine import fold_into_weights, pool_after_linear_map
from kernelwright.tools.codegen.algebra.products import diagonal_product, regroup_products
from kernelwright.tools.codegen.algebra.statistics import statistics_of_parts, sum_after_norm
from kernelwright.tools.codegen.algebra.sums import sum_after_linear_map
from kernelwright.tools.codegen.ir.rewrites import GraphRewrite
from kernelwright.tools.types import Graph

# No rewrite makes work for itself without end; this many are more than any module has.
MOST = 64


REWRITES = (
    GraphRewrite(
        name="diagonal_product",
        title="scale rows instead of multiplying by a diagonal matrix",
        proof="(diag(a) B)_ij = a_i B_ij, as all other terms are zero; exact but for the sign of "
        "zeros",
        conditions="the module itself masks the matrix to its diagonal; finite inputs",
        change=diagonal_product,
    ),
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
        conditions="nothing else reads the normalised values, or the statistics are taken along "
        "more than is summed; float32 or float64; finite inputs",
        change=sum_after_norm,
    ),
    GraphRewrite(
        name="statistics_of_parts",
        title="statistics of the whole from those of its parts",
        proof="parts of n elements with means m_i and variances v_i have together the mean m of "
        "the m_i and the variance mean (v_i + (m_i - m)^2), and n m_i is a part's sum: one pass "
        "over the tensor makes both",
        conditions="parts of equal size, one statistic's within the other's; float32 or float64; "
        "finite inputs",
        change=statistics_of_parts,
    ),
    GraphRewrite(
        name="pool_after_linear_map",
        title="pool the weight, not the outputs",
        proof="an average over a window of outputs is linear in them: mean_j (x W)_j = "
        "x (mean_j W_j), so the product shrinks by the window",
        conditions="windows without padding; nothing else reads the outputs; float32 or float64; "
        "finite inputs",
        change=pool_after_linear_map,
    ),
    GraphRewrite(
        name="regroup_products",
        title="multiply in the cheaper order",
        proof="(x A) B = x (A B), and a bias between them adds b B: products are associative",
        conditions="fewer multiplications; nothing else reads the product between; float32 or "
        "float64; finite inputs",
        change=regroup_products,
    ),
    GraphRewrite(
        name="fold_into_weights",
        title="fold scales and shifts into the weight",
        proof="(x W + b) s + t = x (W s) + (b s + t) for s and t that vary along outputs only; "
        "statistics of the batch itself are not such",
        conditions="the scaled value is returned or read by another product, so that its pass "
        "goes; float32 or float64; finite inputs",
        change=fold_into_weights,
    ),
)


def rewritten(
    graph: Graph, rewrites: Sequence[GraphRewrite] = REWRITES
) -> tuple[Graph, tuple[GraphRewrite, ...]]:
    """The graph after every rewrite that applies, and which ones did, in order."""
    used: list[GraphRewrite] = []
    for _ in range(MOST):
        found = _once(graph, rewrites)
        if found is None:
            break
        graph, rewrite = found
        used.append(rewrite)
    return graph, tuple(dict.fromkeys(used))


def _once(graph: Graph, rewrites: Sequence[GraphRewrite]) -> tuple[Graph, GraphRewrite] | None:
    for rewrite in rewrites:
        for node in graph.nodes:
            changed = rewrite.change(graph, node)
            if changed is not None:
                return changed, rewrite
    return None
