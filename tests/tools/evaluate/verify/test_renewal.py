"""Other values before every timed sample: no row is left as it was, and no value is a new one."""

import random

import pytest
import torch

from kernelwright.tools.evaluate.verify.reference_runtime import renew


@pytest.mark.parametrize("seed", range(8))
def test_no_row_of_an_input_is_left_as_it_was(seed):
    values = torch.randn(97, 33, generator=torch.Generator().manual_seed(seed))
    before = values.clone()
    renew(values, "any", random.Random(seed))
    # Whoever keeps answers for rows, wherever they now lie, finds none.
    kept = {tuple(row.tolist()) for row in before}
    assert not any(tuple(row.tolist()) in kept for row in values[:-2])
    assert set(values.flatten().tolist()) <= set(before.flatten().tolist())


def test_what_is_in_an_order_stays_in_it():
    values = torch.arange(64)
    renew(values, "sorted", random.Random(1))
    assert torch.equal(values, torch.arange(64))


def test_numbers_of_eight_bits_move_on_too():
    """As bytes, in which they are the same: a GPU turns no floats of eight bits."""
    values = torch.arange(64, dtype=torch.float32).to(torch.float8_e4m3fn)
    before = values.clone()
    renew(values, "any", random.Random(1))
    assert not torch.equal(values.view(torch.uint8), before.view(torch.uint8))
    assert set(values.view(torch.uint8).tolist()) <= set(before.view(torch.uint8).tolist())
