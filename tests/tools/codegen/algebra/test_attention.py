"""Attention that is written out is found in every spelling, and what is none of it is left."""

import math
from collections.abc import Callable, Mapping

import pytest
import torch

from kernelwright.tools.codegen.algebra.attention import (
    WRITTEN_ATTENTION,
    WRITTEN_SINGLE_ATTENTION,
)
from kernelwright.tools.codegen.algebra.rewrites import rewritten
from kernelwright.tools.codegen.ir.rewrites import GraphRewrite
from kernelwright.tools.types import Graph, Node, Scalar

from ..quick_tracing import graph_of

Run = Callable[[Graph, Mapping[str, torch.Tensor]], dict[str, torch.Tensor]]
Function = Callable[..., torch.Tensor]
LOW = float("-inf")


def softmax(scores: torch.Tensor) -> torch.Tensor:
    return torch.softmax(scores, dim=-1)


def triangle(scores: torch.Tensor) -> torch.Tensor:
    rows = torch.arange(scores.shape[-2])[:, None]
    return torch.arange(scores.shape[-1])[None] <= rows


def windows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    """A bias for each head, then one for each window, of which every image has two."""
    q, k, v = (one.repeat(2, 1, 1, 1) for one in (q, k, v))
    heads = torch.stack([m[0, 0] * at for at in range(4)])
    shifted = torch.stack([m[0, 0], m[0, 0].T])[None, :, None]
    scores = q @ k.mT * 0.2 + heads
    scores = (scores.view(2, 2, 4, 24, 24) + shifted).view(4, 4, 24, 24)
    return (softmax(scores) @ v)[1:3]


def heads_and_batches(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor
) -> torch.Tensor:
    """A bias where heads and batches are one dimension, a mask where they are two."""
    flat = [one.flatten(0, 1) for one in (q, k, v)]
    heads = torch.stack([m[0, 0] * at for at in range(flat[0].shape[0])])
    scores = torch.bmm(flat[0], flat[1].transpose(1, 2)) * 0.2 + heads
    scores = scores.view(*q.shape[:2], *scores.shape[-2:]).masked_fill(m > 2, LOW)
    return torch.bmm(softmax(scores).flatten(0, 1), flat[2]).view(*q.shape[:2], 24, 32)


def other_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    """Biases of four heads, then of four batches: as many dimensions, of other sizes."""
    four = torch.stack([m[0, 0] * at for at in range(4)])
    scores = q @ k.mT * 0.2 + four
    turned = scores.view(4, 2, 24, 24) + four[:, None]
    return softmax(turned.view(2, 4, 24, 24)) @ v


def per_head(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    scale = m[0, 0, :4, 1].exp()[:, None, None]
    return softmax(q @ k.mT * scale + m) @ v


def in_float32(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    weights = torch.softmax(
        (q @ k.mT) * 0.2, dim=-1, dtype=torch.promote_types(q.dtype, torch.float32)
    )
    return weights.to(q.dtype) @ v


def heads_last(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    q, k, v = (one.transpose(1, 2).contiguous() for one in (q, k, v))
    scores = torch.einsum("blhe,bshe->bhls", q, k)
    return torch.einsum("bhls,bshd->blhd", softmax(0.2 * scores), v).contiguous()


def flat(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    q, k, v = (one.flatten(0, 1) for one in (q, k, v))
    return torch.bmm(softmax(torch.bmm(q, k.transpose(1, 2)) / 4), v)


def future(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    scores = q @ k.mT * 0.2
    hidden = torch.triu(torch.full(scores.shape[-2:], LOW, dtype=q.dtype), diagonal=1)
    return softmax(scores + hidden) @ v


SPELT: dict[str, Function] = {
    "plain": lambda q, k, v, m: softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])) @ v,
    "filled": lambda q, k, v, m: softmax((q @ k.mT * 0.2).masked_fill(m < -0.5, LOW)) @ v,
    "far_below": lambda q, k, v, m: softmax((q @ k.mT * 0.2).masked_fill(m < -0.5, -3e4)) @ v,
    "kept": lambda q, k, v, m: softmax(torch.where(m > -0.5, q @ k.mT * 0.2, LOW)) @ v,
    "windows": windows,
    "heads_and_batches": heads_and_batches,
    "bias": lambda q, k, v, m: softmax(m + torch.einsum("bhqd,bhkd->bhqk", q, k) / 5) @ v,
    "both": lambda q, k, v, m: (
        softmax((q @ k.mT * 0.2 + m).masked_fill(~triangle(m), LOW).masked_fill(m > 2, LOW)) @ v
    ),
    "in_float32": in_float32,
    "heads_last": heads_last,
    "flat": flat,
    "cast_keys": lambda q, k, v, m: softmax(q @ k.float().mT.to(q.dtype)) @ v,
    "one_head": lambda q, k, v, m: softmax(q[0, 0] @ k[0, 0].T) @ v[0, 0],
}
CAUSAL: dict[str, Function] = {
    "least_added": lambda q, k, v, m: (
        softmax(q @ k.mT + torch.triu(torch.full((24, 24), -6e4, dtype=q.dtype), diagonal=1)) @ v
    ),
    "added": future,
    "filled": lambda q, k, v, m: softmax((q @ k.mT * 0.2).masked_fill(~triangle(m), LOW)) @ v,
    "later": lambda q, k, v, m: (
        softmax((q @ k.mT).masked_fill(torch.ones_like(m, dtype=torch.bool).triu(1), LOW)) @ v
    ),
    "triangle_of_ones": lambda q, k, v, m: (
        softmax((q @ k.mT * 0.2).masked_fill(torch.tril(torch.ones(24, 24))[None, None] == 0, LOW))
        @ v
    ),
    "truth_of_ones": lambda q, k, v, m: (
        softmax((q @ k.mT * 0.2).masked_fill(torch.triu(torch.ones(24, 24), 1).bool(), LOW)) @ v
    ),
}
LEFT: dict[str, Function] = {
    "other_axis": lambda q, k, v, m: torch.softmax(q @ k.mT, dim=-2) @ v,
    "changed_scores": lambda q, k, v, m: softmax(torch.tanh(q @ k.mT)) @ v,
    "masked_then_scaled": lambda q, k, v, m: softmax((q @ k.mT + m) * 0.2) @ v,
    "near_filling": lambda q, k, v, m: softmax((q @ k.mT).masked_fill(m < -0.5, -5.0)) @ v,
    "narrow": lambda q, k, v, m: softmax(q[..., :12] @ k[..., :12].mT) @ v,
    "no_softmax": lambda q, k, v, m: torch.relu(q @ k.mT) @ v,
    "no_scores": lambda q, k, v, m: softmax(q) @ k.mT,
    "no_scores_but_a_cast": lambda q, k, v, m: softmax(q.float()).type_as(q) @ k.mT,
    "scores_of_ones": lambda q, k, v, m: softmax(torch.ones(24, 24, dtype=q.dtype) * 2) @ v,
    "turned_weights": lambda q, k, v, m: (
        softmax(q @ k.mT).transpose(0, 1) @ v.transpose(0, 1)[:, :1]
    ),
    "other_heads": other_heads,
    "scores_returned": lambda q, k, v, m: (softmax(q @ k.mT) @ v).sum() + (q @ k.mT).sum(),
}


class _Module(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return self.function(*given)


def _inputs(dtype: torch.dtype = torch.float16) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    shapes = (2, 4, 24, 16), (2, 4, 24, 16), (2, 4, 24, 32), (1, 1, 24, 24)
    made = [torch.randn(shape).half().to(dtype) for shape in shapes]
    # The first key is nobody's to hide.
    made[3][..., 0] = 0.0
    return tuple(made)


def _graphs(
    function: Function,
    dtype: torch.dtype = torch.float16,
    rewrite: GraphRewrite = WRITTEN_ATTENTION,
) -> tuple[Graph, Graph]:
    inputs = _inputs(dtype)
    graph = graph_of(_Module(function), inputs)
    return graph, rewritten(graph, (rewrite,))[0]


def _calls(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if "scaled_dot_product" in node.op]


@pytest.mark.parametrize("name", [*SPELT])
def test_written_attention_is_one_call(name: str, run: Run) -> None:
    _agree(SPELT[name], run, is_causal=False)


@pytest.mark.parametrize("name", [*CAUSAL])
def test_a_mask_of_positions_is_a_causal_call(name: str, run: Run) -> None:
    _agree(CAUSAL[name], run, is_causal=True)


def _agree(function: Function, run: Run, *, is_causal: bool) -> None:
    graph, changed = _graphs(function)
    (call,) = _calls(changed)
    assert call.args[5] == Scalar(value=is_causal)
    assert not any(node.op in ("aten.bmm.default", "aten.mm.default") for node in changed.nodes)
    given = dict(zip(graph.inputs, _inputs(), strict=True))
    found, before = (run(one, given)[graph.outputs[0]].double() for one in (changed, graph))
    wanted = function(*_inputs(torch.float64))
    assert (found - wanted).abs().max() <= max(1.05 * (before - wanted).abs().max().item(), 2e-3)


@pytest.mark.parametrize("name", [*LEFT])
def test_what_is_no_attention_is_left(name: str) -> None:
    graph, changed = _graphs(LEFT[name])
    assert changed == graph


def test_float32_is_a_call_only_where_there_is_a_kernel_for_it() -> None:
    graph, changed = _graphs(SPELT["plain"], torch.float32)
    assert changed == graph
    _, changed = _graphs(SPELT["plain"], torch.float32, WRITTEN_SINGLE_ATTENTION)
    assert len(_calls(changed)) == 1
    assert WRITTEN_SINGLE_ATTENTION.is_for("sm_90a")
    assert not WRITTEN_SINGLE_ATTENTION.is_for("sm_80")


SINGLE = {name: SPELT[name] for name in ("bias", "filled", "flat", "heads_and_batches", "windows")}
SINGLE |= {"per_head": per_head}


@pytest.mark.parametrize("name", SINGLE)
def test_a_float32_call_computes_the_same(name: str, run: Run) -> None:
    function = SINGLE[name]
    graph, changed = _graphs(function, torch.float32, WRITTEN_SINGLE_ATTENTION)
    assert len(_calls(changed)) == 1
    given = dict(zip(graph.inputs, _inputs(torch.float32), strict=True))
    found, before = (run(one, given)[graph.outputs[0]] for one in (changed, graph))
    torch.testing.assert_close(found, before, rtol=1e-5, atol=1e-5)


def test_what_float32_scores_may_exceed_is_no_mask() -> None:
    graph, changed = _graphs(SPELT["far_below"], torch.float32, WRITTEN_SINGLE_ATTENTION)
    assert changed == graph
