"""Indexed reads, concatenation, padding and partial replacement of tensors."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

Check = Callable[..., Any]
r = torch.randn


def test_gather_reads_what_was_computed(check: Check) -> None:
    index = torch.randint(0, 6, (4, 3))
    assert check(lambda x, i: torch.exp(x).gather(1, i) + 1, r(4, 6), index).families == [
        "pointwise"
    ]


def test_gather_of_fewer_rows(check: Check) -> None:
    check(lambda x, i: x.gather(0, i), r(4, 6), torch.randint(0, 4, (2, 5)))


def test_index_select_and_negative_indices(check: Check) -> None:
    check(lambda x, i: (x.index_select(0, i), x[:, i]), r(4, 6), torch.tensor([0, 2, 3]))
    check(lambda x, i: torch.relu(x)[:, i] + 1, r(4, 6), torch.tensor([0, -1, 2]))


def test_two_index_tensors_broadcast(check: Check) -> None:
    rows, columns = torch.tensor([[0], [2]]), torch.tensor([1, -2, 3])
    check(lambda x, i, j: (x[i, j], x[:, i, j], x[i, :, j]), r(4, 5, 6), rows, columns)


def test_embedding_of_a_batch(check: Check) -> None:
    check(lambda w, i: F.embedding(i, w) * 2, r(11, 8), torch.randint(0, 11, (3, 4)))


def test_pieces_are_written_into_their_places(check: Check) -> None:
    check(lambda x, y: torch.cat([torch.relu(x), y * 2, x], 1), r(4, 3), r(4, 5))
    check(lambda x, y: torch.stack([x, y], 1).softmax(1), r(4, 3), r(4, 3))


def test_pieces_that_are_constant_are_not_stored(check: Check) -> None:
    ones = torch.ones(4, 2)
    checked = check(lambda x: torch.cat([ones, torch.exp(x), ones * 3], 1) * 2, r(4, 3))
    assert checked.families == ["pointwise"]


def test_padding_on_both_sides_and_none(check: Check) -> None:
    check(
        lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 0, 2, 1), value=3.0), F.pad(x, (-1, 1))), r(4, 3)
    )


def test_slices_assigned_to(check: Check) -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = x.clone()
        out[:, 1:3] = y
        out[0] = 1.0
        out[:, ::2] *= 2
        return out

    check(forward, r(4, 5), r(4, 2))


def test_triangles_and_identities(check: Check) -> None:
    check(lambda x: (torch.tril(x), torch.triu(x, 1), torch.eye(6) + x), r(6, 6))


def test_ranges(check: Check) -> None:
    check(lambda x: x * torch.arange(5) + torch.arange(0.5, 3.0, 0.5), r(4, 5))
