"""What a person would write as one kernel comes out as one loop, and computes the same."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

Check = Callable[..., Any]
r = torch.randn


def rms(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = x + residual
    return h, h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def rotated(x: torch.Tensor, sine: torch.Tensor, cosine: torch.Tensor) -> torch.Tensor:
    half = torch.cat((-x[..., 4:], x[..., :4]), -1)
    return x * cosine + half * sine


ONE_LOOP = {
    "a chain of activations": (
        lambda x: F.silu(F.gelu(x * 2 + 1) - 0.5) * F.mish(x), "pointwise", r(4, 6)),
    "broadcasting": (
        lambda x, y, s: (x + y) * s, "pointwise", r(4, 1, 6), r(5, 1), torch.tensor(2.5)),
    "softmax of the last dimension": (lambda x: torch.softmax(x, -1), "softmax", r(4, 6)),
    "softmax of a middle dimension": (lambda x: torch.softmax(x, 1), "softmax", r(4, 6, 5)),
    "log-softmax": (lambda x: F.log_softmax(x, -1), "log-softmax", r(4, 6)),
    "softmin with a prologue": (lambda x: torch.softmax(-x * 3, 0), "softmax", r(4, 6)),
    "masked softmax": (
        lambda x: torch.softmax(x.masked_fill(
            torch.triu(torch.ones(6, 6, dtype=torch.bool), 1), float("-inf")), -1),
        "softmax", r(3, 6, 6)),
    "layer norm and GELU": (nn.Sequential(nn.LayerNorm(8), nn.GELU()), "normalisation", r(4, 5, 8)),
    "layer norm, then a transpose": (
        lambda x, w: F.layer_norm(x, (6, 8), w).permute(0, 2, 1).contiguous() * 2,
        "normalisation", r(4, 6, 8), r(6, 8)),
    "group norm and swish": (
        nn.Sequential(nn.GroupNorm(2, 6), nn.SiLU()), "normalisation", r(3, 6, 4, 5)),
    "instance norm": (nn.InstanceNorm2d(6), "normalisation", r(3, 6, 4, 5)),
    "RMS norm with a residual": (rms, "normalisation", r(7, 8), r(7, 8), r(8)),
    "L2 normalisation": (lambda x: F.normalize(x, dim=1), "normalisation", r(4, 6)),
    "Frobenius normalisation": (lambda x: x / torch.norm(x), "normalisation", r(4, 6)),
    "two statistics of everything": (lambda x: x - x.mean() + x.std(), "normalisation", r(4, 6)),
    "log-sum-exp": (lambda x: torch.logsumexp(x, 1), "log-sum-exp", r(4, 6)),
    "argmax": (lambda x: torch.argmax(torch.relu(x), 1), "argmax", r(4, 6, 3)),
    "several reductions of a row": (
        lambda x: (x.sum(1), x.max(1).values, x.max(1).indices), "argmax", r(4, 6)),
    "mean square": (lambda x, t: F.mse_loss(x, t), "loss", r(7, 9), r(7, 9)),
    "Huber": (lambda x, t: F.smooth_l1_loss(x, t), "loss", r(7, 9), r(7, 9)),
    "cumulative sum": (lambda x: torch.cumsum(x, 1) * 2, "scan", r(7, 9)),
    "cumulative product of a leading dimension": (lambda x: torch.cumprod(x, 0), "scan", r(7, 9)),
    "reverse cumulative sum": (
        lambda x: torch.cumsum(x.flip(1), 1).flip(1) + 1, "scan", r(7, 9)),
    "masked cumulative sum": (lambda x, m: torch.cumsum(x * m, 1), "scan", r(7, 9), r(7, 9) > 0),
    "exclusive cumulative sum": (
        lambda x: torch.cumsum(torch.cat((torch.zeros(7, 1), x[:, :-1]), 1), 1), "scan", r(7, 9)),
    "rotary embedding": (rotated, "pointwise", r(2, 3, 8), r(3, 8), r(3, 8)),
    "a padded softmax": (
        lambda x: F.pad(torch.softmax(x, 1), (1, 1)) * 2, "softmax", r(4, 6)),
    "a mean in front of its row": (
        lambda x: torch.cat((x.mean(1, keepdim=True), x), 1), "normalisation", r(4, 6)),
    "pieces of pieces": (
        lambda x: torch.relu(torch.cat((torch.cat((x, x.sum(1, True)), 1), x.softmax(1)), 1)),
        "softmax", r(4, 6)),
    "a transposed computed value": (
        lambda x: torch.exp(x) + torch.exp(x).t(), "pointwise", r(5, 5)),
    "a padded computed value": (
        lambda x: F.pad(torch.exp(x), (1, 2, 1, 0)) * 2, "pointwise", r(4, 3)),
    "windows": (lambda x: x.unfold(1, 3, 2).mean(-1), "reduction", r(4, 9)),
    "embedding and layer norm": (
        lambda w, i: F.layer_norm(F.embedding(i, w) * 2, (8,)), "normalisation",
        r(11, 8), torch.randint(0, 11, (3, 4))),
    "a matrix and a vector": (lambda x, w: torch.sigmoid(x @ w), "reduction", r(7, 5), r(5)),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_LOOP)
def test_it_is_one_loop(name: str, check: Check) -> None:
    module, family, *inputs = ONE_LOOP[name]
    checked = check(module, *inputs)
    assert checked.families == [family]
    assert checked.library == []


SEVERAL = {
    "a running sum and a softmax of one tensor": (
        lambda x: torch.stack((x.cumsum(1), x.softmax(1))), ["scan", "softmax"], r(7, 9)),
    "cross-entropy": (
        lambda x, t: F.cross_entropy(x, t), ["log-sum-exp", "loss"], r(7, 9),
        torch.randint(0, 9, (7,))),
    "divergence of softmaxes": (
        lambda a, b: F.kl_div(F.log_softmax(a, 1), torch.softmax(b, 1), reduction="batchmean"),
        ["log-sum-exp", "loss"], r(5, 6), r(5, 6)),
    "triplet loss": (
        lambda a, p, n: F.triplet_margin_loss(a, p, n), ["reduction", "loss"],
        r(5, 6), r(5, 6), r(5, 6)),
    "rows and columns of one sum": (
        lambda x, y: ((x + y).sum(1), (x + y).sum(0)), ["reduction", "reduction"],
        r(40, 60), r(40, 60)),
    "batch norm with its statistics": (
        nn.BatchNorm2d(6), ["pointwise", "normalisation"], r(3, 6, 4, 5)),
    "batch norm over rows": (nn.BatchNorm1d(6), ["pointwise", "normalisation"], r(32, 6)),
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_what_needs_more_loops_has_no_more_than_it_needs(name: str, check: Check) -> None:
    module, families, *inputs = SEVERAL[name]
    assert check(module, *inputs).families == families


def test_a_row_value_written_along_its_row_is_a_loop_of_its_own(check: Check) -> None:
    checked = check(lambda x: (x.sum(1, keepdim=True).expand(4, 6) * 1.5).contiguous(), r(4, 6))
    assert checked.families == ["reduction", "pointwise"]


def test_a_convolution_keeps_its_library_call_and_gets_its_tail_fused(check: Check) -> None:
    tail = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4).eval(), nn.Sigmoid())
    checked = check(tail, r(2, 3, 8, 8))
    assert checked.families == ["pointwise"]
    assert checked.library == ["aten.convolution.default"]


def test_a_small_network_alternates_products_and_loops(check: Check) -> None:
    layers = (nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.Softmax(-1))
    checked = check(nn.Sequential(*layers), r(4, 8))
    assert checked.families == ["pointwise", "softmax"]
    assert len(checked.library) == 2


def test_updated_statistics_stand_in_the_plan(check: Check) -> None:
    checked = check(nn.BatchNorm2d(6), r(3, 6, 4, 5))
    assert set(checked.updates) == {"running_mean", "running_var", "num_batches_tracked"}


def test_single_numbers_share_a_loop(check: Check) -> None:
    tail = nn.Sequential(nn.BatchNorm2d(6), nn.MaxPool2d(2), nn.BatchNorm2d(6))
    checked = check(tail, r(3, 6, 4, 4))
    # The second one normalises windows of what the first one makes, without storing that.
    assert checked.families == ["pointwise", "reduction", "normalisation"]


def test_a_module_without_work_of_ours_has_no_loop(check: Check) -> None:
    checked = check(nn.Linear(8, 16, bias=False), r(4, 8))
    assert checked.families == []
    assert len(checked.library) == 1


def test_an_empty_tensor_is_left_to_the_library(check: Check) -> None:
    assert check(lambda x: torch.relu(x).sum(), r(0, 3)).families == []


def test_a_value_that_two_stages_need_is_stored_once(check: Check) -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
            h = x + y + z
            h = h + self.first(torch.relu(h))
            return h + self.second(torch.relu(h))

    checked = check(Residual(), r(64, 16), r(64, 16), r(64, 16))
    readers = [
        loop.name
        for loop in checked.program.loops
        if any(stmt.access and stmt.access.buffer == "x0" for stmt in loop.body)
    ]
    assert readers == ["L0"]
