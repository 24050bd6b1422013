"""What a mask selects has a fixed size where sums are left of it, and is refused where more is."""

from collections.abc import Callable

import pytest
import torch

from kernelwright.tools.types import Task

Sentence = Callable[..., str]
FILE = """
class Model(nn.Module):
    def forward(self, x, y):
        {before}
        return {use}


def get_inputs():
    return [torch.randn(6, 8), torch.randn(6, 8)]
"""

TAKEN = (
    ("pass", "x[x > 0].mean()"),
    ("pass", "x.masked_select(y > 0).sum() * x"),
    ("pass", "F.mse_loss(x, y, reduction='none')[y > 0].mean()"),
    ("pass", "(x[x.sum(1) > 0] * y[0]).sigmoid().mean(0)"),
    ("pass", "x[x.sum(1) > 0].sum((0, 1), keepdim=True)"),
    ("pass", "x[x > 0].log().half().float().sum() / x.numel()"),
    ("pass", "y[x > 0].sum() + x[x < 0].mean() * x[x < 0].numel()"),
    ("z = x.clone(); z[z > 0] *= 2", "z"),
    ("z = torch.zeros_like(x); m = x > 0; z[m] = torch.exp(x[m])", "z"),
    ("z = x * 1", "z.masked_scatter(x > 0, y[x > 0].tanh())"),
)


@pytest.mark.parametrize(("before", "use"), TAKEN)
def test_sums_of_a_selection_and_what_is_put_back_have_a_fixed_size(
    traced: Callable[..., Task], run_graph, before: str, use: str
) -> None:
    task = traced(FILE.format(before=before, use=use))
    x, y = torch.randn(6, 8), torch.randn(6, 8)
    (ours,), _ = run_graph(task.graph, [x, y], {})
    scope: dict[str, object] = {"torch": torch, "F": torch.nn.functional, "x": x, "y": y}
    exec(before, scope)
    torch.testing.assert_close(ours, eval(use, scope))


@pytest.mark.parametrize(
    ("before", "use"),
    [
        ("pass", "x[x > 0]"),
        ("pass", "x[x > 0].amax()"),  # which PyTorch does not have of nothing
        ("pass", "x[x > 0].std()"),
        ("pass", "F.mse_loss(x[x > 0], y[x > 0])"),
        ("pass", "x[x > 0][:3].sum()"),
        ("pass", "x[:, x[0] > 0].sum()"),
        ("pass", "x[x > 0].nonzero().sum()"),
        ("n = (x * 3).int()", "(7 // n[n != 0]).sum()"),  # what is not selected may be zero
        ("z = x.clone(); z[torch.rand(6, 8) > 0.5] = x[torch.rand(6, 8) > 0.5]", "z"),
        ("z = x.clone(); z[y > 0] = x[x > 0]", "z"),  # another mask may select as many
    ],
)
def test_what_else_is_made_of_a_selection_is_refused_with_its_line(
    sentence: Sentence, before: str, use: str
) -> None:
    said = sentence(FILE.format(before=before, use=use))
    assert "The forward depends on the values of tensors at model.py:" in said
    assert "torch.where(mask, x, 0) has the size of x, and mask.sum()" in said
