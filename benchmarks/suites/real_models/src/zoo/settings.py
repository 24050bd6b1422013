"""What the models are built at: a data file beside the code, as projects have them.

`settings.json` names the size (`small` for a CPU, `real` for a GPU) and the type of the weights.
"""

import json
from pathlib import Path

import torch
from torch import nn

_READ = json.loads((Path(__file__).parent / "settings.json").read_text())
DTYPE: torch.dtype = getattr(torch, _READ["dtype"])


def pick(small: int, real: int) -> int:
    """The number of this size."""
    return small if _READ["size"] == "small" else real


def ready(model: nn.Module) -> nn.Module:
    """A model in evaluation mode, of the type that was asked for."""
    return model.eval().to(DTYPE)


def draw(*shape: int) -> torch.Tensor:
    """Normal values of the models' type."""
    return torch.randn(shape).to(DTYPE)
