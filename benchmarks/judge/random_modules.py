"""Random modules of many kinds, each as the file that a person would write.

Most multiply matrices (mm, bmm, addmm, linear, einsum, gates, chains of two), as it is there that
kernels of ours differ most from PyTorch's: operands that are transposed or strided, triangles and
masks on an operand, what stands before and behind, sums of up to 131,072 terms, and sizes from 1
on that fit no tile. Beside them convolutions, attention, recurrent layers, and the families of
`tools/learning/writing/families.py`. The same seed and number draw the same module.
"""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kernelwright.tools.learning.writing import families

Draw = random.Random
LONGEST = 131072
_DTYPES = ("float32", "float32", "float16", "bfloat16")

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


@dataclass(frozen=True)
class Parts:
    """What a family draws: `inputs` are expressions by name, `made` lines of the constructor."""

    inputs: Mapping[str, str]
    forward: tuple[str, ...]
    made: tuple[str, ...] = ("pass",)


@dataclass(frozen=True)
class Drawn:
    """One module; `name` tells it from the others of a seed."""

    family: str
    name: str
    dtype: str
    source: str


_UNARY = (
    "torch.relu({0})", "torch.tanh({0})", "torch.sigmoid({0})", "F.silu({0})", "F.gelu({0})",
    "F.gelu({0}, approximate='tanh')", "F.leaky_relu({0}, 0.1)", "{0} * 0.5", "{0}.abs()",
    "F.softplus({0})", "F.hardswish({0})", "{0} * {0}", "{0}.clamp(-2.0, 2.0)", "F.elu({0})",
)  # fmt: skip
_TRIANGLES = ("torch.tril({0})", "torch.triu({0})", "torch.tril({0}, -1)", "torch.triu({0}, 2)")
_SIZES = (1, 2, 3, 5, 7, 8, 16, 17, 31, 32, 33, 48, 63, 64, 65, 72, 96, 100, 127, 128, 129, 160,
          192, 200, 255, 256, 257, 320, 384, 500, 512)  # fmt: skip
_TINY = tuple(size for size in _SIZES if size < 18)
_DEPTHS = (1024, 1536, 2048, 3000, 4096, 8192, 16384, 32768, 65536, LONGEST - 1, LONGEST)


def _size(draw: Draw, most: int = 512) -> int:
    """Tiny, odd, round: each as often."""
    from_ = _TINY if draw.random() < 0.2 else tuple(size for size in _SIZES if size <= most)
    return draw.choice(from_)


def _depth(draw: Draw) -> int:
    return draw.choice(_DEPTHS) if draw.random() < 0.2 else _size(draw)


def _free(draw: Draw, depth: int) -> int:
    """A size that is no sum's: what is deep is narrow, so that a check takes milliseconds."""
    return _size(draw, 512 if depth <= 4096 else 128 if depth <= 32768 else 48)


def _scaled(depth: int) -> str:
    """Behind a sum of so many terms a factor that keeps it near 1, so that chains stay finite."""
    return f" * {depth**-0.5:.4g}"


def _operand(draw: Draw, rows: int, columns: int, batch: str = "") -> tuple[str, str]:
    """(input's expression, how the forward names it) of a matrix, lying in one of several ways."""
    plain = f"torch.randn({batch}{rows}, {columns}, dtype=DTYPE)"
    turned = f"torch.randn({batch}{columns}, {rows}, dtype=DTYPE)"
    axes = "transpose(1, 2)" if batch else "t()"
    ways = [
        (plain, "{0}"),
        (plain, "{0}"),
        (turned, f"{{0}}.{axes}"),
        (f"{turned}.{axes}", "{0}"),
        (f"torch.randn({batch}{rows}, {2 * columns}, dtype=DTYPE)[..., ::2]", "{0}"),
        (f"torch.randn({batch}{rows}, {columns + 3}, dtype=DTYPE)", f"{{0}}[..., :{columns}]"),
    ]
    return draw.choice(ways)


def _prologue(draw: Draw, text: str, *, triangle: bool = True) -> str:
    """What is done to an operand before it is multiplied; mostly nothing."""
    chance = draw.random()
    if chance < 0.55:
        return text
    if chance < 0.75 and triangle:
        return draw.choice(_TRIANGLES).format(text)
    return draw.choice(_UNARY).format(text)


_ROW_ENDS = ("torch.softmax({0}, -1)", "torch.log_softmax({0}, -1)", "{0}.sum(-1)", "{0}.amax(-1)",
             "F.layer_norm({0}, ({1},))", "{0} * torch.rsqrt(({0} * {0}).mean(-1, keepdim=True) + "
             "1e-5)", "{0}.mean(-1, keepdim=True)")  # fmt: skip


def _epilogue(draw: Draw, inputs: dict[str, str], columns: int) -> list[str]:
    """Lines that end a forward whose product is called `r`."""
    lines = []
    if draw.random() < 0.3:
        inputs["b"] = f"torch.randn({columns}, dtype=DTYPE)"
        lines.append(draw.choice(("r = r + b", "r = r * b", "r = b - r")))
    for _ in range(draw.choice((0, 0, 1, 1, 2))):
        lines.append(f"r = {draw.choice(_UNARY).format('r')}")
    if draw.random() < 0.2:
        lines.append(f"r = {draw.choice(_ROW_ENDS).format('r', columns)}")
    return [*lines, "return r"]


def _mm(draw: Draw) -> Parts:
    depth = _depth(draw)
    rows, columns = _free(draw, depth), _free(draw, depth)
    (x, x_read), (y, y_read) = _operand(draw, rows, depth), _operand(draw, depth, columns)
    inputs = {"x": x, "y": y}
    left, right = _prologue(draw, x_read.format("x")), _prologue(draw, y_read.format("y"))
    product = draw.choice(("{0} @ {1}", "torch.mm({0}, {1})", "torch.matmul({0}, {1})"))
    line = f"r = {product.format(left, right)}{_scaled(depth)}"
    return Parts(inputs, (line, *_epilogue(draw, inputs, columns)))


def _bmm(draw: Draw) -> Parts:
    depth = min(_depth(draw), 8192)
    rows, columns = _free(draw, depth) // 2 + 1, _free(draw, depth) // 2 + 1
    batch = f"{draw.choice((1, 2, 3, 5, 8, 13))}, "
    (x, x_read) = _operand(draw, rows, depth, batch)
    (y, y_read) = _operand(draw, depth, columns, batch)
    inputs = {"x": x, "y": y}
    left, right = _prologue(draw, x_read.format("x")), _prologue(draw, y_read.format("y"))
    call = draw.choice(("torch.bmm({0}, {1})", "{0} @ {1}"))
    line = f"r = {call.format(left, right)}{_scaled(depth)}"
    return Parts(inputs, (line, *_epilogue(draw, inputs, columns)))


def _addmm(draw: Draw) -> Parts:
    depth = _depth(draw)
    rows, columns = _free(draw, depth), _free(draw, depth)
    (x, x_read), (y, y_read) = _operand(draw, rows, depth), _operand(draw, depth, columns)
    shape = draw.choice((f"{columns}", f"{rows}, {columns}", f"{rows}, 1"))
    inputs = {"x": x, "y": y, "c": f"torch.randn({shape}, dtype=DTYPE)"}
    factors = draw.choice(("", ", beta=0.5, alpha=0.25", ", beta=-1.0", ", alpha=2.0"))
    line = f"r = torch.addmm(c, {x_read.format('x')}, {y_read.format('y')}{factors})"
    return Parts(inputs, (line, *_epilogue(draw, inputs, columns)))


def _layer(draw: Draw, name: str, depth: int, columns: int) -> str:
    return f"self.{name} = nn.Linear({depth}, {columns}, bias={draw.random() < 0.6}, dtype=DTYPE)"


def _linear(draw: Draw) -> Parts:
    depth = min(_depth(draw), 16384)
    rows, columns = _free(draw, depth), _free(draw, depth)
    shape = draw.choice((f"{rows}, {depth}", f"{max(1, rows // 4)}, 4, {depth}"))
    inputs = {"x": f"torch.randn({shape}, dtype=DTYPE)"}
    line = f"r = self.l({_prologue(draw, 'x', triangle=False)})"
    end = _epilogue(draw, inputs, columns)
    return Parts(inputs, (line, *end), (_layer(draw, "l", depth, columns),))


def _gate(draw: Draw) -> Parts:
    depth = min(_depth(draw), 4096)
    rows, columns = _free(draw, depth), _free(draw, depth)
    gate = draw.choice(("F.silu", "F.gelu", "torch.sigmoid", "torch.tanh", "torch.relu"))
    made = (_layer(draw, "l", depth, columns), _layer(draw, "g", depth, columns))
    inputs = {"x": f"torch.randn({rows}, {depth}, dtype=DTYPE)"}
    return Parts(inputs, (f"return {gate}(self.g(x)) * self.l(x)",), made)


def _chain(draw: Draw) -> Parts:
    depth, inner = min(_depth(draw), 4096), _size(draw)
    rows, columns = _free(draw, depth), _size(draw)
    between = draw.choice((*_UNARY, "{0}", "torch.softmax({0}, -1)"))
    if draw.random() < 0.5:
        made = (_layer(draw, "l", depth, inner), _layer(draw, "g", inner, columns))
        inputs = {"x": f"torch.randn({rows}, {depth}, dtype=DTYPE)"}
        lines = (f"h = {between.format('self.l(x)')}", "return self.g(h)")
        return Parts(inputs, lines, made)
    (x, x_read), (y, y_read) = _operand(draw, rows, depth), _operand(draw, depth, inner)
    z, z_read = _operand(draw, inner, columns)
    first = f"({x_read.format('x')} @ {y_read.format('y')}){_scaled(depth)}"
    lines = (f"h = {first}", f"h = {between.format('h')}",
             f"return (h @ {z_read.format('z')}){_scaled(inner)}")  # fmt: skip
    return Parts({"x": x, "y": y, "z": z}, lines)


_EINSUMS = (  # equation, and the axis that is summed
    ("ij,jk->ik", "j"), ("ij,kj->ik", "j"), ("ji,jk->ki", "j"), ("bij,bjk->bik", "j"),
    ("bij,kj->bik", "j"), ("bhid,bhjd->bhij", "d"), ("bihd,bjhd->bhij", "d"), ("ij,j->i", "j"),
    ("bij,bj->bi", "j"), ("bi,bj->bij", ""), ("bijd,de->bije", "d"), ("bid,bjd->bij", "d"),
)  # fmt: skip


def _einsum(draw: Draw) -> Parts:
    equation, summed = draw.choice(_EINSUMS)
    many = len(set(equation) - set(",->"))
    sizes = {axis: _size(draw, 200 if many < 4 else 24) for axis in equation if axis.isalpha()}
    if summed and draw.random() < 0.3:
        sizes[summed] = draw.choice((600, 1024, 3000))
    first, second = equation.split("->")[0].split(",")
    shapes = [", ".join(str(sizes[axis]) for axis in of) for of in (first, second)]
    inputs = {n: f"torch.randn({s}, dtype=DTYPE)" for n, s in zip("xy", shapes, strict=True)}
    scale = _scaled(sizes[summed]) if summed else ""
    end = draw.choice(_UNARY) if draw.random() < 0.5 else "{0}"
    line = f"r = torch.einsum({equation!r}, x, y){scale}"
    return Parts(inputs, (line, f"return {end.format('r')}"))


def _convolution(draw: Draw) -> Parts:
    rank = draw.choice((1, 2, 2, 2, 3))
    groups = draw.choice((1, 1, 1, 2, 4))
    channels = groups * draw.choice((1, 3, 4, 8, 16, 32))
    out = groups * draw.choice((1, 4, 8, 16, 24))
    most = {1: 200, 2: 40, 3: 12}[rank]
    sides = [draw.randint(6, most) for _ in range(rank)]
    kernel, stride = draw.choice((1, 2, 3, 5)), draw.choice((1, 1, 2))
    name = draw.choice(("Conv", "Conv", "Conv", "ConvTranspose"))
    dilation = "" if name != "Conv" or kernel > 3 else f", dilation={draw.choice((1, 1, 2))}"
    words = f"{channels}, {out}, {kernel}, stride={stride}, padding={kernel // 2}{dilation}"
    made = f"self.c = nn.{name}{rank}d({words}, groups={groups}, dtype=DTYPE)"
    shape = ", ".join(map(str, (draw.choice((1, 2, 3)), channels, *sides)))
    end = draw.choice(_UNARY) if draw.random() < 0.6 else "{0}"
    line = f"return {end.format('self.c(x)')}"
    return Parts({"x": f"torch.randn({shape}, dtype=DTYPE)"}, (line,), (made,))


def _attention(draw: Draw) -> Parts:
    batch, heads = draw.choice((1, 2)), draw.choice((1, 2, 4))
    queries, keys = _size(draw, 257) + 2, _size(draw, 257) + 2
    width = draw.choice((16, 32, 40, 64, 80, 128))
    causal = draw.random() < 0.4
    if causal:
        keys = queries
    inputs = {
        n: f"torch.randn({batch}, {heads}, {s}, {width}, dtype=DTYPE)"
        for n, s in (("q", queries), ("k", keys), ("v", keys))
    }
    if draw.random() < 0.6:
        call = f"F.scaled_dot_product_attention(q, k, v, is_causal={causal})"
        return Parts(inputs, (f"return {call}",))
    lines = [f"s = (q @ k.transpose(-2, -1)){_scaled(width)}"]
    if causal:
        lines += [f"m = torch.ones({queries}, {keys}, device=q.device, dtype=torch.bool).tril()",
                  "s = s.masked_fill(~m, float('-inf'))"]  # fmt: skip
    return Parts(inputs, (*lines, "return torch.softmax(s, -1) @ v"))


def _recurrence(draw: Draw) -> Parts:
    kind, inner = draw.choice(("RNN", "LSTM", "GRU")), draw.choice((8, 16, 32, 64))
    width, steps, batch = draw.choice((8, 24, 32)), draw.choice((1, 5, 16)), draw.choice((1, 3, 8))
    made = f"self.r = nn.{kind}({width}, {inner}, batch_first=True, dtype=DTYPE)"
    inputs = {"x": f"torch.randn({batch}, {steps}, {width}, dtype=DTYPE)"}
    return Parts(inputs, ("return self.r(x)[0]",), (made,))


_FAMILIES: Mapping[str, tuple[Callable[[Draw], Parts], int]] = {  # and how often
    "mm": (_mm, 5), "bmm": (_bmm, 3), "addmm": (_addmm, 2), "linear": (_linear, 4),
    "gate": (_gate, 1), "chain": (_chain, 3), "einsum": (_einsum, 3), "attention": (_attention, 2),
    "convolution": (_convolution, 3), "recurrence": (_recurrence, 1),
}  # fmt: skip
# What `families` draws: pointwise loops, reductions, norms, softmax, scans, pooling.
_OTHERS = 5


def module(seed: int, number: int) -> Drawn:
    """One random module."""
    draw = random.Random(f"{seed} {number}")
    names = [name for name, (_, often) in _FAMILIES.items() for _ in range(often)]
    family = draw.choice([*names, *["other"] * _OTHERS])
    dtype = draw.choice(_DTYPES)
    if family == "other":
        return _other(draw, seed, number, dtype)
    parts = _FAMILIES[family][0](draw)
    source = _FILE.format(
        made=_lines(parts.made),
        names=", ".join(parts.inputs),
        forward=_lines(parts.forward),
        inputs=", ".join(parts.inputs.values()),
    ).replace("DTYPE", f"torch.{dtype}")
    return Drawn(family=family, name=f"{family}_{seed}_{number}", dtype=dtype, source=source)


def _lines(of: tuple[str, ...]) -> str:
    return "\n".join(f"        {line}" for line in of)


def _other(draw: Draw, seed: int, number: int, dtype: str) -> Drawn:
    """One of the families that are written for training, in another type where that is drawn."""
    found = families.modules(
        1 + draw.randrange(24), draw.randrange(1 << 30), held_out=draw.random() < 0.4, small=True
    )[-1]
    made = Drawn(found.family, f"{found.family}_{seed}_{number}", "float32", found.source)
    if dtype == "float32":
        return made
    typed = re.sub(r"(torch\.randn\([\d, ]+)\)", rf"\1, dtype=torch.{dtype})", found.source)
    typed = re.sub(r"(nn\.\w+\([\d, ]+)\)$", rf"\1, dtype=torch.{dtype})", typed, flags=re.M)
    return replace(made, dtype=dtype, source=typed)
