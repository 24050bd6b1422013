"""Says whether a callable computes what a PyTorch module does, by float64; torch alone is imported.

It shares no code with Kernelwright's judge, so that the one can be held against the other. It draws
values of its own (`DRAWS`), runs the module as it is, the module in float64, and the callable, and
compares element by element. What an element may be off by is measured by what elements like it are:

    unit(i, j, ...) = |truth(i, j, ...)| + the usual size of results at that i, at that j, ...

where the usual sizes are the factors of one product, so that a row of results 10^30 times as small
as its neighbours is measured by its own size. Errors over units are taken in the root mean square
and at the worst element, over all repetitions of a draw. A result is refused where

    rms error   > 4 x PyTorch's own rms error   + 1 unit in the last place
    worst error > 4 x PyTorch's own worst error + 4 units in the last place

or where it is not finite and PyTorch is, unless it is at the edge of overflow: sums in other orders
are a little larger or smaller, and so is what just overflows. Places in which the result alone is
not finite count as at the edge if, in the same repetition and output, PyTorch's own answer is not
finite in some places, and they are at most `EDGE_PLACES`, or `EDGE_SHARE` times as many as those;
they are left out and counted (`Finding.at_edge`). Elements where PyTorch itself is not finite are
left out, and so is a draw where most are; below the type's smallest normal number nothing is asked
for.

PyTorch's own error may be small by luck, where few results decide: that of one sum before an exp,
say, which makes a hundred times as much of it. So what the module makes in float64 of factors that
are off by up to half a unit in the last place, drawn `SHAKES` times, counts as PyTorch's own where
that is further off. This is done in float32, and of recurrent layers in half types, too, as these
round their state at every step. A float32 convolution on a GPU may be in TF32 or not, as PyTorch's
settings allow it and its library likes it; there factors rounded to TF32 take their place.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

BOUND = 4.0
RMS_ULPS, WORST_ULPS = 1.0, 4.0
# Few elements say little of a sum's error, so a draw of them is repeated.
FEW, REPEATS, REPEATS_OF_FEW = 2048, 2, 8
# Powers of ten that a row, a column or a tensor may be moved by, either way; fp16 holds no more.
ORDERS = {torch.float32: 30.0, torch.bfloat16: 30.0, torch.float16: 2.0}

SHAKES = 3
EDGE_PLACES, EDGE_SHARE = 3, 0.01

Call = Callable[[Sequence[Tensor], Mapping[str, Tensor]], Sequence[Tensor]]
Generator = torch.Generator


def _normal(shape: Sequence[int], source: Generator) -> Tensor:
    return torch.randn(shape, generator=source, device=source.device, dtype=torch.float64)


def _uniform(shape: Sequence[int], source: Generator) -> Tensor:
    return torch.rand(shape, generator=source, device=source.device, dtype=torch.float64)


def _sparse(shape: Sequence[int], source: Generator) -> Tensor:
    """One value in ten is there."""
    return _normal(shape, source) * (_uniform(shape, source) < 0.1)


def _cancelling(shape: Sequence[int], source: Generator) -> Tensor:
    """Along the last axis each value has its opposite, off by a hundredth, somewhere.

    Neighbours would make sums in one order nearly exact, and in any other one ordinary. Axes of the
    same length have their pairs in the same places.
    """
    values = _normal(shape, source)
    if not shape or shape[-1] < 2:
        return values
    half = shape[-1] // 2
    places = torch.randperm(shape[-1], generator=Generator().manual_seed(half)).to(values.device)
    noise = 1.0 + 0.01 * _normal((*shape[:-1], half), source)
    values[..., places[:half]] = -values[..., places[half : 2 * half]] * noise
    return values


_VALUES: Mapping[str, Callable[[Sequence[int], Generator], Tensor]] = {
    "normal": _normal, "positive": _uniform, "sparse": _sparse, "cancelling": _cancelling,
}  # fmt: skip
# Normal values of which one tensor is moved: along its first axis, along its last, or as a whole
# while another one is moved the other way.
SPREAD = ("rows", "columns", "tensors")
DRAWS = (*_VALUES, *SPREAD)


@dataclass(frozen=True)
class Finding:
    """What one draw came to.

    Attributes:
        draw: its name.
        refused: why the callable is wrong; "" where it is right.
        rms_ratio: its error over PyTorch's own, in the root mean square, each half a unit in the
            last place at least.
        worst_ratio: likewise at the worst element, two units at least.
        skipped: why the draw says nothing; "" where it does.
        at_edge: places at the edge of overflow, where PyTorch alone is finite.
    """

    draw: str
    refused: str = ""
    rms_ratio: float = 0.0
    worst_ratio: float = 0.0
    skipped: str = ""
    at_edge: int = 0


class Float64Check:
    """One module as it is and in float64, on one device.

    Args:
        module: its class's instance; weights are drawn anew by the check.
        inputs: an example of its inputs: shapes, types and strides are kept.
        device: where to compute.
        seed: of every draw.
    """

    def __init__(self, module: nn.Module, inputs: Sequence[Tensor], device: str, seed: int):
        self._module = module.to(device).requires_grad_(False)
        # Only shapes, types and strides are asked of it; to move a slice would lose its strides.
        self._example = list(inputs)
        self._device, self._seed = device, seed
        # Once, as what the next draw finds in a weight's memory is the last one's.
        self._weights = [tensor for _, tensor in self._named() if tensor.is_floating_point()]
        self._sizes = [_size_of(tensor) for tensor in self._weights]

    def findings(self, call: Call, draws: Sequence[str] = DRAWS) -> Iterator[Finding]:
        """What every draw says of a callable that takes inputs and weights by name."""
        for draw in draws:
            yield self._finding(call, draw)

    def _finding(self, call: Call, draw: str) -> Finding:
        totals: list[_Totals] = []
        repeat, repeats = 0, 1
        while repeat < repeats:
            source = Generator(self._device).manual_seed(_hash(self._seed, draw, repeat))
            inputs = self._drawn(draw, source)
            own, truth, others = self._answers(inputs, source)
            got = call(inputs, dict(self._named()))
            if len(got) != len(own):
                return Finding(draw, refused=f"{len(got)} results instead of {len(own)}")
            totals = totals or [_Totals(answer.dtype) for answer in own]
            for total, *answers in zip(totals, got, own, truth, *others, strict=True):
                if words := total.add(*answers):
                    return Finding(draw, refused=words)
            few = min(answer.numel() for answer in own) < FEW
            repeat, repeats = repeat + 1, REPEATS_OF_FEW if few else REPEATS
        return _verdict(draw, totals)

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        yield from self._module.named_parameters(remove_duplicate=False)
        yield from self._module.named_buffers(remove_duplicate=False)

    def _answers(
        self, inputs: Sequence[Tensor], source: Generator
    ) -> tuple[list[Tensor], list[Tensor], list[list[Tensor]]]:
        """PyTorch's own answer, the one in float64, and those that count as PyTorch's besides."""
        with torch.no_grad():
            own = _flat(self._module(*inputs))
            truth = _in_double(copy.deepcopy(self._module), inputs)
            others = [self._changed(change, inputs) for change in self._changes(source)]
        return own, truth, others

    def _changes(self, source: Generator) -> list[Callable[[Tensor], Tensor]]:
        """What factors may be changed by, each time by itself."""
        if self._may_be_tf32:
            return [lambda values: _to_tf32(values.float())]
        parts = self._module.modules()
        dtypes = {tensor.dtype for tensor in self._example}
        if dtypes != {torch.float32} and not any(isinstance(part, nn.RNNBase) for part in parts):
            return []
        ulp = max(torch.finfo(dtype).eps for dtype in dtypes)
        return [lambda values: _shaken(values, ulp, source)] * SHAKES

    def _changed(
        self, change: Callable[[Tensor], Tensor], inputs: Sequence[Tensor]
    ) -> list[Tensor]:
        """The answer in float64 of factors that were changed."""
        module = copy.deepcopy(self._module).double()
        for weight in module.parameters():
            weight.copy_(change(weight))
        return _in_double(module, [change(tensor) for tensor in inputs])

    @property
    def _may_be_tf32(self) -> bool:
        convolves = any("Conv" in type(part).__name__ for part in self._module.modules())
        wide = all(tensor.dtype is torch.float32 for tensor in self._example)
        allowed = torch.backends.cudnn.allow_tf32
        return convolves and wide and allowed and self._device.startswith("cuda")

    def _drawn(self, draw: str, source: Generator) -> list[Tensor]:
        """Inputs of that draw; the module's weights are drawn as well, in the same memory."""
        values = [_VALUES.get(draw, _normal)(tuple(t.shape), source) for t in self._example]
        sized = zip(self._weights, self._sizes, strict=True)
        kept = [_normal(tuple(tensor.shape), source) * size for tensor, size in sized]
        if draw in SPREAD:
            _spread(draw, [*values, *kept], self._orders, source)
        for tensor, new in zip(self._weights, kept, strict=True):
            tensor.copy_(_within(new, tensor.dtype))
        return [laid_out(new, like) for new, like in zip(values, self._example, strict=True)]

    @property
    def _orders(self) -> float:
        return min(ORDERS[tensor.dtype] for tensor in self._example)


def _in_double(module: nn.Module, inputs: Sequence[Tensor]) -> list[Tensor]:
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return _flat(module.double()(*(tensor.double() for tensor in inputs)))
    finally:
        torch.set_default_dtype(usual)


def _to_tf32(values: Tensor) -> Tensor:
    """Float32 rounded to eleven significant bits."""
    bits = values.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def _shaken(values: Tensor, ulp: float, source: Generator) -> Tensor:
    """Values off by up to half a unit in the last place, in float64."""
    noise = 2.0 * _uniform(tuple(values.shape), source) - 1.0
    return values.double() * (1.0 + 0.5 * ulp * noise)


def _hash(*parts: object) -> int:
    value = 1469598103934665603
    for letter in repr(parts):
        value = (value ^ ord(letter)) * 1099511628211 % 2**62
    return value


def _size_of(weight: Tensor) -> float:
    """The constructor's own usual size, which keeps a layer's results near 1."""
    size = float(weight.double().square().mean().sqrt())
    return size if 1e-6 < size < 1e6 else 1.0


def _spread(draw: str, tensors: list[Tensor], orders: float, source: Generator) -> None:
    """Move one tensor by powers of ten, chosen by chance among those that have axes."""
    wide = [tensor for tensor in tensors if tensor.dim() >= 2] or tensors

    def powers(count: int) -> Tensor:
        return 10.0 ** (orders * (2 * _uniform((count,), source) - 1))

    first = int(torch.randint(len(wide), (1,), generator=source, device=source.device))
    chosen = wide[first]
    if draw == "tensors":
        power = powers(1)
        chosen.mul_(power)
        wide[(first + 1) % len(wide)].div_(power)
    elif draw == "rows":
        axis = max(0, chosen.dim() - 2)
        chosen.mul_(powers(chosen.shape[axis]).reshape(-1, *[1] * (chosen.dim() - 1 - axis)))
    else:
        chosen.mul_(powers(chosen.shape[-1]))


def _within(values: Tensor, dtype: torch.dtype) -> Tensor:
    most = torch.finfo(dtype).max
    return values.clamp(-most, most).to(dtype)


def laid_out(values: Tensor, like: Tensor) -> Tensor:
    """Those values where they are, in `like`'s type and with each of its strides.

    What lies between elements is not a number. Elements that share a place have the same value.
    """
    if like.numel() == 0:
        return values.new_empty_strided(like.shape, like.stride(), dtype=like.dtype)
    kept, places = _within(values, like.dtype), torch.zeros((), dtype=torch.long)
    for axis, (length, step) in enumerate(zip(like.shape, like.stride(), strict=True)):
        if step == 0:
            kept = kept.narrow(axis, 0, 1).expand_as(values)
        along = [length if other == axis else 1 for other in range(like.dim())]
        places = places + step * torch.arange(length).reshape(along)
    flat = kept.new_full((int(places.max()) + 1,), math.nan)
    flat[places.to(values.device).flatten()] = kept.flatten()
    return flat.as_strided(like.shape, like.stride())


def _flat(answer: object) -> list[Tensor]:
    if isinstance(answer, Tensor):
        return [answer]
    assert isinstance(answer, (tuple, list))
    return [tensor for item in answer for tensor in _flat(item)]


# A share beyond this is this: its square is a number, too.
_MOST = 1e140


class _Totals:
    """Errors of one output over the repetitions of a draw."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.ulp = torch.finfo(dtype).eps
        self._tiny = torch.finfo(dtype).tiny
        self.elements = self.left_out = self.at_edge = 0
        self.squares = [0.0, 0.0]
        self.worst = [0.0, 0.0]

    def add(self, got: Tensor, own: Tensor, truth: Tensor, *others: Tensor) -> str:
        """Count one repetition; why the callable is refused at once, "" where it is not."""
        if got.shape != own.shape or got.dtype != own.dtype:
            return f"{got.dtype}{list(got.shape)} instead of {own.dtype}{list(own.shape)}"
        asked = torch.isfinite(own) & torch.isfinite(truth)
        astray = asked & ~torch.isfinite(got)
        count = int(astray.sum())
        if count > _most_at_edge(own):
            return f"not finite in {count} places where PyTorch is"
        self.at_edge += count
        asked &= ~astray
        self.elements += own.numel()
        self.left_out += int((~asked).sum())
        exact = torch.where(asked, truth, 0.0)
        unit = exact.abs() + usual_sizes(exact)
        measured = [self._share(answer, exact, asked, unit) for answer in (got, own, *others)]
        shares = (measured[0], torch.stack(measured[1:]).amax(0))
        for at, share in enumerate(shares):
            self.squares[at] += float(share.square().sum())
            self.worst[at] = max(self.worst[at], float(share.max()))
        return ""

    def _share(self, answer: Tensor, exact: Tensor, asked: Tensor, unit: Tensor) -> Tensor:
        """How far every element is off, in its units."""
        off = (torch.where(asked, answer.double(), 0.0) - exact).abs()
        off = (off - WORST_ULPS * self._tiny).clamp_min(0.0)
        share = torch.where(off > 0, off / unit.clamp_min(1e-300), 0.0)
        return share.nan_to_num(nan=_MOST, posinf=_MOST).clamp_max(_MOST)


def _most_at_edge(own: Tensor) -> int:
    """Places in which a right result may overflow besides PyTorch's own."""
    overflown = int((~torch.isfinite(own)).sum())
    return max(EDGE_PLACES, int(EDGE_SHARE * overflown)) if overflown else 0


_MANY, _PASSES = 16, 4


def usual_sizes(values: Tensor) -> Tensor:
    """At every element the product of a factor for each index, fitted to the absolute values.

    An index that few elements share has no factor: their mean would be a lottery.
    """
    left = values.abs()
    sizes = left.mean()
    left = left / torch.where(sizes > 0, sizes, 1.0)
    axes = [a for a, n in enumerate(values.shape) if values.numel() >= _MANY * n]
    for _ in range(_PASSES):
        for axis in axes:
            others = [other for other in range(values.dim()) if other != axis]
            mean = left.mean(others, keepdim=True)
            mean = torch.where(mean > 0, mean, 1.0)
            left, sizes = left / mean, sizes * mean
    return sizes.expand(values.shape)


def _verdict(draw: str, totals: Sequence[_Totals]) -> Finding:
    if any(2 * total.left_out > total.elements for total in totals):
        return Finding(draw, skipped="PyTorch's own answer is mostly not finite")
    refused, rms_ratio, worst_ratio = "", 0.0, 0.0
    for number, total in enumerate(totals):
        used = max(1, total.elements - total.left_out)
        rms, own_rms = (math.sqrt(squares / used) for squares in total.squares)
        worst, own_worst = total.worst
        rms_ratio = max(rms_ratio, rms / max(own_rms, 0.5 * total.ulp))
        worst_ratio = max(worst_ratio, worst / max(own_worst, 2 * total.ulp))
        if rms > BOUND * own_rms + RMS_ULPS * total.ulp:
            refused = f"output {number}: rms error {rms:.2e}, PyTorch's own {own_rms:.2e}"
        elif worst > BOUND * own_worst + WORST_ULPS * total.ulp:
            refused = f"output {number}: worst error {worst:.2e}, PyTorch's own {own_worst:.2e}"
    at_edge = sum(total.at_edge for total in totals)
    return Finding(draw, refused, rms_ratio, worst_ratio, at_edge=at_edge)
