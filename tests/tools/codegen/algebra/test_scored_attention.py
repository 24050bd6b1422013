"""What changes scores is found between both products, and what is more than that is left."""

from collections.abc import Callable

import pytest
import torch

from kernelwright.tools.codegen.algebra.rewrites import rewritten
from kernelwright.tools.codegen.algebra.scored_attention import SCORED_ATTENTION
from kernelwright.tools.codegen.ir.scores import ScoreFunction
from kernelwright.tools.codegen.lower import lower

from ..quick_tracing import graph_of

Function = Callable[..., torch.Tensor]


def softmax(scores: torch.Tensor) -> torch.Tensor:
    return torch.softmax(scores, dim=-1)


def far(scores: torch.Tensor) -> torch.Tensor:
    rows, columns = (torch.arange(size) for size in scores.shape[-2:])
    return columns[None] - rows[:, None]


# What is read for a score, and whether keys behind the query are left out.
FOUND: dict[str, tuple[Function, int, bool]] = {
    "softcap": (lambda q, k, v, m: softmax(5 * torch.tanh(q @ k.mT / 5)) @ v, 0, False),
    "relu": (lambda q, k, v, m: torch.relu(q @ k.mT) @ v, 0, False),
    "scaled_mask": (lambda q, k, v, m: softmax((q @ k.mT + m) * 0.2) @ v, 1, False),
    "distance": (lambda q, k, v, m: softmax(q @ k.mT - far(m).abs()) @ v, 0, False),
    "causal": (
        lambda q, k, v, m: softmax(torch.tanh(q @ k.mT).masked_fill(far(m) > 0, -torch.inf)) @ v,
        0,
        True,
    ),
    "window": (
        lambda q, k, v, m: (
            softmax((q @ k.mT).masked_fill((far(m) > 0) | (far(m) < -5), -torch.inf)) @ v
        ),
        0,
        True,
    ),
    "past_or_given": (
        lambda q, k, v, m: softmax((q @ k.mT).masked_fill((far(m) > 0) | (m > 2), -torch.inf)) @ v,
        1,
        True,
    ),
    "computed_mask": (
        lambda q, k, v, m: torch.nn.functional.scaled_dot_product_attention(q, k, v, m * far(m)),
        1,
        False,
    ),
}
LEFT: dict[str, Function] = {
    "other_axis": lambda q, k, v, m: torch.softmax(torch.tanh(q @ k.mT), dim=-2) @ v,
    "weights_changed": lambda q, k, v, m: (softmax(q @ k.mT) * m) @ v,
    "scores_returned": lambda q, k, v, m: (torch.relu(q @ k.mT) @ v).sum() + (q @ k.mT).sum(),
    "narrow": lambda q, k, v, m: torch.relu(q[..., :12] @ k[..., :12].mT) @ v,
    "given_mask": lambda q, k, v, m: torch.nn.functional.scaled_dot_product_attention(q, k, v, m),
}


class _Module(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return self.function(*given)


def _scores(function: Function) -> list[ScoreFunction]:
    shapes = (2, 4, 24, 16), (2, 4, 24, 16), (2, 4, 24, 32), (1, 1, 24, 24)
    inputs = tuple(torch.zeros(shape).half() for shape in shapes)
    graph = graph_of(_Module(function), inputs)
    program = lower(rewritten(graph, (SCORED_ATTENTION,))[0])
    lines = [step for step in program.steps if not step.model_fields_set.isdisjoint({"scores"})]
    return [one.scores for one in lines if one.scores is not None]


@pytest.mark.parametrize("name", FOUND)
def test_a_score_function_is_one_loop(name: str) -> None:
    function, reads, is_causal = FOUND[name]
    (scores,) = _scores(function)
    assert len(scores.reads) == reads
    assert scores.is_causal is is_causal
    assert scores.window == (5 if name == "window" else None)
    assert scores.is_softmax is (name != "relu")


@pytest.mark.parametrize("name", LEFT)
def test_what_is_more_than_that_is_left(name: str) -> None:
    assert not _scores(LEFT[name])


def test_a_slope_is_known_where_every_function_has_one() -> None:
    (capped,) = _scores(FOUND["softcap"][0])
    assert capped.slope() == pytest.approx(1.0)
    (squared,) = _scores(lambda q, k, v, m: (q @ k.mT).square() @ v)
    assert squared.slope() == torch.inf
