"""Decides which inputs must keep to the domain that the task's own values had.

Most tasks draw from [0, 1] out of habit; few need it. An input needs its domain when it reaches
an operator that is undefined elsewhere, or when the reference, run on normal values instead,
raises or returns something that is not finite (a loss that insists on probabilities).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.tools.tasks.refusals import RefusedError
from kernelwright.tools.tasks.signs import inputs_in_need_of_a_domain
from kernelwright.tools.tasks.trial import Trial
from kernelwright.tools.types import Graph, InputSpec


def keep_needed_domains(
    specs: tuple[InputSpec, ...], graph: Graph, trial: Trial | None
) -> tuple[InputSpec, ...]:
    """The inputs with `domain` set to "any" where the forward does not mind."""
    needy = inputs_in_need_of_a_domain(graph)
    return tuple(
        spec
        if spec.name in needy or not _is_bounded(spec) or _insists(trial, position)
        else spec.model_copy(update={"domain": "any"})
        for position, spec in enumerate(specs)
    )


def _is_bounded(spec: InputSpec) -> bool:
    floating = spec.tensor is not None and spec.tensor.dtype.is_floating
    return floating and spec.domain != "any"


def _insists(trial: Trial | None, position: int) -> bool:
    """Whether the forward fails once this input is normal; False where it cannot be tried."""
    if trial is None or not _is_finite(trial, trial.samples):
        return False
    values = list(trial.samples)
    sample = values[position]
    assert isinstance(sample, torch.Tensor)
    values[position] = torch.randn(sample.shape, device=sample.device).to(sample.dtype)
    return not _is_finite(trial, values)


def _is_finite(trial: Trial, values: Sequence[object]) -> bool:
    try:
        outputs = trial.run(values)
    except RefusedError:
        return False
    return all(bool(torch.isfinite(output).all()) for output in outputs)
