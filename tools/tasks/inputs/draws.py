"""Draws fresh inputs for a task, the same for the same task, distribution, seed and device.

"task" calls the file's own get_inputs under the seed. The others replace floating tensors by
values that a wrong kernel is likely to get wrong, within the input's domain, made directly on
the device. Integers stay in the closed range that the task's own had, booleans keep their mean,
plain scalars never change.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import nullcontext

import torch

from kernelwright.tools.tasks.inputs.variations import DISTRIBUTIONS, PROBES, SHORTENED
from kernelwright.tools.tasks.loading.modules import build_call
from kernelwright.tools.tasks.loading.user_file import load_module
from kernelwright.tools.types import Domain, InputSpec, RefusedError, Task

Drawn = torch.Tensor | bool | int | float | str | None


def draw(task: Task, distribution: str, seed: int, device: str) -> list[Drawn]:
    """Fresh arguments in the order of the forward's.

    Raises:
        ValueError: the distribution does not exist.
        RefusedError: the file's own get_inputs fails here.
    """
    if distribution not in (*DISTRIBUTIONS, *PROBES, SHORTENED):
        known = ", ".join(DISTRIBUTIONS)
        raise ValueError(f"unknown distribution {distribution!r}; known are {known}")
    if distribution == "task":
        return _own(task, seed, device)
    if distribution == SHORTENED:
        own_values = zip(task.inputs, _own(task, seed, device), strict=True)
        return [_shortened(spec, value) for spec, value in own_values]
    generator = torch.Generator(device)
    generator.manual_seed(zlib.crc32(f"{distribution}:{seed}".encode()))
    own = _own(task, seed, device) if _needs_own(task) else None
    return [
        own[i]
        if own is not None and _unknown_integers(spec)
        else _fresh(spec, distribution, generator)
        for i, spec in enumerate(task.inputs)
    ]


def _own(task: Task, seed: int, device: str) -> list[Drawn]:
    """The file's own draw, on the device where its code allows that."""
    file = load_module(task.source, task.path, task.project)
    on_device = torch.device(device) if device != "cpu" else nullcontext()
    try:
        with on_device:
            values = build_call(file, task.input_override, seed, task.batch)[0]
    except RefusedError:
        values = build_call(file, task.input_override, seed, task.batch)[0]
    return [v.to(device) if isinstance(v, torch.Tensor) else v for v in values]  # type: ignore[misc]


def _shortened(spec: InputSpec, value: Drawn) -> Drawn:
    """A floating input with the significand of the probe; zeros, infinities and signs stay."""
    if spec.domain != "any" or not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    assert spec.tensor is not None
    return _laid_out(with_short_significands(value), spec.tensor.strides)


def with_short_significands(values: torch.Tensor) -> torch.Tensor:
    """Floating values as 1 + 2^-9 + 2^-12 times the power of two at or below each of them.

    Bfloat16, half precision and TF32 lose their last digits, all in the same direction. Zeros,
    infinities and signs stay.
    """
    wide = values if values.dtype is torch.float64 else values.float()
    short = wide.abs().log2().floor_().exp2_().mul_(_SHORT).copysign_(wide)
    return torch.where((wide == 0) | ~wide.isfinite(), wide, short).to(values.dtype)


def _needs_own(task: Task) -> bool:
    return any(_unknown_integers(spec) for spec in task.inputs)


def _unknown_integers(spec: InputSpec) -> bool:
    """Integers whose range was never seen can only come from the file itself."""
    return spec.tensor is not None and not spec.tensor.dtype.is_floating and spec.minimum is None


def _fresh(spec: InputSpec, distribution: str, generator: torch.Generator) -> Drawn:
    if spec.tensor is None:
        return spec.scalar
    dtype: torch.dtype = getattr(torch, spec.tensor.dtype.value)
    if dtype.is_floating_point:
        values = _FLOATING[distribution](spec.tensor.shape, dtype, generator)
        if distribution == "short_significand":
            # Within (0, 1) already: a sigmoid would fill the digits that are empty. What is to sum
            # up to one cannot keep them; other inputs do.
            values = values if spec.domain == "any" else values.abs()
            if spec.domain == "distribution":
                values = _into_domain(values, spec.domain)
        else:
            values = _into_domain(values, spec.domain)
        if dtype is torch.float8_e4m3fn:  # which has no infinities: what is beyond would be NaN
            values = values.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max)
        values = values.to(dtype)
    elif dtype is torch.bool:
        uniform = torch.rand(spec.tensor.shape, generator=generator, device=generator.device)
        values = uniform < (0.5 if spec.mean is None else spec.mean)
    else:
        values = _integers(spec, generator).to(dtype)
    return _laid_out(values, spec.tensor.strides)


def _laid_out(values: torch.Tensor, strides: tuple[int, ...] | None) -> torch.Tensor:
    if strides is None:
        return values.contiguous()
    if 0 in strides:  # an expanded input: its repeated positions share memory
        first = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
        return values[first].contiguous().expand(values.shape)
    target = torch.empty_strided(values.shape, strides, dtype=values.dtype, device=values.device)
    return target.copy_(values)


def _integers(spec: InputSpec, generator: torch.Generator) -> torch.Tensor:
    """Uniform in the closed range, ascending or all different where the task's own were."""
    assert spec.tensor is not None
    assert spec.minimum is not None
    assert spec.maximum is not None
    low, high = int(spec.minimum), int(spec.maximum)
    device = generator.device
    if spec.domain == "permutation" and spec.tensor.numel == high - low + 1:
        return torch.randperm(spec.tensor.numel, generator=generator, device=device) + low
    values = torch.randint(low, high + 1, spec.tensor.shape, generator=generator, device=device)
    if spec.domain != "sorted":
        return values
    values = values.sort().values
    values[0] = low  # offsets start where the task's own do
    return values


def _into_domain(values: torch.Tensor, domain: Domain) -> torch.Tensor:
    if domain == "nonnegative":
        return values.abs()
    if domain == "unit":
        return torch.sigmoid(values)
    if domain == "distribution" and values.dim():
        return torch.softmax(values, dim=-1)
    return values


Shape = tuple[int, ...]
# An unshifted exponential overflows of it in single precision, in float16 its square does not.
_OUTLIER, _OF_OUTLIERS = 100.0, 65_536
_SHORT = 1 + 2.0**-9 + 2.0**-12  # both small bits are lost in bfloat16, the last in half and TF32


def _normal(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    return torch.randn(shape, generator=generator, device=generator.device, dtype=wide)


def _large_offset(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Far from zero: a variance by E[x^2] - E[x]^2 cancels, an unshifted exponential overflows."""
    return _normal(shape, dtype, generator) + (100.0 if dtype is torch.float16 else 1000.0)


def _heavy_tail(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Cauchy-like: a few values dominate every sum."""
    values = _normal(shape, dtype, generator)
    return values.div_(_normal(shape, dtype, generator).abs_().clamp_min_(1e-3))


def _outliers(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Normal but for one value in 65,536, one at least, which hardly shows in sums and means."""
    values = _normal(shape, dtype, generator)
    count, device = values.numel(), generator.device
    if count:
        several = (1 + count // _OF_OUTLIERS,)
        places = torch.randint(0, count, several, generator=generator, device=device)
        sign = torch.randint(0, 2, several, generator=generator, device=device) * 2 - 1
        values.view(-1)[places] = _OUTLIER * sign.to(values.dtype)
        values.view(-1)[places[:1]] = _OUTLIER
    return values


def _tiny(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """So small that an epsilon in the wrong place decides the result."""
    return _normal(shape, dtype, generator).mul_(1e-4 if dtype is torch.float16 else 1e-6)


def _constant_rows(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """The trailing half of the dimensions does not vary: variances are zero, maxima tie."""
    leading = len(shape) // 2
    few = shape[:leading] + (1,) * (len(shape) - leading)
    return _normal(few, dtype, generator).expand(shape).clone()


def _extremes(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Normal values with zeros, tiny and large ones strewn in."""
    values = _normal(shape, dtype, generator)
    device = generator.device
    choice = torch.randint(0, 32, shape, generator=generator, device=device, dtype=torch.uint8)
    large = 1e3 if dtype is torch.float16 else 1e4
    # Chosen by what they are, and not by a list of where they are, which takes the device long.
    values = torch.where(choice == 0, values * large, values)
    values = torch.where(choice == 2, values * 1e-30, values)
    return values.masked_fill_(choice == 1, 0.0)


def _masked(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """A quarter of the values is -inf, but never the first of a row."""
    values = _normal(shape, dtype, generator)
    hidden = torch.rand(shape, generator=generator, device=generator.device) < 0.25
    if shape:
        hidden[..., 0] = False
    return values.masked_fill_(hidden, float("-inf"))


def _short_significand(
    shape: Shape, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """1 + 2^-9 + 2^-12 times powers of two: bfloat16 loses both small bits, TF32 and half the last.

    All lose them in the same direction, so that no sum averages the loss away.
    """
    device = generator.device
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    values = torch.empty(shape, dtype=wide, device=device)
    values.random_(-3, 0, generator=generator).exp2_().mul_(_SHORT)
    sign = torch.randint(0, 2, shape, generator=generator, device=device, dtype=torch.int8)
    return values.mul_(sign.mul_(2).sub_(1))


def _large_scale(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Beyond what half precision can hold, for types that can hold it."""
    return _normal(shape, dtype, generator).mul_(1e3 if dtype is torch.float16 else 1e5)


def _small_scale(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Where half precision has few digits left."""
    return _normal(shape, dtype, generator).mul_(1e-4 if dtype is torch.float16 else 1e-6)


_FLOATING: dict[str, Callable[[Shape, torch.dtype, torch.Generator], torch.Tensor]] = {
    "normal": _normal,
    "large_offset": _large_offset,
    "heavy_tail": _heavy_tail,
    "outliers": _outliers,
    "tiny": _tiny,
    "constant_rows": _constant_rows,
    "extremes": _extremes,
    "masked": _masked,
    "short_significand": _short_significand,
    "large_scale": _large_scale,
    "small_scale": _small_scale,
}
