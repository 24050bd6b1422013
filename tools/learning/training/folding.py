"""An adapter worked into its model's weights for as long as answers are sampled.

An adapter that is applied beside its layers doubles the launches of every token, and a small model
waits for launches alone. Adding and subtracting it again would round the weights a little further
each time, so they are kept and put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@contextmanager
def folded(model: PreTrainedModel) -> Iterator[None]:
    """The model with its adapter in its weights; afterwards both are bit for bit what they were.

    Args:
        model: With an adapter of PEFT's, or without one, where nothing is done.
    """
    from peft import PeftModel

    if not isinstance(model, PeftModel):
        yield
        return
    kept = [(weight, weight.detach().clone()) for weight in _adapted(model)]
    try:
        model.merge_adapter()  # which may lack memory when some layers are merged already
        yield
    finally:
        try:
            model.unmerge_adapter()
        finally:
            for weight, before in kept:
                weight.data.copy_(before)


def _adapted(model: PreTrainedModel) -> Iterator[torch.nn.Parameter]:
    """The weights that an adapter changes."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    for module in model.modules():
        if isinstance(module, BaseTunerLayer):
            yield module.get_base_layer().weight
