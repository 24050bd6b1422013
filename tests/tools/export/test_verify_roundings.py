"""verify.py excuses what the judge does: PyTorch's own error may be next to nothing by chance."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.tools.evaluate.verify import roundings
from kernelwright.tools.export import exported_verify
from kernelwright.tools.export.exported_verify import BOUND, worst_ratio
from kernelwright.tools.tasks import widened
from kernelwright.tools.tasks.loading import watch


class InParts(nn.BatchNorm2d):
    """A batch norm whose means are sums in single precision, part by part; some may be left out."""

    def __init__(self, parts: int, left_out: int, counts: dict[str, int]) -> None:
        super().__init__(16)
        self.parts, self.left_out, self.counts = parts, left_out, counts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.counts["kernel"] += 1
        rows = x.transpose(0, 1).reshape(16, self.parts, -1)[:, : self.parts - self.left_out]
        sums = torch.zeros(16, rows.shape[1])
        for place in range(rows.shape[2]):
            sums += rows[:, :, place]
        total = torch.zeros(16)
        for part in range(rows.shape[1]):
            total += sums[:, part]
        count = x.numel() // 16
        self.running_mean += 0.1 * (total / count - self.running_mean)
        result = nn.functional.batch_norm(
            x, torch.zeros(16), self.running_var, self.weight, self.bias, training=True
        )
        self.num_batches_tracked += 1
        return result


@pytest.mark.parametrize(("left_out", "right"), [(0, True), (1, False)])
def test_a_sum_that_cancels_is_excused_and_one_without_a_part_is_not(
    left_out: int, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"verify_roundings": roundings, "verify_widened": widened, "watch": watch}
    monkeypatch.setattr(exported_verify, "load_module", files.__getitem__)
    counts = {"kernel": 0}
    reference = nn.BatchNorm2d(16)
    exported = SimpleNamespace(COUNTS=counts)
    pair: Any = SimpleNamespace(
        draws=None, as_turned=False, reference=reference, exported=exported,
        module=InParts(64, left_out, counts),
    )  # fmt: skip
    torch.manual_seed(3)
    with torch.no_grad():
        ratio, wrong = worst_ratio(pair, [torch.randn(8, 16, 48, 48)])
    assert (ratio <= BOUND) is right, (ratio, wrong)


class Best(nn.Module):
    """The best of scores, added up from either end; may be off in one row."""

    def __init__(self, counts: dict[str, int], *, turned: bool, off: int) -> None:
        super().__init__()
        self.counts, self.turned, self.off = counts, turned, off

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.counts["kernel"] += 1
        x, y = (x.flip(1), y.flip(0)) if self.turned else (x, y)
        best = (x @ y).argmax(1)
        best[3] = best[3] ^ self.off
        return best


@pytest.mark.parametrize(("off", "right"), [(0, True), (2, False)])
def test_the_largest_of_values_that_tie_may_lie_elsewhere(
    off: int, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"verify_roundings": roundings, "verify_widened": widened, "watch": watch}
    monkeypatch.setattr(exported_verify, "load_module", files.__getitem__)
    counts = {"kernel": 0}
    pair: Any = SimpleNamespace(
        draws=None, as_turned=False, exported=SimpleNamespace(COUNTS=counts),
        reference=Best(counts, turned=False, off=0), module=Best(counts, turned=True, off=off),
    )  # fmt: skip
    torch.manual_seed(3)
    x, y = torch.randn(512, 96), torch.randn(96, 64)
    y[:, 1::2] = y[:, ::2] * (1 + 3e-8 * torch.randn(96, 32))  # every best has its twin
    ratio, wrong = worst_ratio(pair, [x, y])
    assert (ratio <= BOUND) is right, (ratio, wrong)
    if right:
        assert not torch.equal(pair.module(x, y), pair.reference(x, y))
    else:
        assert wrong == "1 of 512 integers differ"


def test_norms_are_broken_down_for_whoever_has_no_table_of_their_own() -> None:
    seen = []

    class Seen(roundings.Altered):
        def alter(self, func: Any, args: Any, kwargs: Any) -> object:
            seen.append(roundings.plain_name(func))
            return func(*args, **kwargs)

    x = torch.randn(4, 6, 5, dtype=torch.float64)
    modules = nn.BatchNorm1d(6).double(), nn.LayerNorm(5).double(), nn.Softmax(-1)
    with torch.no_grad(), Seen(roundings.plain_table()):
        for module in modules:
            module(x)
    assert seen.count("var_mean") == 2
    assert "sum" in seen
    assert not {"native_batch_norm", "native_layer_norm", "_softmax"} & set(seen)
