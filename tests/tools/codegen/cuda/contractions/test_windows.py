"""Packed rows of convolutions: where every element that a window reads comes to lie."""

from __future__ import annotations

from itertools import product

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from kernelwright.tools.codegen.cuda.contractions.windows import Direction, Windows, windows_of
from kernelwright.tools.codegen.ir.contraction import Contraction, contraction_of
from kernelwright.tools.codegen.lower import Lowering, lower
from kernelwright.tools.tasks.graph.aten_graph import trace_graph
from kernelwright.tools.tasks.graph.convert import simplify, to_graph


class Convolved(nn.Module):
    def __init__(self, turned: bool, numbers: dict[str, int]) -> None:
        super().__init__()
        self.call = torch.conv_transpose2d if turned else torch.conv2d
        self.numbers = numbers

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return self.call(x, weight, **self.numbers)


def _contraction(turned: bool, size: tuple[int, int], taps: int, **numbers: int) -> Contraction:
    module = Convolved(turned, numbers)
    shapes = ((2, 6, *size), (6, 5, taps, 2) if turned else (5, 6, taps, 2))
    traced = trace_graph(module, [torch.empty(shape, device="meta") for shape in shapes], None)
    simplify(traced)
    program = lower(
        to_graph(traced, ["x", "weight"]), lowering=Lowering(products=True, convolutions=True)
    )
    return next(one for loop in program.loops if (one := contraction_of(loop)))


def _coordinate(one: Direction, place: int, phase: int) -> int:
    """What a place of a phase holds, as packing reads it."""
    return place * one.stride + phase + one.least


def _agree(contraction: Contraction, windows: Windows) -> None:
    """Every output's window, read from rows, is what the access says."""
    access = windows.access
    for at in product(*(range(one.output.size) for one in windows.directions)):
        for taps in product(*(range(one.taps) for one in windows.directions)):
            told, meant = access.offset, access.offset
            for one, output, tap in zip(windows.directions, at, taps, strict=True):
                phase, distance = one.shift(tap)
                assert output + distance < one.extent
                told += one.unit * _coordinate(one, output + distance, phase)
                meant += access.step(one.output.name) * output
                meant += access.step(one.tap.name) * tap if one.tap is not None else 0
            assert told == meant


@given(
    turned=st.booleans(),
    size=st.tuples(st.integers(5, 9), st.integers(4, 8)),
    taps=st.integers(1, 4),
    stride=st.integers(1, 3),
    padding=st.integers(0, 1),
    dilation=st.integers(1, 2),
)
def test_rows_hold_what_windows_read(
    turned: bool, size: tuple[int, int], taps: int, stride: int, padding: int, dilation: int
) -> None:
    numbers = {"stride": stride, "padding": padding, "dilation": dilation}
    if not turned and min(size[0] + 2 * padding - dilation * (taps - 1), size[1]) < 2 * stride:
        return
    contraction = _contraction(turned, size, taps, **numbers)
    found = windows_of(contraction)
    assert found is not None
    for windows in found[1]:
        _agree(contraction, windows)
        read = {axis.name for axis in windows.channels}
        read |= {one.tap.name for one in windows.slid if one.tap is not None}
        assert read == {axis.name for axis in contraction.depth}


def test_images_are_scaled_apart_and_their_span_is_what_lies_inside() -> None:
    found = windows_of(_contraction(False, (9, 8), 3, padding=1))
    assert found is not None
    whole = found[1][0]
    assert whole.images is not None
    assert whole.images.size == 2
    # Padding lies outside of the tensor and is not looked at.
    assert whole.image_span == (0, 6 * 9 * 8)


def test_a_window_that_moves_by_its_own_size_is_channels() -> None:
    contraction = _contraction(False, (8, 8), 2, stride=2)
    found = windows_of(contraction)
    assert found is not None
    (whole,) = found[1]
    assert not whole.slid
    assert whole.width == contraction.k
