"""The sum of a convolution's output over all of space, without the convolution.

Output position o meets input position i at tap t where i = o s + t d - p (a transposed convolution
the other way round), so the sum over all o of x[i(o, t)] w[t] is w[t] times the sum of x over the
positions that tap t meets: per dimension a slice, as long as slices agree a single one. Then
sum_o y = sum over taps of (slice sums of x) @ w[t]: exact in real numbers for every padding, stride
and dilation, as positions outside the input add nothing and those outside the output are not met.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from kernelwright.tools.codegen.algebra.parts import Parts
from kernelwright.tools.codegen.algebra.sketch import Sketch
from kernelwright.tools.codegen.lower.nests.arguments import Arguments
from kernelwright.tools.types import Node, Ref

# Each distinct combination of slices is a small product of its own; many of them are launches.
MOST_SLICES = 9


@dataclass(frozen=True)
class Met:
    """Input positions that some taps of one dimension meet; taps from `first` to `last`."""

    start: int
    stop: int
    step: int
    first: int
    last: int


def summed_over_space(sketch: Sketch, node: Node, parts: Parts) -> Ref | None:
    """The sum over space (and what else the parts say), without bias; None if too many slices."""
    arguments = Arguments(node)
    x, weight = arguments.tensor(0), arguments.tensor(1)
    slices = [list(_met(sketch, node, at)) for at in range(len(node.out[0].shape) - 2)]
    if prod(map(len, slices)) > MOST_SLICES or any(not found for found in slices):
        return None
    total: Ref | None = None
    for chosen in product(*slices):
        part = sketch.product(_inputs(sketch, x, chosen), _taps(sketch, weight, node, chosen))
        total = part if total is None else sketch.add(total, part)
    if total is None:
        return None
    batch, channels = parts.dims[0], parts.dims[1]
    dims = [at for at in (*parts.of(0), *parts.of(1)) if at in parts.summed]
    return sketch.view(sketch.total(sketch.view(total, [*batch, *channels]), dims), parts.kept)


def _inputs(sketch: Sketch, x: Ref, chosen: Sequence[Met]) -> Ref:
    """Sums of x over the positions met: (batch, input channels)."""
    for at, met in enumerate(chosen):
        x = sketch.cut(x, 2 + at, met.start, met.stop, met.step)
    summed = sketch.total(x, range(2, 2 + len(chosen)))
    return sketch.view(summed, sketch.shape(x)[:2])


def _taps(sketch: Sketch, weight: Ref, node: Node, chosen: Sequence[Met]) -> Ref:
    """The weight summed over taps that meet the same positions: (input, output channels)."""
    for at, met in enumerate(chosen):
        weight = sketch.cut(weight, 2 + at, met.first, met.last + 1)
    shape = sketch.shape(weight)[:2]
    summed = sketch.view(sketch.total(weight, range(2, 2 + len(chosen))), shape)
    return summed if Arguments(node).flag(6) else sketch.permute(summed, (1, 0))


def _met(sketch: Sketch, node: Node, at: int) -> Iterator[Met]:
    """The slices of one dimension; neighbouring taps that meet the same positions share one."""
    arguments = Arguments(node)
    size = sketch.shape(arguments.tensor(0))[2 + at]
    taps = sketch.shape(arguments.tensor(1))[2 + at]
    stride, padding, dilation = (_at(arguments, number, at) for number in (3, 4, 5))
    out = node.out[0].shape[2 + at]
    previous: Met | None = None
    for tap in range(taps):
        shift = tap * dilation - padding
        found = _within(stride, shift, size, out, scatter=arguments.flag(6))
        if previous is not None and found != (previous.start, previous.stop, previous.step):
            yield from _if_any(previous)
            previous = None
        previous = Met(*found, previous.first if previous is not None else tap, tap)
    if previous is not None:
        yield from _if_any(previous)


def _within(stride: int, shift: int, size: int, out: int, *, scatter: bool) -> tuple[int, int, int]:
    """Start, stop and step of the input positions that a tap meets."""
    # o * stride + shift lies in [0, limit) for o in [first, last).
    limit, count = (out, size) if scatter else (size, out)
    first = max(0, -(shift // stride))
    last = min(count, (limit - 1 - shift) // stride + 1)
    if scatter:
        return first, max(first, last), 1
    start = first * stride + shift
    return start, start + max(0, (last - first - 1) * stride + 1), stride


def _if_any(met: Met) -> Iterator[Met]:
    if met.stop > met.start:
        yield met


def _at(arguments: Arguments, position: int, dim: int) -> int:
    values = arguments.integers(position) or (1,)
    return values[dim] if len(values) > dim else values[0]
