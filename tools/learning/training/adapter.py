"""Adapters of low rank: put on a model, saved beside it, merged into it.

All linear layers but the output's are adapted, in float32 whatever the model is in.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.tools.learning.training.policy import Policy, need_extra

if TYPE_CHECKING:
    import torch

RANK = 16


def with_adapter(policy: Policy, rank: int = RANK) -> Policy:
    """The model with a new adapter that changes nothing yet; only the adapter is trained."""
    need_extra()
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return Policy(get_peft_model(policy.model, config), policy.tokenizer, policy.name)


def trained(policy: Policy) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """The weights that training changes, by name."""
    for name, weight in policy.model.named_parameters():
        if weight.requires_grad:
            yield name, weight


def save_adapter(policy: Policy, folder: Path, *, halved: bool = False) -> None:
    """Write the adapter as PEFT reads it; in bfloat16 where it is to be carried."""
    import torch
    from peft import get_peft_model_state_dict

    state = get_peft_model_state_dict(policy.model)
    if halved:
        state = {name: weight.to(torch.bfloat16) for name, weight in state.items()}
    policy.model.save_pretrained(folder, state_dict=state)


def save_merged(policy: Policy, folder: Path) -> None:
    """Write the model with its adapter worked in, as a model like any other."""
    policy.model.merge_and_unload().save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
