"""The shapes of products: as a grid, a file of them, or drawn from a published set.

    64..1024x4096x512,768       M from 64 to 1024 doubling, N 4096, K 512 and 768
    cuda-l2:125:7               125 of the thousand of CUDA-L2's kind, drawn with the seed 7
    shapes.txt                  lines of `M N K [layout [batch]]`; # begins a comment

A layout says of the left and the right factor whether it lies row after row as it is multiplied
(`n`) or turned (`t`): `nt` is what a linear layer multiplies, rows of inputs with rows of weights.
"""

import random
import re
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field

from kernelwright.tools.types import Value

Layout = Literal["nn", "nt", "tn", "tt"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
# The sides of the published set of a thousand shapes: every M, N and K among these.
CUDA_L2 = "cuda-l2"
CUDA_L2_SIDES = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384)
# Fewer than a tensor core's step, or more than one tensor of the device holds, is no grid's shape.
_LEAST, _MOST = 1, 1 << 20
_MOST_SHAPES = 20_000
# Operations below which a product is small, and from which on it is large.
SMALL_FLOPS, LARGE_FLOPS = 1e9, 1e11
SizeClass = Literal["small", "medium", "large"]
SIZE_CLASSES: tuple[SizeClass, ...] = get_args(SizeClass)


class GemmShape(Value):
    """M x K times K x N, `batch` times; `layout` says how the factors lie."""

    m: int = Field(ge=_LEAST, le=_MOST)
    n: int = Field(ge=_LEAST, le=_MOST)
    k: int = Field(ge=_LEAST, le=_MOST)
    layout: Layout = "nt"
    batch: int = Field(default=1, ge=1, le=_MOST)

    @property
    def flops(self) -> int:
        """Operations, a multiply-add counted as two."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def size_class(self) -> SizeClass:
        """By its operations."""
        if self.flops < SMALL_FLOPS:
            return "small"
        return "medium" if self.flops < LARGE_FLOPS else "large"

    @property
    def name(self) -> str:
        """Short, and a name for files: `4096x1024x512_nt`, with `b8` where there are batches."""
        batch = f"_b{self.batch}" if self.batch > 1 else ""
        return f"{self.m}x{self.n}x{self.k}_{self.layout}{batch}"


def shapes_of(words: str, layouts: Sequence[Layout]) -> tuple[GemmShape, ...]:
    """The shapes that a person asked for, each once, in their order.

    Args:
        words: A grid, a file's path or a draw, see above.
        layouts: Every shape in each of these, where a file does not say.

    Raises:
        ValueError: One sentence on what is wrong with the words.
    """
    if words.startswith(f"{CUDA_L2}:") or words == CUDA_L2:
        found: Iterable[GemmShape] = _drawn(words, layouts)
    elif re.fullmatch(r"[\d.,]+(x[\d.,]+)+", words):
        found = _grid(words, layouts)
    else:
        found = _file(Path(words), layouts)
    shapes = tuple(dict.fromkeys(found))
    if not shapes:
        raise ValueError(f"{words!r} names no shape")
    if len(shapes) > _MOST_SHAPES:
        raise ValueError(f"{words!r} names {len(shapes)} shapes; {_MOST_SHAPES} are the most")
    return shapes


def layouts_of(words: str) -> tuple[Layout, ...]:
    """Layouts of a list as in `nn,nt`.

    Raises:
        ValueError: One of them is none.
    """
    named = tuple(dict.fromkeys(words.split(",")))
    if wrong := next((word for word in named if word not in LAYOUTS), None):
        raise ValueError(f"layout {wrong!r} is not one of {', '.join(LAYOUTS)}")
    return tuple(layout for layout in LAYOUTS if layout in named)


def _grid(words: str, layouts: Sequence[Layout]) -> Iterable[GemmShape]:
    sides = [_side(part, words) for part in words.split("x")]
    if len(sides) != 3:
        raise ValueError(f"a grid is MxNxK, each a size, a list or a range, not {words!r}")
    return [_shape(words, m, n, k, layout) for m, n, k in product(*sides) for layout in layouts]


def _side(words: str, grid: str) -> list[int]:
    sizes: list[int] = []
    for part in words.split(","):
        found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", part)
        if found is None:
            raise ValueError(f"{part!r} of {grid!r} is no size, and no range as in 64..1024")
        low, high = int(found[1]), int(found[2] or found[1])
        if low < 1 or high < low:
            raise ValueError(f"{part!r} of {grid!r} has no sizes")
        while low <= high:
            sizes.append(low)
            low *= 2
    return sizes


def _drawn(words: str, layouts: Sequence[Layout]) -> Iterable[GemmShape]:
    """Of the thousand, so many by a seed; with several layouts each in every one of them."""
    found = re.fullmatch(rf"{CUDA_L2}(?::(\d+)(?::(\d+))?)?", words)
    if found is None:
        raise ValueError(f"say {CUDA_L2}, {CUDA_L2}:COUNT or {CUDA_L2}:COUNT:SEED, not {words!r}")
    every = list(product(CUDA_L2_SIDES, repeat=3))
    count, seed = int(found[1] or len(every)), int(found[2] or 0)
    if not 1 <= count <= len(every):
        raise ValueError(f"{words!r} asks for {count} of {len(every)} shapes")
    drawn = random.Random(seed).sample(every, count)
    return [GemmShape(m=m, n=n, k=k, layout=layout) for m, n, k in drawn for layout in layouts]


def _file(path: Path, layouts: Sequence[Layout]) -> Iterable[GemmShape]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise ValueError(
            f"{str(path)!r} is no grid as in 64..1024x4096x4096, no draw as in "
            f"{CUDA_L2}:125:0, and no file of shapes that can be read"
        ) from None
    found: list[GemmShape] = []
    for number, line in enumerate(lines, start=1):
        parts = re.split(r"[\s,]+", line.partition("#")[0].strip())
        if parts != [""]:
            found += _line(parts, f"{path}:{number}", layouts)
    return found


def _line(parts: Sequence[str], where: str, layouts: Sequence[Layout]) -> list[GemmShape]:
    sizes = [*parts[:3], *parts[4:5]]
    if not 3 <= len(parts) <= 5 or not all(part.isdecimal() for part in sizes):
        raise ValueError(f"{where}: a line is M N K [layout [batch]]")
    chosen = layouts_of(parts[3]) if len(parts) > 3 else layouts
    m, n, k, *batch = map(int, sizes)
    return [_shape(where, m, n, k, layout, *batch) for layout in chosen]


def _shape(where: str, m: int, n: int, k: int, layout: Layout, batch: int = 1) -> GemmShape:
    if not all(_LEAST <= size <= _MOST for size in (m, n, k, batch)):
        raise ValueError(f"{where}: sizes are from {_LEAST} to {_MOST}")
    return GemmShape(m=m, n=n, k=k, layout=layout, batch=batch)
