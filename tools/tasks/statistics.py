"""What a task's own inputs look like: range, mean, spread, and the domain they keep to."""

from __future__ import annotations

import math

import torch

from kernelwright.tools.tasks.convert import tensor_spec
from kernelwright.tools.types import Domain, InputSpec

_LARGEST_SAMPLE = 2**22


def input_spec(name: str, value: object, sample: object) -> InputSpec:
    """Describe one argument; `sample` has real values, perhaps of another shape, or is None."""
    if not isinstance(value, torch.Tensor):
        assert value is None or isinstance(value, (bool, int, float, str))
        return InputSpec(name=name, scalar=value)
    spec = tensor_spec(value, with_strides=True)
    if not isinstance(sample, torch.Tensor) or sample.numel() == 0:
        return InputSpec(name=name, tensor=spec)
    low, high = (float(v) for v in torch.aminmax(_orderable(sample)))
    some = _thinned(sample).double()
    return InputSpec(
        name=name,
        tensor=spec,
        minimum=low,
        maximum=high,
        mean=_finite(some.mean()),
        standard_deviation=_finite(some.std(correction=0)),
        domain=_domain(sample, low, high),
    )


def _orderable(sample: torch.Tensor) -> torch.Tensor:
    return sample.to(torch.uint8) if sample.dtype is torch.bool else sample


def _thinned(sample: torch.Tensor) -> torch.Tensor:
    """Evenly spaced values, enough for a mean."""
    flat = sample.reshape(-1)
    return flat[:: max(1, flat.numel() // _LARGEST_SAMPLE)]


def _finite(value: torch.Tensor) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _domain(sample: torch.Tensor, low: float, high: float) -> Domain:
    if sample.dtype is torch.bool or not math.isfinite(low):
        return "any"
    if not sample.dtype.is_floating_point:
        return _integer_domain(sample, low, high)
    if low < 0:
        return "any"
    if high <= 1 and _rows_sum_to_one(sample):
        return "distribution"
    return "unit" if high <= 1 else "nonnegative"


def _rows_sum_to_one(sample: torch.Tensor) -> bool:
    if sample.dim() == 0 or sample.shape[-1] < 2:
        return False
    rows = sample.reshape(-1, sample.shape[-1])[:64].double()
    tolerance = 16 * torch.finfo(sample.dtype).eps * math.sqrt(sample.shape[-1])
    return bool((rows.sum(-1) - 1).abs().max() <= tolerance)


def _integer_domain(sample: torch.Tensor, low: float, high: float) -> Domain:
    """Offsets ascend; a permutation has each value of its range once."""
    if sample.dim() != 1 or sample.numel() < 3:
        return "any"
    values = sample.to(torch.int64)
    if bool((values.diff() >= 0).all()) and high > low:
        return "sorted"
    once = values.numel() == high - low + 1 and bool((values.sort().values.diff() == 1).all())
    return "permutation" if once else "any"
