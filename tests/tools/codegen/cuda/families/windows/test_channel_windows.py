"""Sums over windows where channels lie together, on the emulated device next to PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.families.windows.channel_windows import NAME
from kernelwright.tools.codegen.cuda.families.windows.window_sums import WINDOW_SUMS
from kernelwright.tools.codegen.ir import Loop, Program

Function = Callable[..., torch.Tensor]
BF16 = torch.bfloat16


def r(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def last(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    kind = torch.channels_last_3d if len(shape) == 5 else torch.channels_last
    return r(*shape, dtype=dtype).contiguous(memory_format=kind)


def rows(x: torch.Tensor) -> torch.Tensor:
    """The channels of a position together, as a norm over channels reads them."""
    return x.movedim(1, -1)


def slid(**numbers: object) -> Function:
    def call(x: torch.Tensor, w: torch.Tensor, *bias: torch.Tensor) -> torch.Tensor:
        call = F.conv3d if x.dim() == 5 else F.conv2d
        return F.silu(rows(call(x, w, *bias, groups=x.shape[1], **numbers)))

    return call


def added(x: torch.Tensor, w: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    """What follows reads as much as the windows write."""
    return rows(F.conv2d(x, w, padding=1, groups=x.shape[1])) + rows(residual)


def variance(x: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Two windows over the same samples."""
    one, two = (F.conv2d(z, k, padding=1, groups=x.shape[1]) for z, k in ((x, v), (x.square(), w)))
    return rows(two) - rows(one).square()


def means(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Windows along one axis, without weights."""
    return x.unfold(1, 5, 1).mean(-1) + bias


CASES: dict[str, tuple[Function, Sequence[torch.Tensor]]] = {
    "seven": (slid(padding=3), (last(2, 12, 15, 9), r(12, 1, 7, 7), r(12))),
    "halves by steps": (slid(stride=2, padding=1), (last(2, 10, 23, 18, dtype=BF16),
                                                    r(10, 1, 3, 3, dtype=BF16))),
    "odd channels": (slid(padding=(1, 2)), (last(1, 7, 9, 17), r(7, 1, 3, 5))),
    "one tile": (slid(padding=3), (last(3, 8, 7, 7, dtype=BF16), r(8, 1, 7, 7, dtype=BF16),
                                   r(8, dtype=BF16))),
    "many channels": (slid(padding=1), (last(1, 84, 6, 5), r(84, 1, 3, 3))),
    "dilated": (slid(padding=4, dilation=(3, 2)), (last(1, 8, 25, 19), r(8, 1, 4, 3))),
    "dilated by steps": (slid(stride=2, padding=3, dilation=3), (last(1, 4, 31, 21),
                                                                 r(4, 1, 5, 3))),
    "by unlike steps": (slid(stride=(3, 2), padding=2), (last(2, 4, 23, 20), r(4, 1, 5, 5), r(4))),
    "steps beyond the window": (slid(stride=(2, 3)), (last(1, 4, 23, 20), r(4, 1, 3, 2))),
    "without padding": (slid(), (last(2, 8, 13, 12).half(), r(8, 1, 5, 5).half())),
    "a volume": (slid(padding=(1, 0, 1)), (last(1, 4, 6, 7, 9), r(4, 1, 3, 2, 3), r(4))),
    "doubles": (slid(padding=1), (last(2, 4, 9, 8).double(), r(4, 1, 3, 3).double())),
    "a residual": (added, (last(2, 8, 9, 11), r(8, 1, 3, 3), last(2, 8, 9, 11))),
    "means": (means, (r(3, 40, 12), r(12))),
    "two windows": (variance, (last(1, 4, 10, 9), r(4, 1, 3, 3), r(4, 1, 3, 3))),
}  # fmt: skip
QUICK = ("seven", "halves by steps", "one tile")


def windows(program: Program) -> Loop:
    (loop,) = (loop for loop in program.loops if loop.inner)
    return loop


def some(listed: list[dict[str, int]], prefix: str) -> list[dict[str, int]]:
    """The first setting, the largest tile, and one of few threads along many outputs."""
    small = [one for one in listed if one[f"{prefix}_THREADS"] == 64]

    def tile(one: dict[str, int]) -> int:
        return one[f"{prefix}_VECTOR"] * one[f"{prefix}_OUTPUTS"] * one[f"{prefix}_ROWS"]

    return [small[0], max(small, key=tile), small[-1], small[len(small) // 2]]


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.exhaustive) for name in CASES],
)
def test_sums_of_channels_are_what_pytorch_says(
    name: str, toolbox: SimpleNamespace, small_device: Hardware, sliding: SimpleNamespace
) -> None:
    function, inputs = CASES[name]
    program = sliding.lowered(function, inputs, channels_last=True)
    loop = windows(program)
    variants = []
    for at in range(4):
        emitted, listed = sliding.printed(loop, NAME, f"k{at}", small_device)
        variants.append(sliding.Variant(emitted, some(listed, f"K{at}")[at]))
    toolbox.compile_emulated(variants)
    names = {stmt.access.buffer for stmt in loop.body if stmt.access}
    (made,) = {store.access.buffer for store in loop.stores}
    wanted = function(*(x.double() for x in inputs))
    rounding = {torch.float16: 4e-3, BF16: 2e-2, torch.float64: 1e-12}.get(inputs[0].dtype, 5e-5)
    for one in variants:
        buffers = {key: value for key, value in _given(program, inputs).items() if key in names}
        spec = program.buffer(made)
        buffers[made] = torch.full(spec.shape, float("nan"), dtype=inputs[0].dtype)
        sliding.ran(one, buffers, toolbox)
        got = buffers[made].double().reshape(wanted.shape)
        torch.testing.assert_close(got, wanted, rtol=rounding, atol=rounding)


def _given(program: Program, inputs: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The inputs, copies of them with channels last, and of the first one's squares."""
    found = dict(zip(program.parameters, inputs, strict=True))
    turned = {f"{n}_turned": x.movedim(1, -1).contiguous() for n, x in found.items() if x.dim() > 1}
    squares = inputs[0].square().movedim(1, -1).contiguous()
    return found | turned | {"pow_1_turned": squares}


@pytest.mark.parametrize(
    ("channels", "side", "size", "measured_us"),
    [(96, 56, 7, 85), (192, 28, 7, 57), (384, 14, 7, 35), (768, 7, 7, 19)],
)
def test_tiles_of_channels_are_expected_to_take_less_than_lines_of_them(
    channels: int, side: int, size: int, measured_us: float, sliding: SimpleNamespace
) -> None:
    """Of 64 images in bf16 on an H200; the library took 219, 121, 69 and 47 us for them."""
    x = torch.empty((64, channels, side, side), device="meta", dtype=BF16)
    x = x.to(memory_format=torch.channels_last)
    w = torch.empty((channels, 1, size, size), device="meta", dtype=BF16)
    loop = windows(sliding.lowered(slid(padding=size // 2), (x, w), channels_last=True))
    emitter, hopper = CudaEmitter(), hardware_profile("H200")
    times = {
        one.name: emitter.predicted_ms(loop, one, hopper)
        for one in emitter.strategies(loop, hopper)
    }
    assert [*times] == [NAME, WINDOW_SUMS], "the fastest first"
    assert times[NAME] * 1e3 == pytest.approx(measured_us, rel=0.2)
    assert times[WINDOW_SUMS] > 2 * times[NAME], "weights lie far apart"


def test_windows_whose_channels_lie_apart_have_no_such_strategy(sliding: SimpleNamespace) -> None:
    x = torch.empty((64, 96, 56, 56), device="meta")
    (loop,) = sliding.lowered(slid(padding=1), [x, torch.empty((96, 1, 3, 3))]).loops
    assert NAME not in {
        one.name for one in CudaEmitter().strategies(loop, hardware_profile("H200"))
    }


@pytest.mark.parametrize("step", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
async def test_a_tile_stays_in_registers(step: int, sliding: SimpleNamespace) -> None:
    x = torch.empty((64, 96, 56, 56), device="meta", dtype=BF16)
    x = x.to(memory_format=torch.channels_last)
    inputs = (
        x,
        *(torch.empty(shape, device="meta", dtype=BF16) for shape in ((96, 1, 7, 7), (96,))),
    )
    loop = windows(sliding.lowered(slid(padding=3, stride=step), inputs, channels_last=True))
    emitted, (first, *_) = sliding.printed(loop, NAME, "k", hardware_profile("H200"))
    names = sorted({s.access.buffer for s in loop.body if s.access})
    (made,) = {store.access.buffer for store in loop.stores}
    plan = "\n    ".join([f"{made} = empty_like({names[-1]})", *emitted.plan])
    text = f"def forward({', '.join(names)}):\n    {plan}\n    return {made}\n"
    assert await sliding.stays_in_registers(emitted, text, first, "sm_90a")
