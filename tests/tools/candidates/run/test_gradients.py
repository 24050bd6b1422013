"""What is timed is called without autograd's records, and autograd is as before afterwards."""

import pytest
import torch

from kernelwright.tools.candidates.run.arguments import without_gradients


def doubled(x: torch.Tensor) -> torch.Tensor:
    assert not torch.is_grad_enabled()
    return x * 2


def failing() -> None:
    raise ValueError("as always")


@pytest.mark.parametrize("before", [True, False])
def test_nothing_is_recorded_and_the_mode_is_what_it_was(before: bool) -> None:
    with torch.set_grad_enabled(before):
        y = without_gradients(doubled, [torch.ones(3, requires_grad=True)])
        assert torch.is_grad_enabled() is before
        with pytest.raises(ValueError, match="as always"):
            without_gradients(failing, ())
        assert torch.is_grad_enabled() is before
    assert isinstance(y, torch.Tensor)
    assert not y.requires_grad
