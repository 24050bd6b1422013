"""verify.py holds what is labelled tf32 against the coarser of PyTorch's own results, too."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.tools.evaluate.verify import roundings
from kernelwright.tools.export import exported_verify
from kernelwright.tools.export.exported_verify import BOUND, Pair, worst_ratio
from kernelwright.tools.tasks import widened
from kernelwright.tools.tasks.loading import watch


def cut(x: torch.Tensor) -> torch.Tensor:
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


class Library(nn.Module):
    """Loses digits with channels last, as a library may on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype is torch.float32 and not x.is_contiguous():
            return nn.functional.conv2d(cut(x), cut(self.conv.weight), self.conv.bias)
        return self.conv(x)


class Coarse(Library):
    """An export that always does."""

    counts: dict[str, int]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.counts["kernel"] += 1
        return nn.functional.conv2d(cut(x), cut(self.conv.weight), self.conv.bias)


@pytest.mark.parametrize(("label", "apart", "right"), [
    ("tf32", "", True),
    ("fp32", "", False),
    ("tf32", "computes in tf32, the task in fp32", False),
])  # fmt: skip
def test_it_may_be_as_coarse_where_that_is_its_label(
    label: str, apart: str, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"verify_roundings": roundings, "verify_widened": widened, "watch": watch}
    monkeypatch.setattr(exported_verify, "load_module", files.__getitem__)
    module = Coarse()
    module.counts = {"kernel": 0}
    evidence = {"evaluation": {"verification": {"precision": label}}, "apart": apart}
    pair: Any = SimpleNamespace(
        draws=None,
        evidence=evidence,
        module=module,
        reference=Library(),
        exported=SimpleNamespace(COUNTS=module.counts),
    )
    pair.as_turned = Pair.as_turned.fget(pair)  # type: ignore[attr-defined]
    with torch.no_grad():
        ratio, wrong = worst_ratio(pair, [torch.randn(4, 8, 12, 13)])
    assert (ratio <= BOUND) is right
    assert bool(wrong) is not right
