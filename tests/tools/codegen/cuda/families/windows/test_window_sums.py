"""Sums over windows, several in one loop, on the emulated device next to PyTorch in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.families.windows.window_sums import NAMES, WINDOW_SUMS

Function = Callable[..., torch.Tensor]
LAST = torch.channels_last


def r(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def similarity(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The structural similarity of two images under a window."""

    def blur(z: torch.Tensor) -> torch.Tensor:
        return F.conv2d(z, w, padding=w.shape[-1] // 2, groups=x.shape[1])

    a, b = blur(x), blur(y)
    aa, bb, ab = blur(x * x) - a * a, blur(y * y) - b * b, blur(x * y) - a * b
    return (2 * a * b + 0.1) * (2 * ab + 0.9) / ((a * a + b * b + 0.1) * (aa + bb + 0.9))


def moments(x: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Two windows of weights of their own."""
    one, two = (F.conv2d(z, k, groups=x.shape[1]) for z, k in ((x, v), (x.square(), w)))
    return two - one.square()


def mirrored(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.conv2d(F.pad(x, (2, 2, 1, 1), mode="reflect"), w, groups=x.shape[1])


def both_ways(x: torch.Tensor, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    """A window along lines under one across them."""
    across = F.conv2d(x.square(), row, padding=(0, 2), groups=x.shape[1])
    return F.conv2d(across, column, padding=(2, 0), groups=x.shape[1]).sqrt()


def chosen_taps(x: torch.Tensor, bias: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Sums of products whose second factor lies where the tap's own value says."""
    u = x.unfold(1, 5, 1)
    return (u[..., at] * u).sum(-1) + bias


def means(size: int) -> Function:
    return lambda x, bias: x.unfold(1, size, 1).mean(-1) + bias


def slid(**numbers: object) -> Function:
    def call(x: torch.Tensor, w: torch.Tensor, *bias: torch.Tensor) -> torch.Tensor:
        call = F.conv3d if x.dim() == 5 else F.conv2d
        return F.silu(call(x, w, *bias, groups=x.shape[1], **numbers))

    return call


CASES: dict[str, tuple[Function, Sequence[torch.Tensor]]] = {
    "five windows": (similarity, (r(2, 3, 21, 37).abs(), r(2, 3, 21, 37).abs() + 1,
                                  r(3, 1, 5, 5).abs() / 20)),
    "weights of their own": (moments, (r(2, 3, 19, 40), r(3, 1, 3, 5), r(3, 1, 3, 5))),
    "by steps": (slid(stride=(2, 3), padding=(2, 1)), (r(2, 3, 23, 41), r(3, 1, 5, 4), r(3))),
    "dilated": (slid(padding=4, dilation=(3, 2)), (r(1, 2, 25, 33), r(2, 1, 4, 3))),
    "dilated by steps": (slid(stride=2, padding=3, dilation=3), (r(1, 2, 31, 35), r(2, 1, 5, 3))),
    "fewer lines than outputs": (slid(padding=2), (r(3, 2, 3, 35), r(2, 1, 5, 5))),
    "channels last": (slid(padding=1), (r(2, 16, 9, 11).to(memory_format=LAST), r(16, 1, 3, 3))),
    "a volume": (slid(padding=(1, 0, 1)), (r(1, 2, 6, 7, 33), r(2, 1, 3, 2, 3), r(2))),
    "halves": (slid(padding=1), (r(2, 3, 17, 33).half(), r(3, 1, 3, 3).half())),
    "doubles": (slid(padding=1), (r(2, 3, 17, 33).double(), r(3, 1, 3, 3).double())),
    "mirrored at its edges": (mirrored, (r(2, 3, 14, 35), r(3, 1, 3, 5))),
    "across a window along lines": (both_ways, (r(2, 3, 19, 37), r(3, 1, 1, 5).abs(),
                                                r(3, 1, 5, 1).abs())),
    "one channel": (slid(padding=3), (r(2, 1, 23, 37), r(1, 1, 7, 7))),
    "taps that an index chooses": (chosen_taps, (r(7, 40, 3), r(3), torch.tensor([3, 0, 4, 4, 1]))),
}  # fmt: skip
QUICK = ("five windows",)


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.exhaustive) for name in CASES],
)
def test_sums_are_what_pytorch_says(
    name: str, toolbox: SimpleNamespace, small_device: Hardware, sliding: SimpleNamespace
) -> None:
    function, inputs = CASES[name]
    program = sliding.lowered(function, inputs)
    (loop,) = program.loops
    variants = []
    for at in range(3):
        emitted, listed = sliding.printed(loop, WINDOW_SUMS, f"k{at}", small_device)
        small = [one for one in listed if one[f"K{at}_THREADS"] == 64]
        most = max(one[f"K{at}_OUTPUTS"] for one in small)
        chosen = (small[0], next(one for one in small if one[f"K{at}_OUTPUTS"] == most), small[-1])
        variants.append(sliding.Variant(emitted, chosen[at]))
    toolbox.compile_emulated(variants)
    (output,) = program.returns
    spec = program.buffer(output)
    wanted = function(*(x.double() if x.is_floating_point() else x for x in inputs))
    rounding = {torch.float16: 2e-3, torch.float64: 1e-12}.get(inputs[0].dtype, 2e-5)
    for one in variants:
        buffers = dict(zip(program.parameters, inputs, strict=True))
        buffers[output] = torch.full(spec.shape, float("nan"), dtype=inputs[0].dtype)
        sliding.ran(one, buffers, toolbox)
        got = buffers[output].double().reshape(wanted.shape)
        torch.testing.assert_close(got, wanted, rtol=rounding, atol=rounding)


def test_five_windows_of_two_images_are_one_loop(sliding: SimpleNamespace) -> None:
    large = [torch.empty(shape, device="meta") for shape in ((4, 3, 99, 99),) * 2]
    program = sliding.lowered(similarity, [*large, torch.empty((3, 1, 11, 11), device="meta")])
    (loop,) = program.loops
    assert len(program.steps) == 1
    assert sum(stmt.op == "reduce" for stmt in loop.body) == 5


@pytest.mark.parametrize(
    ("function", "shape", "alone"),
    [(means(64), (8, 1000, 2), False), (means(500), (64, 9000, 16), None),
     (means(64), (64, 9000, 16), True)],
    ids=["few outputs", "long windows", "many outputs"],
)  # fmt: skip
def test_few_outputs_and_long_windows_are_not_one_threads_alone(
    function: Function, shape: tuple[int, ...], alone: bool | None, sliding: SimpleNamespace
) -> None:
    """A thread sums alone: others are offered where that leaves the device idle or takes long."""
    inputs = [torch.empty(shape, device="meta"), torch.empty(shape[-1:], device="meta")]
    (loop,) = sliding.lowered(function, inputs).loops
    names = [one.name for one in CudaEmitter().strategies(loop, hardware_profile("H200"))]
    assert (NAMES[0] in names) is (alone is not None)
    assert ({*names} == {*NAMES}) is bool(alone)


def test_outputs_of_a_single_line_stay_written_out(sliding: SimpleNamespace) -> None:
    program = sliding.lowered(slid(padding=(0, 1)), [r(2, 3, 9, 17), r(3, 1, 1, 3)])
    assert not any(loop.inner for loop in program.loops)


@pytest.mark.parametrize(
    "architecture", ["sm_90a", pytest.param("sm_80", marks=pytest.mark.exhaustive)]
)
async def test_sums_stay_in_registers(architecture: str, sliding: SimpleNamespace) -> None:
    images = [torch.empty((16, 3, 512, 512), device="meta")] * 2
    program = sliding.lowered(similarity, [*images, torch.empty((3, 1, 11, 11), device="meta")])
    (loop,) = program.loops
    emitted, (first, *_) = sliding.printed(loop, WINDOW_SUMS, "k", hardware_profile("H200"))
    plan = "\n    ".join([f"{program.returns[0]} = empty_like(x0)", *emitted.plan])
    text = f"def forward(x0, x1, x2):\n    {plan}\n    return {program.returns[0]}\n"
    assert await sliding.stays_in_registers(emitted, text, first, architecture)
