"""The reference's forward with something done to single operators: rounded, or a term left out.

Operators are seen as tracing breaks them down, so a layer norm shows its mean, its deviations and
its scale. Used on the float64 copy of a reference, never on what is compared with it.
Not covered: what stays one operator (products, convolutions, attention) is altered at its end.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import sqrt

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.tools.tasks.decompositions import decompositions
from kernelwright.tools.types.operators import words

# These round nothing: they select, move, compare or make values.
_EXACT = words(
    "abs amax amin arange argmax argmin as_strided bernoulli cat clamp clamp_max clamp_min clone "
    "constant_pad_nd contiguous copy cummax cummin detach diagonal embedding empty empty_like "
    "empty_strided expand eye fill flip full full_like gather index index_put index_select "
    "lift_fresh masked_fill max max_pool2d_with_indices max_pool3d_with_indices maximum min "
    "minimum neg new_empty new_full new_ones new_zeros ones ones_like permute relu repeat roll "
    "round scalar_tensor scatter select_scatter sign slice_scatter sort split stack topk tril "
    "triu where zero zeros zeros_like _to_copy _local_scalar_dense"
)
_SUMS = words("sum mean cumsum var var_mean")
_SLACK, _MOST_STEPS = 1.5, 32.0


class Altered(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, every operator that is not broken down further goes through `alter`."""

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run the operator, in smaller ones where it has them, and alter what it gives."""
        smaller = _table().get(func)
        if smaller is not None:
            with self:
                return smaller(*args, **(kwargs or {}))
        return self.alter(func, args, kwargs or {})

    def alter(
        self, func: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """What to give instead of the operator's result."""
        raise NotImplementedError


class Rounded(Altered):
    """Every result is off by at most as much as a kernel in the task's type may be.

    An operator on elements by one rounding; a sum by as many as adding up in a plain order costs
    on average, the root of its length and half again (equal terms are all rounded the same way),
    but by 32 at most: a long sum is no excuse for leaving part of it out.

    Args:
        seed: of the noise.
        unit: half the distance between neighbours of 1 in the type.
    """

    def __init__(self, seed: int, unit: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed
        self._unit = unit
        self._sources: dict[torch.device, torch.Generator] = {}

    def alter(
        self, func: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """The result, with noise of the size of its rounding."""
        result = func(*args, **kwargs)
        name = plain_name(func)
        if func.is_view or name in _EXACT:
            return result
        parts = [
            part
            for part in (result if isinstance(result, (tuple, list)) else (result,))
            if isinstance(part, Tensor) and part.is_floating_point()
        ]
        sums = name in _SUMS and parts
        sizes = _spreads(func, args, kwargs, parts) if sums else [part.abs() for part in parts]
        for part, size in zip(parts, sizes, strict=True):
            noise = self._noise(part).mul_(size).mul_(self._unit)
            part.add_(torch.where(torch.isfinite(noise), noise, 0.0))
        return result

    def _noise(self, like: Tensor) -> Tensor:
        """1 or -1, at random: a size drawn as well would be a matter of luck again."""
        device = like.device
        if device not in self._sources:
            self._sources[device] = torch.Generator(device).manual_seed(self._seed)
        source = self._sources[device]
        drawn = torch.rand(like.shape, generator=source, device=device, dtype=like.dtype)
        return drawn.sub_(0.5).sign_()


def _spreads(
    func: OpOverload,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    results: Sequence[Tensor],
) -> list[Tensor]:
    """The sizes of sums' roundings, in roundings: of the sum and of its terms' root of squares."""
    terms = args[0]
    assert isinstance(terms, Tensor)
    name = plain_name(func)
    running = name == "cumsum" and isinstance(args[1], int)
    count = terms.shape[args[1]] if running else terms.numel() / max(1, results[0].numel())  # type: ignore[call-overload]
    steps = min(_SLACK * sqrt(count), _MOST_STEPS)
    if name in ("var", "var_mean"):
        return _of_variance(args, kwargs, results, steps, steps / sqrt(max(count, 1)))
    if name == "mean":
        return [results[0].abs() * steps]
    squares = func(terms.detach() ** 2, *args[1:], **kwargs)
    return [torch.hypot(results[0], squares.sqrt()) * steps]


def _of_variance(
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    results: Sequence[Tensor],
    steps: float,
    each: float,
) -> list[Tensor]:
    """Deviations are from a mean that is rounded itself, in one pass once for every term."""
    dims = args[1] if len(args) > 1 else kwargs.get("dim")
    keep = kwargs.get("keepdim", False)
    mean = results[1] if len(results) > 1 else torch.mean(args[0], dims, keepdim=keep)  # type: ignore[call-overload]
    variance = results[0]
    spread = variance * steps + 2 * variance.clamp_min(0).sqrt() * mean.abs() * each
    return [spread, torch.hypot(mean, variance.sqrt()) * steps][: len(results)]


def plain_name(func: OpOverload) -> str:
    """As in the lists above, for the operator in place as well."""
    name = str(func.overloadpacket.__name__)
    return name if name.startswith("_") or not name.endswith("_") else name.rstrip("_")


@cache
def _table() -> Mapping[OpOverload, Callable[..., object]]:
    return decompositions()
