"""How operators are broken down: what moves memory into loops, what a library does better kept.

Activations, softmax, norms, losses and means become pointwise operators and reductions, so that one
scheduler can fuse them. Convolutions, products, pooling, sorting, attention and resampling stay one
operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import cast

import torch
from torch._decomp import get_decompositions
from torch._ops import OpOverload

from kernelwright.tools.types.graph import words

aten = torch.ops.aten
Table = dict[OpOverload, Callable[..., object]]

_BREAK_DOWN = words(
    "_softmax _log_softmax native_layer_norm _native_batch_norm_legit "
    "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training native_batch_norm "
    "_batch_norm_with_update _batch_norm_with_update_functional _batch_norm_no_update "
    "_fused_rms_norm elu gelu hardtanh leaky_relu linalg_vector_norm addmv dist tril_indices "
    "triu_indices unbind_copy nansum mse_loss huber_loss smooth_l1_loss soft_margin_loss "
    "binary_cross_entropy nll_loss_forward nll_loss2d_forward multi_margin_loss "
    "multilabel_margin_loss_forward glu silu mish hardswish hardsigmoid selu celu softplus "
    "softshrink hardshrink threshold log_sigmoid_forward logit logaddexp logaddexp2 xlogy lerp "
    "addcmul addcdiv heaviside nan_to_num frac deg2rad rad2deg sinc sgn isposinf isneginf square "
    "rsub clamp_min clamp_max fmin fmax narrow_copy permute_copy view_copy as_strided_copy "
    "rrelu_with_noise_backward"
)

_KEEP_WHOLE = words(
    "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention_for_cpu_backward embedding_dense_backward "
    "convolution_backward lstm gru rnn_tanh rnn_relu upsample_bilinear2d upsample_bicubic2d "
    "upsample_nearest1d upsample_nearest2d "
    "upsample_nearest3d upsample_linear1d upsample_trilinear3d _upsample_nearest_exact1d "
    "_upsample_nearest_exact2d _upsample_nearest_exact3d grid_sampler_2d im2col col2im "
    "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
    "replication_pad3d max_unpool2d max_unpool3d bernoulli renorm roll "
    # Broken down it is an index_put, which adds up in changing order on a CPU, as this does not.
    "index_add "
    # Of a turned tensor torch 2.11 breaks it down into a copy in place, which is no graph.
    "index_fill"
)


def decompositions() -> Table:
    """A fresh table for `run_decompositions` (which takes things out of it) and `make_fx`."""
    return dict(_table())


@cache
def _table() -> Table:
    table: Table = dict(torch.export.default_decompositions())
    packets = [getattr(aten, name) for name in sorted(_BREAK_DOWN) if hasattr(aten, name)]
    table.update(cast("Table", get_decompositions(packets)))
    for name in _KEEP_WHOLE:
        packet = getattr(aten, name)
        for overload in packet.overloads():
            table.pop(getattr(packet, overload), None)
    table.update(_OURS)
    return table


def _mean(
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """A sum in at least float32, divided by the count."""
    result = dtype or x.dtype
    dims = list(dim) if dim and x.dim() else list(range(x.dim()))
    count = math.prod(x.shape[d] for d in dims)
    half = result in (torch.float16, torch.bfloat16)
    total = aten.sum.dim_IntList(x, dims, keepdim, dtype=torch.float32 if half else result)
    mean: torch.Tensor = total / count
    return mean.to(result) if half else mean


def _mean_all(x: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    return _mean(x, dtype=dtype)


def _max_dim(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    return aten.amax(x, [dim], keepdim), aten.argmax(x, dim, keepdim)


def _min_dim(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    return aten.amin(x, [dim], keepdim), aten.argmin(x, dim, keepdim)


def _group_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    batch: int,
    channels: int,
    pixels: int,
    groups: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Subtract, then scale: torch's own fold into x * a + b cancels badly for large means."""
    wide = torch.promote_types(x.dtype, torch.float32)
    rows = aten.view(x.contiguous(), [batch, groups, channels // groups * pixels]).to(wide)
    variance, mean = aten.var_mean.correction(rows, [2], correction=0, keepdim=True)
    rstd = aten.rsqrt(variance + eps)
    out = aten.view((rows - mean) * rstd, x.shape)
    along_channels = [1, channels] + [1] * (x.dim() - 2)
    if weight is not None:
        out = out * aten.view(weight, along_channels)
    if bias is not None:
        out = out + aten.view(bias, along_channels)
    flat = [batch, groups]
    return out.to(x.dtype), aten.view(mean, flat).to(x.dtype), aten.view(rstd, flat).to(x.dtype)


def _shrink_backward(gradient: torch.Tensor, x: torch.Tensor, bound: float) -> torch.Tensor:
    """Of both shrinks: nothing comes back from within the bound, all from beyond it."""
    return torch.where(x.abs() <= bound, 0, gradient)


def _copy_of(view: OpOverload) -> Callable[..., object]:
    """What copies a view, or each of several."""

    def copied(*given: object, **named: object) -> object:
        made = view(*given, **named)
        return [one.clone() for one in made] if isinstance(made, (tuple, list)) else made.clone()

    return copied


_OURS: Table = {
    aten.hardshrink_backward.default: _shrink_backward,
    aten.softshrink_backward.default: _shrink_backward,
    aten.native_group_norm.default: _group_norm,
    aten.mean.dim: _mean,
    aten.mean.default: _mean_all,
    aten.max.dim: _max_dim,
    aten.min.dim: _min_dim,
    aten.max.default: lambda x: aten.amax(x, list(range(x.dim()))),
    aten.min.default: lambda x: aten.amin(x, list(range(x.dim()))),
    aten.select_copy.int: _copy_of(aten.select.int),
    aten.slice_copy.Tensor: _copy_of(aten.slice.Tensor),
    aten.split_copy.Tensor: _copy_of(aten.split.Tensor),
    aten.detach_copy.default: _copy_of(aten.alias.default),
    aten.view_as_real_copy.default: _copy_of(aten.view_as_real.default),
    aten.view_as_complex_copy.default: _copy_of(aten.view_as_complex.default),
    aten._conj_copy.default: _copy_of(aten._conj_physical.default),
    aten._neg_view_copy.default: aten.neg.default,
}
