"""A mask that is made of no input is found to be causal, idle or neither, in every spelling."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch.nn import functional as F

from kernelwright.tools.codegen.algebra.known_masks import known_mask
from kernelwright.tools.codegen.algebra.rewrites import REWRITES, rewritten
from kernelwright.tools.tasks.graph.aten_graph import trace_graph
from kernelwright.tools.tasks.graph.convert import constants_of, simplify, to_graph
from kernelwright.tools.types import Graph, Node, Scalar

Run = Callable[[Graph, Mapping[str, torch.Tensor]], dict[str, torch.Tensor]]
Mask = Callable[[torch.Tensor], torch.Tensor]
ROWS = 12


def numbers() -> torch.Tensor:
    return torch.arange(ROWS)


def packed(x: torch.Tensor) -> torch.Tensor:
    """As transformers makes it: rows up to the own one, of the same sequence by counted steps."""
    positions = numbers()[None].expand(x.shape[0], -1)
    before = torch.cat((positions[:, :1] - 1, positions), dim=-1)
    sequence = (before.diff(dim=-1) != 1).cumsum(-1)
    batch = torch.arange(x.shape[0])[:, None, None, None]
    row, column = numbers()[None, None, :, None], numbers()[None, None, None]
    same = sequence[batch, row] == sequence[batch, column]
    return torch.full((), True) & same & (column <= row)


def window(x: torch.Tensor) -> torch.Tensor:
    return (numbers()[None] <= numbers()[:, None]) & (numbers()[:, None] - numbers()[None] < 4)


CAUSAL: dict[str, Mask] = {
    "counted and gathered": packed,
    "a triangle of ones": lambda x: torch.ones(ROWS, ROWS, dtype=torch.bool).tril(),
    "filled with the lowest number": lambda x: torch.zeros(ROWS, ROWS).masked_fill(
        numbers()[None] > numbers()[:, None], torch.finfo(torch.float32).min),
    "infinite above the diagonal": lambda x: torch.full((ROWS, ROWS), -torch.inf).triu(1),
}  # fmt: skip
IDLE: dict[str, Mask] = {
    "true everywhere": lambda x: torch.ones(x.shape[0], 1, 1, ROWS, dtype=torch.bool),
    "zeros are added": lambda x: torch.zeros(ROWS, ROWS),
}
OTHER: dict[str, Mask] = {
    "a window": window,
    "a bias": lambda x: torch.zeros(ROWS, ROWS) - numbers()[None] * 0.5,
    "one column for all rows": lambda x: (numbers() < 1)[None],
    "from an input": lambda x: (x[:, :, :, :1] < 9) & (numbers()[None] <= numbers()[:, None]),
    "by chance": lambda x: torch.rand(ROWS, ROWS) < 2,
}


def traced(mask: Mask, layers: int = 1) -> tuple[Graph, Mapping[str, torch.Tensor], torch.Tensor]:
    class Attends(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            keeps = mask(x)
            for _ in range(layers):
                x = F.scaled_dot_product_attention(x, x * 0.5, x + 1, attn_mask=keeps, scale=0.3)
            return x

    x = torch.randn(2, 3, ROWS, 8)
    found = trace_graph(Attends(), (x,), None)
    simplify(found)
    graph = to_graph(found, ["x"])
    return graph, {graph.inputs[0]: x, **constants_of(graph, "cpu")}, Attends()(x)


def attention(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if "scaled_dot_product" in node.op]


@pytest.mark.parametrize("name", [*CAUSAL, *IDLE])
def test_a_known_mask_is_said_as_the_call_says_it(name: str, run: Run) -> None:
    graph, given, expected = traced({**CAUSAL, **IDLE}[name], layers=2)
    changed, used = rewritten(graph, REWRITES)
    assert [one.name for one in used] == ["known_mask"]
    assert len(attention(changed)) == 2
    for node in attention(changed):
        assert node.args[3] == Scalar(value=None)
        assert node.args[5] == Scalar(value=name in CAUSAL)
    result = run(changed, given)[changed.outputs[0]]
    torch.testing.assert_close(result, expected)
    assert not [node for node in changed.nodes if node.out[0].shape[-2:] == (ROWS, ROWS)]


@pytest.mark.parametrize("name", OTHER)
def test_every_other_mask_stays(name: str) -> None:
    graph, _, _ = traced(OTHER[name])
    assert all(known_mask(graph, node) is None for node in graph.nodes)


def test_a_mask_that_is_too_large_to_be_computed_here_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, _, _ = traced(packed)
    monkeypatch.setattr("kernelwright.tools.codegen.algebra.known_masks._MOST_BYTES", 1000)
    assert all(known_mask(graph, node) is None for node in graph.nodes)
