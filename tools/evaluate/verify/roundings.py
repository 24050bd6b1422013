"""A forward in which every operator's result is off by its rounding: how far a result may move.

`Altered` runs a forward with something done to single operators: rounded, or a term left out.
Operators are seen as a table breaks them down, so a layer norm shows its mean, its deviations and
its scale. Used on the float64 copy of a reference, never on what is compared with it. Not covered:
what stays one operator (products, convolutions, attention) is altered at its end. Exports carry
this file, so that their own check excuses what the judge excused, and nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from typing import cast

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

Table = Mapping[OpOverload, Callable[..., object]]

# These round nothing: they select, move, compare or make values.
_NAMES = (
    "abs amax amin arange argmax argmin as_strided bernoulli cat clamp clamp_max clamp_min clone "
    "constant_pad_nd contiguous copy cummax cummin detach diagonal embedding empty empty_like "
    "empty_strided expand eye fill flip full full_like gather index index_put index_select "
    "lift_fresh masked_fill max max_pool2d_with_indices max_pool3d_with_indices maximum min "
    "minimum neg new_empty new_full new_ones new_zeros normal ones ones_like permute rand "
    "rand_like randint randint_like randn randn_like randperm relu repeat roll "
    "round scalar_tensor scatter select_scatter sign slice_scatter sort split stack topk tril "
    "triu where zero zeros zeros_like _to_copy _local_scalar_dense"
)
_EXACT = frozenset(_NAMES.split())
_SUMS = frozenset(("sum", "mean", "cumsum", "var", "var_mean"))
_SLACK, _MOST_STEPS = 1.5, 32.0


class Altered(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, every operator that is not broken down further goes through `alter`.

    Args:
        smaller: What operators are broken down into.
    """

    def __init__(self, smaller: Table) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._smaller = smaller

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run the operator, in smaller ones where it has them, and alter what it gives."""
        smaller = self._smaller.get(func)
        if smaller is not None:
            with self:
                return smaller(*args, **(kwargs or {}))
        return self.alter(func, args, kwargs or {})

    def alter(
        self, func: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """What to give instead of the operator's result."""
        raise NotImplementedError


class Rounded(Altered):  # type: ignore[no-untyped-call]
    """Every result is off by at most as much as a kernel in the task's type may be.

    An operator on elements by one rounding; a sum by as many as adding up in a plain order costs
    on average, the root of its length and half again (equal terms are all rounded the same way),
    but by 32 at most: a long sum is no excuse for leaving part of it out.

    Args:
        seed: of the noise.
        unit: half the distance between neighbours of 1 in the type.
        smaller: What operators are broken down into.
    """

    def __init__(self, seed: int, unit: float, smaller: Table) -> None:
        super().__init__(smaller)
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
        made = result if isinstance(result, (tuple, list)) else (result,)
        parts = [part for part in map(_real, made) if part is not None]
        sums = name in _SUMS and parts and not any(_is_complex(part) for part in made)
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


def _is_complex(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_complex()


def _real(value: object) -> Tensor | None:
    """A tensor of fractions to add noise to, of a complex one both parts; None for others."""
    if not isinstance(value, Tensor):
        return None
    if value.is_complex() and not value.is_conj():
        return torch.view_as_real(value)
    return value if value.is_floating_point() else None


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


_NORMS = (
    "_softmax", "_log_softmax", "native_layer_norm", "native_group_norm", "native_batch_norm",
    "_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "_batch_norm_with_update",
    "_fused_rms_norm", "cudnn_batch_norm", "linalg_vector_norm", "mse_loss", "huber_loss",
    "smooth_l1_loss",
)  # fmt: skip


def plain_table() -> Table:
    """PyTorch's own rules for what sums along the way; for those who do not trace as we do."""
    aten = torch.ops.aten
    packets = [getattr(aten, name) for name in _NORMS if hasattr(aten, name)]
    return cast("Table", torch._decomp.get_decompositions(packets))
