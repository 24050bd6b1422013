"""Random modules by families, as the files that a person would write.

A family is what its modules have in common: the kind of reduction, of access, of ending. Families
are either learnt from or held out, as a whole, so that what is measured on held-out ones was never
seen. Sizes and operators are drawn; the same seed draws the same modules.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernelwright.tools.types import Value

Draw = random.Random
# Elements of the largest input: enough that a GPU's time is the kernel's, few enough to be judged
# in a fraction of a second; and as few as a test can wait for.
_FULL, _SMALL = 1 << 22, 1 << 12


class Module(Value):
    """A module's file, of a family; `name` tells it from the others of a seed."""

    family: str
    name: str
    source: str
    held_out: bool


@dataclass(frozen=True)
class Parts:
    """What a family draws: lines of `__init__`, expressions of `forward`, shapes of its inputs."""

    forward: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    made: tuple[str, ...] = ()


_UNARY = (
    "torch.relu({0})", "torch.tanh({0})", "torch.sigmoid({0})", "F.silu({0})", "F.gelu({0})",
    "F.softplus({0})", "F.elu({0})", "torch.abs({0})", "{0} * {0}", "F.hardsigmoid({0})",
    "F.leaky_relu({0}, 0.1)", "torch.sin({0})", "torch.exp(-torch.abs({0}))", "F.mish({0})",
)  # fmt: skip
_BINARY = ("{0} + {1}", "{0} * {1}", "{0} - {1}", "torch.maximum({0}, {1})")
_REDUCED = ("{0}.sum({1})", "{0}.mean({1})", "{0}.amax({1})", "{0}.amin({1})")


def _shape(draw: Draw, most: int, rank: int = 2) -> tuple[int, ...]:
    """A shape of that rank: rounds sizes now and then, odd ones as well."""
    columns = draw.choice((31, 48, 64, 100, 127, 128, 256, 384, 512, 768, 1000, 1024, 2048, 4096))
    columns = min(columns, most // 8)
    rows = draw.choice((16, 33, 64, 128, 250, 512, 1024, 2048, 4096, 8192))
    rows = max(4, min(rows, most // columns))
    if rank == 2:
        return rows, columns
    middle = draw.choice((2, 3, 4, 6, 8, 16))
    return max(2, rows // middle), middle, columns


def _chain(draw: Draw, name: str, least: int = 1, most: int = 3) -> list[str]:
    steps = draw.randint(least, most)
    return [f"{name} = {draw.choice(_UNARY).format(name)}" for _ in range(steps)]


def _activations(draw: Draw, most: int) -> Parts:
    return Parts((*_chain(draw, "x", 1, 4), "return x"), (_shape(draw, most),))


def _residual(draw: Draw, most: int) -> Parts:
    shape = _shape(draw, most)
    join = draw.choice(_BINARY).format("x", "y")
    return Parts((*_chain(draw, "x", 0, 2), f"return {join} * self.scale"), (shape, shape),
                 (f"self.scale = nn.Parameter(torch.randn({shape[-1]}))",))  # fmt: skip


def _row_reduction(draw: Draw, most: int) -> Parts:
    end = draw.choice(_REDUCED).format("x", "-1")
    return Parts((*_chain(draw, "x", 0, 2), f"return {end}"), (_shape(draw, most),))


def _column_reduction(draw: Draw, most: int) -> Parts:
    end = draw.choice(_REDUCED).format("x", "1")
    return Parts((*_chain(draw, "x", 0, 2), f"return {end}"), (_shape(draw, most, 3),))


def _softmax(draw: Draw, most: int) -> Parts:
    end = draw.choice(
        ("torch.softmax(x, -1)", "torch.softmax(x * 0.125, -1)",
         "torch.exp(x - x.amax(-1, keepdim=True))")
    )  # fmt: skip
    return Parts((*_chain(draw, "x", 0, 2), f"return {end}"), (_shape(draw, most),))


def _layer_norm(draw: Draw, most: int) -> Parts:
    shape = _shape(draw, most)
    before = draw.choice(("x", "x + y"))
    shapes = (shape,) if before == "x" else (shape, shape)
    forward = (f"x = self.norm({before})", *_chain(draw, "x", 0, 2), "return x")
    return Parts(forward, shapes, (f"self.norm = nn.LayerNorm({shape[-1]})",))


def _loss(draw: Draw, most: int) -> Parts:
    shape = _shape(draw, min(most, 1 << 18))
    end = draw.choice(
        ("F.mse_loss(x, y)", "((x - y) * (x - y)).sum()", "F.l1_loss(x, y)",
         "torch.maximum(x - y, 0.5 * (y - x)).mean()", "F.softplus(-x * y).mean()",
         "F.soft_margin_loss(x, torch.sign(y))", "torch.abs(x * y).mean()")
    )  # fmt: skip
    return Parts((*_chain(draw, "x", 0, 1), f"return {end}"), (shape, shape))


def _running_sum(draw: Draw, most: int) -> Parts:
    shape = _shape(draw, min(most, 1 << 18))
    return Parts((*_chain(draw, "x", 0, 2), "return torch.cumsum(x, -1)"), (shape,))


def _turned(draw: Draw, most: int) -> Parts:
    rows, middle, columns = _shape(draw, most, 3)
    join = draw.choice(_BINARY).format("y", "x.transpose(1, 2)")
    shapes = ((rows, middle, columns), (rows, columns, middle))
    return Parts((*_chain(draw, "x", 1, 3), f"return {join}"), shapes)


def _normalised_rows(draw: Draw, most: int) -> Parts:
    end = draw.choice(
        ("x / (x.abs().sum(-1, keepdim=True) + 1e-6)", "x - x.mean(-1, keepdim=True)",
         "x / (x.abs().amax(-1, keepdim=True) + 1e-6)")
    )  # fmt: skip
    return Parts((*_chain(draw, "x", 0, 2), f"return {end}"), (_shape(draw, most),))


def _linear(draw: Draw, most: int) -> Parts:
    inner, columns = draw.choice((16, 32, 48, 64)), draw.choice((16, 32, 64))
    rows = min(draw.choice((32, 64, 128, 256)), most // inner)
    return Parts(
        ("x = self.linear(x)", *_chain(draw, "x", 0, 2), "return x"), ((rows, inner),),
        (f"self.linear = nn.Linear({inner}, {columns})",),
    )  # fmt: skip


def _row_dots(draw: Draw, most: int) -> Parts:
    shape = _shape(draw, most)
    end = draw.choice(("(x * y).sum(-1)", "(x - y).abs().sum(-1)", "torch.maximum(x, y).mean(-1)"))
    return Parts((*_chain(draw, "x", 0, 1), f"return {end}"), (shape, shape))


def _masked(draw: Draw, most: int) -> Parts:
    shape = _shape(draw, most)
    end = draw.choice(
        ("torch.where(x > y, x, 0.1 * y)", "torch.where(x > 0, x, y)", "x.clamp(-0.5, 2.0) * y",
         "torch.where(y < 1.0, x * y, x)")
    )  # fmt: skip
    return Parts((*_chain(draw, "y", 0, 1), f"return {end}"), (shape, shape))


def _neighbours(draw: Draw, most: int) -> Parts:
    """Elements of a row beside each other, without and with gaps between the pairs."""
    rows, columns = _shape(draw, most)
    columns += columns % 2
    join = draw.choice(_BINARY)
    end = draw.choice(
        (join.format("x[:, 1:]", "x[:, :-1]"), join.format("x[:, ::2]", "x[:, 1::2]"))
    )
    return Parts((*_chain(draw, "x", 0, 2), f"return {end}"), ((rows, columns),))


def _grouped(draw: Draw, most: int) -> Parts:
    """Of every so many elements of a row one result."""
    rows, columns = _shape(draw, most)
    group = draw.choice((5, 8, 16))
    groups = max(1, columns // group)
    end = draw.choice(_REDUCED).format(f"x.view({rows}, {groups}, {group})", "-1")
    return Parts((*_chain(draw, "x", 0, 2), f"return {end}"), ((rows, groups * group),))


def _deviation(draw: Draw, most: int) -> Parts:
    """A row's one figure that takes another figure of the row, or two of them."""
    end = draw.choice(
        ("(x - x.mean(-1, keepdim=True)).abs().mean(-1)", "x.amax(-1) - x.amin(-1)",
         "x.sum(-1) / (1e-3 + x.abs().amax(-1))", "torch.log1p(x.abs().sum(-1))",
         "(x - x.amax(-1, keepdim=True)).sum(-1)", "torch.sqrt(x.abs().mean(-1))")
    )  # fmt: skip
    return Parts((*_chain(draw, "x", 0, 2), f"return {end}"), (_shape(draw, most),))


def _scaled_rows(draw: Draw, most: int) -> Parts:
    """Rows by a root, a logarithm or an exponential of one of their figures, and by a weight."""
    shape = _shape(draw, most)
    figure = draw.choice(
        ("x.abs().mean(-1, keepdim=True)", "x.abs().amax(-1, keepdim=True)",
         "torch.sigmoid(x).sum(-1, keepdim=True)")
    )  # fmt: skip
    scale = draw.choice(
        ("torch.rsqrt({0} + 1e-5)", "1.0 / (1.0 + {0})", "torch.exp(-{0})", "torch.log1p({0})")
    )
    forward = (f"r = {scale.format(figure)}", *_chain(draw, "x", 0, 1), "return x * r + self.shift")
    return Parts(forward, (shape,), (f"self.shift = nn.Parameter(torch.randn({shape[-1]}))",))


def _gated(draw: Draw, most: int) -> Parts:
    shape = _shape(draw, most)
    gate = draw.choice(("F.silu", "F.gelu", "torch.sigmoid", "torch.tanh"))
    return Parts((*_chain(draw, "y", 0, 1), f"return {gate}(x) * y"), (shape, shape))


def _rms_norm(draw: Draw, most: int) -> Parts:
    shape = _shape(draw, most)
    forward = ("r = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)",
               *_chain(draw, "x", 0, 1), "return x * r * self.weight")  # fmt: skip
    return Parts(forward, (shape,), (f"self.weight = nn.Parameter(torch.randn({shape[-1]}))",))


def _log_softmax(draw: Draw, most: int) -> Parts:
    end = draw.choice(("torch.log_softmax(x, -1)", "torch.logsumexp(x, -1)"))
    return Parts((*_chain(draw, "x", 0, 2), f"return {end}"), (_shape(draw, most),))


def _huber(draw: Draw, most: int) -> Parts:
    shape = _shape(draw, min(most, 1 << 18))
    ends = ("F.huber_loss(x, y)", "F.smooth_l1_loss(x, y)", "torch.relu(1 - x * y).mean()")
    end = draw.choice(ends)
    return Parts((*_chain(draw, "x", 0, 1), f"return {end}"), (shape, shape))


def _pooled(draw: Draw, most: int) -> Parts:
    rows, channels, columns = _shape(draw, most, 3)
    window = draw.choice((2, 3, 4))
    pool = draw.choice((f"F.avg_pool1d(x, {window})", f"F.max_pool1d(x, {window})"))
    return Parts((*_chain(draw, "x", 0, 2), f"return {pool}"), ((rows, channels, columns),))


def _spread(draw: Draw, most: int) -> Parts:
    end = draw.choice(("x.var(-1)", "x.std(-1)", "x.var(-1, unbiased=False)"))
    return Parts((*_chain(draw, "x", 0, 2), f"return {end}"), (_shape(draw, most),))


_LEARNT: Mapping[str, Callable[[Draw, int], Parts]] = {
    "activations": _activations, "residual": _residual, "row_reduction": _row_reduction,
    "column_reduction": _column_reduction, "softmax": _softmax, "layer_norm": _layer_norm,
    "loss": _loss, "running_sum": _running_sum, "turned": _turned,
    "normalised_rows": _normalised_rows, "linear": _linear, "row_dots": _row_dots,
    "masked": _masked, "neighbours": _neighbours, "grouped": _grouped, "deviation": _deviation,
    "scaled_rows": _scaled_rows,
}  # fmt: skip
_HELD_OUT: Mapping[str, Callable[[Draw, int], Parts]] = {
    "gated": _gated, "rms_norm": _rms_norm, "log_softmax": _log_softmax, "huber": _huber,
    "pooled": _pooled, "spread": _spread,
}  # fmt: skip
LEARNT, HELD_OUT = tuple(_LEARNT), tuple(_HELD_OUT)

_FILE = """import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{made}
    def forward(self, {names}):
{forward}

def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def modules(count: int, seed: int, *, held_out: bool = False, small: bool = False) -> list[Module]:
    """Random modules, no two with the same text, the families in turns.

    Args:
        count: How many; fewer come back where a family has no more.
        seed: Of every draw.
        held_out: Whether of the families that training never sees.
        small: In sizes for a test.
    """
    families = _HELD_OUT if held_out else _LEARNT
    found: dict[str, Module] = {}
    for number in range(8 * count):
        family = [*families][number % len(families)]
        draw = random.Random(f"{seed} {family} {number}")
        source = _source(families[family](draw, _SMALL if small else _FULL))
        if source not in found:
            name = f"{family}_{seed}_{number}"
            found[source] = Module(family=family, name=name, source=source, held_out=held_out)
        if len(found) == count:
            break
    return [*found.values()]


def _source(parts: Parts) -> str:
    names = [*"xy"][: len(parts.shapes)]
    return _FILE.format(
        made="".join(f"        {line}\n" for line in parts.made),
        names=", ".join(names),
        forward="".join(f"        {line}\n" for line in parts.forward),
        inputs=", ".join(f"torch.randn({', '.join(map(str, shape))})" for shape in parts.shapes),
    )
