"""What a call of attention asks for is read off the graph, so that its time can be told."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from kernelwright.tools.codegen.ir import PlanLine
from kernelwright.tools.codegen.ir.library_attention import AttentionSizes
from kernelwright.tools.types import DType

Check = Callable[..., Any]
BATCH, HEADS, ROWS, KEYS, WIDTH = 2, 4, 10, 12, 64


def sizes(check: Check, *mask: torch.Tensor, keys: int = KEYS, causal: bool = False) -> Any:
    def attend(q: torch.Tensor, k: torch.Tensor, *mask: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, k, *mask, is_causal=causal)

    q = torch.randn(BATCH, HEADS, ROWS, WIDTH)
    k = torch.randn(BATCH, HEADS, keys, WIDTH)
    program = check(attend, q, k, *mask).program
    (found,) = (s.attention for s in program.steps if isinstance(s, PlanLine) and s.attention)
    return found


def test_a_plain_call_has_its_heads_and_rows(check: Check) -> None:
    assert sizes(check) == AttentionSizes(
        dtype=DType.FLOAT32, heads=BATCH * HEADS, queries=ROWS, keys=KEYS, width=WIDTH,
        value_width=WIDTH,
    )  # fmt: skip
    assert sizes(check, keys=ROWS, causal=True).is_causal


@pytest.mark.parametrize(
    ("mask", "told", "flags"),
    [
        (torch.rand(BATCH, 1, 1, KEYS) < 2, "row", BATCH * KEYS),
        (torch.rand(BATCH, 1, ROWS, KEYS) < 2, "rows", BATCH * ROWS * KEYS),
        (torch.rand(BATCH, HEADS, ROWS, KEYS), "rows", 0),
    ],
)
def test_a_mask_is_told_by_its_rows_and_its_flags(
    mask: torch.Tensor, told: str, flags: int, check: Check
) -> None:
    found = sizes(check, mask)
    assert (found.mask, found.flags) == (told, flags)
