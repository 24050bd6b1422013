"""Checks of distributions look at values, so a trace leaves them out, and says so."""

from collections.abc import Callable

import pytest
import torch
from torch.distributions import Distribution, Normal

from kernelwright.tools.tasks import Reference, draw
from kernelwright.tools.tasks.graph.lean_export import UNCHECKED, unchecked_distributions
from kernelwright.tools.tasks.outline import outline_of
from kernelwright.tools.types import Task
from kernelwright.tools.types.graph import base

PRIOR = """
def forward(self, x):
    prior = torch.distributions.Normal(torch.zeros_like(x), x.exp())
    return prior.log_prob(x).sum(-1)
"""


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process where nobody compiled: torch.compile leaves the checks switched off."""
    monkeypatch.setattr(Distribution, "_validate_args", True)


def test_a_forward_with_distributions_is_traced_whole(
    model: Callable[..., Task], run_graph: Callable[..., tuple[list[torch.Tensor], object]]
) -> None:
    task = model(PRIOR, "[torch.randn(8, 16)]")
    assert not task.parts
    assert UNCHECKED in task.warnings
    args = draw(task, "task", 1, "cpu")
    (got,), _ = run_graph(task.graph, args, {})
    torch.testing.assert_close(got, Reference.build(task, "cpu").forward(args)[0])
    assert UNCHECKED not in model("def forward(self, x): return x * 2", "[torch.randn(4)]").warnings


def test_an_outline_has_what_a_distribution_computes(model: Callable[..., Task]) -> None:
    task = model(PRIOR, "[torch.randn(8, 16)]")
    arguments = draw(task, "task", 1, "cpu")
    outline = outline_of(Reference.build(task, "cpu"), task, arguments, set())
    assert {base(node.op) for node in outline.graph.nodes} >= {"exp", "log"}
    assert Distribution._validate_args is True


def test_they_check_again_afterwards() -> None:
    with unchecked_distributions() as checks:
        assert not checks.asked
        Normal(0.0, -1.0)
    assert checks.asked
    assert Distribution._validate_args is True
    with pytest.raises(ValueError, match="scale"):
        Normal(0.0, -1.0)
