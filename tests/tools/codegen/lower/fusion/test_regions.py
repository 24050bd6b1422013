"""A nest that chooses by position is cut where that saves a tensor, and only there."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

Check = Callable[..., Any]
r = torch.randn


def writers(checked: Any, name: str) -> int:
    """How many loops write a buffer."""
    stores = [{store.access.buffer for store in loop.stores} for loop in checked.program.loops]
    return sum(name in buffers for buffers in stores)


def stored(checked: Any) -> set[str]:
    """Every buffer that loops write."""
    loops = checked.program.loops
    return {store.access.buffer for loop in loops for store in loop.stores}


def test_loops_of_other_shapes_write_parts_of_one_tensor(check: Check) -> None:
    checked = check(
        lambda x, y, z: torch.cat((torch.cat((x.softmax(1), y), 1), F.normalize(z)), 1),
        r(8, 600), r(8, 500), r(8, 700),
    )  # fmt: skip
    (made,) = stored(checked)
    assert writers(checked, made) == len(checked.program.loops) == 3


def test_a_piece_that_is_also_returned_is_written_twice_by_one_loop(check: Check) -> None:
    checked = check(lambda x: (s := x.softmax(1), F.pad(s, (1, 0)), torch.cat((s, s), 1)), r(8, 60))
    assert checked.families == ["softmax"]
    assert len(stored(checked)) == 3


def test_numbers_of_a_row_are_written_beside_it(check: Check) -> None:
    checked = check(
        lambda x: torch.cat((x.mean(1, keepdim=True), F.layer_norm(x, (60,)), x[:, :1]), 1),
        r(8, 60),
    )
    assert checked.families == ["normalisation"]


def test_pieces_along_every_dimension(check: Check) -> None:
    for dim in range(3):
        sizes = [[2 if at == dim else n for at, n in enumerate((4, 3, 5))] for _ in range(2)]
        check(
            lambda x, y, z, d=dim: torch.relu(torch.cat((x.softmax(d), y, z.cumsum(d)), d)) * 2,
            r(4, 3, 5), r(sizes[0]), r(sizes[1]),
        )  # fmt: skip


def test_turned_and_strided_reads_of_pieces(check: Check) -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = torch.cat((x.softmax(1), y), 1)
        return made.flip(1) * 2, made[:, 1::2].exp(), made.t().contiguous(), made.reshape(-1) + 1

    check(forward, r(6, 8), r(6, 4))


def test_what_would_only_cost_launches_is_left_whole(check: Check) -> None:
    # Nine regions of an image, and a region too small to be worth a loop of its own.
    checked = check(lambda x: F.pad(F.instance_norm(x), (1, 1, 1, 1)), r(2, 3, 8, 8))
    assert len(checked.families) == 2
    checked = check(lambda x, y: torch.cat((x, y[:, :5]), 1).exp().cumsum(0), r(6, 8), r(6, 9))
    assert len(checked.families) <= 3
