"""A scan between constants is one scan of the longer row."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

Check = Callable[..., Any]
r = torch.randn


def zeros_before(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1)


def constants_around(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((torch.full((6, 2), 3.0), x.cumsum(1), torch.ones(6, 1)), 1)


def from_behind(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((x.flip(1).cumsum(1)[:, :5].flip(1), torch.zeros(6, 2), torch.zeros(6, 1)), 1)


@pytest.mark.parametrize(
    "forward",
    [
        zeros_before,
        constants_around,
        from_behind,
        lambda x: F.pad(x.cumsum(1)[:, :-1], (1, 0)),
        lambda x: F.pad(x.cumsum(1), (2, 3), value=-7.0),
        lambda x: F.pad(x.cumsum(0), (0, 0, 0, 1)),
        lambda x: torch.cat((torch.ones(1, 7), x.t().contiguous().t().cumprod(0)), 0),
        lambda x: torch.exp(F.pad((x * 2).cumsum(1), (1, 0))) + 1,
        lambda x: torch.cat((torch.zeros(6, 1), x.cumsum(1, dtype=torch.float64)), 1),
        lambda x: torch.cat((torch.zeros(6, 1, dtype=torch.long), (x > 0).cumsum(1)), 1),
    ],
)
def test_it_is_read_and_written_once(
    check: Check, forward: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    assert check(forward, r(6, 7)).families == ["scan"]


@pytest.mark.parametrize(
    "forward",
    [
        # Read by others too, not from its beginning, along another dimension, mostly constants.
        lambda x: (F.pad(s := x.cumsum(1), (1, 0)), s * 2),
        lambda x: F.pad(x.cumsum(1)[:, 1:], (1, 0)),
        lambda x: F.pad(x.cumsum(1), (0, 0, 1, 0)),
        lambda x: F.pad(x.cumsum(1), (20, 0)),
        lambda x: F.pad(x.cumsum(1)[:, ::2], (1, 0)),
        # What a narrow type wraps is not what a wide one holds.
        lambda x: torch.cat(
            (torch.zeros(6, 1), (x * 50).to(torch.int8).cumsum(1, dtype=torch.int8)), 1
        ),
    ],
)
def test_what_is_no_such_scan_is_right_all_the_same(
    check: Check, forward: Callable[[torch.Tensor], Any]
) -> None:
    check(forward, r(6, 7))
