"""Problems of the round `convolutions`: of the shapes that networks and suites have.

Truth is the same call in float64, some images at a time; `eager` is the library's convolution, in
float32 as PyTorch computes it, which is TF32. Those of names that end in "exact" are in files that
rule it out; transposed ones in groups that move by steps are so anyway. `CHOSEN` holds ways against
each other: results that leave by warps or by groups, a sample or every number looked at before
packing, tiles, one product or three, and the input read as it lies where windows have one position.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from strategies.calls import called
from strategies.loops import Problem

_F32, _F16, _BF16 = torch.float32, torch.float16, torch.bfloat16
_CALLS = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
_TURNED = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}
# Name, type, shapes of input and weight, and the call's keywords.
_PLAIN: tuple[tuple[str, torch.dtype, tuple[int, ...], tuple[int, ...], dict[str, object]], ...] = (
    ("conv_64", _F32, (16, 64, 256, 256), (128, 64, 3, 3), {"padding": 1}),
    ("conv_128", _F32, (64, 128, 56, 56), (128, 128, 3, 3), {"padding": 1}),
    ("conv_512", _F32, (64, 512, 7, 7), (512, 512, 3, 3), {"padding": 1}),
    ("conv_strided", _F32, (64, 128, 56, 56), (256, 128, 3, 3), {"padding": 1, "stride": 2}),
    ("conv_first", _F32, (128, 3, 224, 224), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
    ("conv_point", _F32, (16, 64, 512, 512), (64, 64, 1, 1), {}),
    ("conv_point_far", _F32, (16, 64, 1024, 1024), (128, 64, 1, 1), {}),
    ("conv_point_256", _F32, (64, 256, 56, 56), (256, 256, 1, 1), {}),
    ("conv_wide", _F32, (8, 32, 512, 512), (64, 32, 5, 9), {"padding": (2, 4), "dilation": (2, 3)}),
    ("conv_16", _F32, (8, 16, 1024, 1024), (128, 16, 3, 3), {}),
    ("conv_volume", _F32, (16, 32, 48, 48, 48), (64, 32, 3, 3, 3), {"padding": 1}),
    ("conv_volume_first", _F32, (16, 3, 64, 64, 64), (64, 3, 3, 5, 7), {}),
    ("conv_line", _F32, (16, 32, 131072), (64, 32, 3), {"padding": 1}),
    ("conv_grouped", _F32, (32, 128, 56, 56), (128, 4, 3, 3), {"padding": 1, "groups": 32}),
    ("conv_64_half", _F16, (16, 64, 256, 256), (128, 64, 3, 3), {"padding": 1}),
    ("conv_128_half", _BF16, (64, 128, 56, 56), (128, 128, 3, 3), {"padding": 1}),
)
_TRANSPOSED: tuple[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, object]], ...] = (
    ("turned_64", (8, 64, 512, 512), (64, 64, 3, 3), {}),
    ("turned_volume", (8, 32, 32, 32, 32), (32, 64, 3, 3, 3), {}),
    ("turned_steps", (16, 64, 128, 128), (64, 64, 4, 4), {"stride": 2, "padding": 1}),
    ("turned_far", (16, 32, 64, 128), (32, 64, 3, 3), {"stride": 5, "padding": 1, "dilation": 2}),
    (
        "turned_groups",
        (16, 32, 128, 256),
        (32, 16, 3, 5),
        {"stride": (2, 3), "padding": (1, 2), "dilation": (2, 1), "groups": 4},
    ),
    (
        "turned_volume_groups",
        (8, 32, 12, 24, 48),
        (32, 8, 3, 5, 7),
        {"stride": 2, "padding": (1, 2, 3), "output_padding": 1, "groups": 4},
    ),
)
# Those that are also run with TF32 ruled out.
_EXACT = ("conv_64", "conv_128", "conv_strided", "conv_first", "conv_16", "conv_volume")


def _convolution(
    name: str,
    dtype: torch.dtype,
    x: tuple[int, ...],
    weight: tuple[int, ...],
    more: dict[str, object],
    *,
    tf32: bool = True,
) -> Problem:
    def call(data: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
        return _CALLS[len(x)](data, kernel, **more)

    return called(name, call, x, weight, dtype=dtype, convolutions=True, products=True, tf32=tf32)


def _transposed(
    name: str, x: tuple[int, ...], weight: tuple[int, ...], more: dict[str, object]
) -> Problem:
    def call(data: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
        return _TURNED[len(x)](data, kernel, **more)

    return called(name, call, x, weight, convolutions=True, products=True)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    **{name: lambda one=(name, *rest): _convolution(*one) for name, *rest in _PLAIN},
    **{name: lambda one=(name, *rest): _transposed(*one) for name, *rest in _TRANSPOSED},
    **{
        f"{name}_exact": lambda one=(f"{name}_exact", *rest): _convolution(*one, tf32=False)
        for name, *rest in _PLAIN
        if name in _EXACT
    },
}

# Part of a strategy's name, and what differs from its first setting.
_ONE = (
    ("wgmma_windows", ""),
    ("wgmma_windows", "TOGETHER=0 EVERY=1"),
    ("wgmma_windows", "TOGETHER=0"),
    ("wgmma_windows", "TOGETHER=1 SPAN=32 STAGES=4"),
    ("wgmma_windows", "EVERY=1"),
    ("wgmma_windows", "TILE=128128 GROUPS=2 STAGES=2"),
    ("wgmma_windows", "TILE=128128 GROUPS=2 STAGES=3 HELD=0"),
)
_THREE = (
    ("wgmma_windows_split", ""),
    ("wgmma_windows_split", "TOGETHER=0"),
    ("wgmma_windows_split", "EVERY=1"),
    ("wgmma_windows_split", "TILE=64128 GROUPS=2 STAGES=2 HELD=0"),
    ("wgmma_windows_split", "TILE=64064 GROUPS=3 STAGES=2 HELD=0"),
)
_POINTS = (
    ("streamed_wgmma", ""),
    ("streamed_wgmma", "TILE=128064"),
    ("streamed_wgmma", "TILE=64128"),
    ("streamed_wgmma", "DIRECT=0"),
    ("streamed_wgmma", "STORES=1"),
    ("streamed_wgmma", "DIRECT=0 STORES=1"),
    ("wgmma_windows", ""),
    ("wgmma_windows", "EVERY=1"),
)


def _chosen(name: str) -> tuple[tuple[str, str], ...]:
    if name.endswith(("_exact", "_groups")):
        return _THREE
    if name.startswith("conv_point"):
        return _POINTS
    if name.endswith("_half"):
        # These are not scaled, and nothing is looked at before they are packed.
        return tuple((word, changes) for word, changes in _ONE if "EVERY" not in changes)
    return (*_ONE, _THREE[0])


CHOSEN = tuple((name, *one) for name in PROBLEMS for one in _chosen(name))
