"""Convolutions in channels-last layout: the same results, read where they lie, without a copy."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from agents.playbook.ir import PlanLine
from agents.playbook.lower import lower

Check = Callable[..., Any]

CASES: dict[str, tuple[nn.Module, Sequence[int]]] = {
    "an activation": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.Mish()), (2, 3, 9, 8)),
    "a norm": (nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.GroupNorm(2, 8)), (2, 3, 9, 8)),
    "a pool": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2)), (2, 3, 9, 8)),
    "a softmax over channels": (
        nn.Sequential(nn.ConvTranspose3d(3, 4, 2), nn.Softmax(1)), (2, 3, 4, 5, 3)),
    "two in a row": (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Conv2d(8, 4, 2), nn.Tanh()), (2, 3, 9, 8)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_tail_reads_channels_last_and_computes_the_same(
    name: str, check: Check, interpret: Any
) -> None:
    module, shape = CASES[name]
    x = torch.randn(shape)
    checked = check(module, x)
    program = lower(checked.graph, channels_last=True)
    weights = {key: value.detach() for key, value in module.named_parameters()}
    (mine,), _ = interpret(program, [x], weights)
    torch.testing.assert_close(mine, checked.expected[0], rtol=2e-4, atol=5e-5)
    calls = [step for step in program.steps if isinstance(step, PlanLine) and "aten" in step.text]
    made = {buffer for call in calls for buffer in call.makes}
    read = {s.access.buffer for loop in program.loops for s in loop.body if s.access}
    assert made <= read, "no pass of its own turns a result"
    assert all(program.buffer(name).shape[-1] in (4, 8) for name in made)


def test_putting_the_channels_last_counts_as_passes_beside_the_convolution(check: Check) -> None:
    """Hidden under the arithmetic of the convolution, the copies would cost nothing."""
    graph = check(*CASES["an activation"][:1], torch.randn(2, 3, 9, 8)).graph
    cost = {
        last: [(step.operator, step.cost_bytes)
               for step in lower(graph, channels_last=last).steps
               if isinstance(step, PlanLine) and step.cost_bytes]
        for last in (False, True)
    }  # fmt: skip
    copies = [("contiguous", 2 * 4 * elements) for elements in (2 * 3 * 9 * 8, 8 * 3 * 3 * 3)]
    assert cost[True] == [*copies, *cost[False]]
