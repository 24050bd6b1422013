"""Convolutions on Hopper's tensor cores: one product of halves over a packed input.

One pass writes the factor that windows read as rows of halves (`windows`), another the window's own
factor, and the product fetches shifted boxes of rows by tensor maps: nothing is gathered, and
padding, strides, dilation and any number of dimensions are a matter of where rows lie. Where taps
lie next to each other in rows, one box serves several of them.

Float32 that the module multiplies in TF32 is scaled by powers of two, of each image and each output
channel, and rounded to one half: these have the same eleven bits. Results that numbers below
half's normal ones may decide are summed from the factors themselves. Half types are packed as they are.

Not here: float32 that the module multiplies as IEEE says (`split`), factors that are computed on
the way in, any other device than sm_90a.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.cuda.contractions.epilogue import (
    ElementPrinter,
    contraction_arguments,
)
from kernelwright.tools.codegen.cuda.contractions.family import FEWEST, ContractionFamily
from kernelwright.tools.codegen.cuda.contractions.mma_tiles import INCLUDE
from kernelwright.tools.codegen.cuda.contractions.window_code import WindowCode
from kernelwright.tools.codegen.cuda.contractions.windows import Direction, Windows, windows_of
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    c_type,
    complete,
    render,
)
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.contraction import Contraction
from kernelwright.tools.codegen.ir.kernel_family import Fit
from kernelwright.tools.codegen.ir.roofline import loop_bytes
from kernelwright.tools.types import DType

CONVOLUTION = "wgmma_windows"
_TITLE = "A convolution as one product of halves, its input packed into rows"
_ARCHITECTURE = "sm_90a"
_HALVES = (DType.FLOAT16, DType.BFLOAT16)
# Rows (outputs) by columns of a tile, which one warpgroup multiplies.
_TILES = (
    (128, 128), (64, 256), (64, 192), (256, 64), (192, 64), (128, 64), (64, 128), (256, 32),
    (128, 32), (64, 64), (64, 32),
)  # fmt: skip
# Elements of a line, those of the largest swizzle first.
_LINES = (64, 32, 16)
_MOST_BOX = 256
# What aligns the first stage, and the barriers; for each warp of a group 144 bytes for a column of its
# strip and 4 for one of its tile; columns of a strip.
_ALIGNMENT, _OF_STRIP, _OF_TILE = 1024 + 256, 4 * 144, 4 * 4
_SPANS = (16, 32)
# Warpgroups that take tiles in turns, and the most panels of 64 rows times columns of a tile: the more
# there are, the fewer registers has each, and with more sums than these the epilogue spilled.
_MOST_SUMS = {4: 64, 3: 128, 2: 256}
# Multiply-adds of a multiprocessor in a cycle and the share of them that is reached; bytes of a
# factor that it reads from shared memory meanwhile, and those that the last-level cache brings.
_MULTIPLIED, _SHARE, _SHARED_RATE, _CACHE_RATE = 2048, 0.85, 128.0, 25.0
# Cycles of a step besides, from asking for a copy to its arrival, and those in which a warpgroup
# stores one result a thread (measured: 100 on an H200, as a warp waits for what it has just asked for);
# results that a multiprocessor stores in one at most, and lines that it is brought.
_STEP_CYCLES, _ARRIVAL, _STORED, _MOST_STORED, _LINES_BROUGHT = 40.0, 1200.0, 100.0, 1.7, 1.0
# How much more where two panels give a warp 32 rows beside each other.
_PAIRED = 1.5
# The share of memory's bandwidth that packing reaches, and shares of an image that blocks look at.
_PACKING, _SHARES_OF_IMAGE = 0.7, 264
_FEW = 8
# Columns that lie next to each other, for lanes to take these and not neighbouring rows.
_SIDE_BY_SIDE = 16


@dataclass(frozen=True)
class Way:
    """How tiles are multiplied: their size, taps a step, warpgroups in turns, and whether the other
    factor is held in shared memory.
    """

    tile: tuple[int, int]
    reuse: int
    groups: int
    held: bool


@dataclass(frozen=True)
class Layout:
    """One way to pack and to step: which taps are channels, how wide lines are, taps a step."""

    windows: Windows
    line: int

    @cached_property
    def run(self) -> Direction | None:
        """The direction whose taps may share a box: rows beside each other, in one phase."""
        slid = [one for one in self.windows.slid if one.stride == 1 and one.dilation > 0]
        return slid[-1] if slid and slid[-1] is self.windows.slid[-1] else None

    @property
    def apart(self) -> int:
        """Rows between neighbouring taps of the run."""
        if self.run is None:
            return 0
        at = self.windows.directions.index(self.run)
        return self.windows.pitches[at] * self.run.dilation

    @property
    def run_taps(self) -> int:
        """Taps of the last direction, which steps go through innermost."""
        return self.windows.slid[-1].taps if self.windows.slid else 1

    @property
    def outer_taps(self) -> int:
        """Taps of all others."""
        return self.windows.taps // self.run_taps

    @property
    def pitch(self) -> int:
        """Elements of a packed row."""
        return -(-self.windows.width // self.line) * self.line

    @property
    def reuses(self) -> list[int]:
        """How many taps a step may take."""
        if self.run is None:
            return [1]
        fits = [n for n in range(1, self.run_taps + 1) if (n - 1) * self.apart <= _MOST_BOX]
        # As many steps with fewer taps each, where fewer steps are none.
        return [n for n in fits if n == 1 or -(-self.run_taps // n) < -(-self.run_taps // (n - 1))]

    def steps(self, reuse: int) -> int:
        """Steps of a tile."""
        return self.outer_taps * (self.pitch // self.line) * -(-self.run_taps // reuse)

    def brought(self, rows: int, reuse: int) -> int:
        """Bytes of the window's factor that a step brings."""
        halo = -(-((reuse - 1) * self.apart) // 8) * 8
        return -(-(rows + halo) * self.line * 2 // 1024) * 1024

    def room(self, way: Way, stages: int) -> int:
        """Shared memory of a block."""
        rows, columns = way.tile
        of_step = way.reuse * columns * self.line * 2
        others = self.steps(way.reuse) * of_step if way.held else stages * of_step
        beside = way.groups * (_SPANS[0] * _OF_STRIP + columns * _OF_TILE) + _ALIGNMENT
        return stages * self.brought(rows, way.reuse) + others + beside


@dataclass(frozen=True)
class Choice:
    """A layout with a way, and the cycles that packing and the product then take."""

    layout: Layout
    way: Way
    cycles: float


def _is_scaled(contraction: Contraction) -> bool:
    return contraction.precision is DType.FLOAT32


def _takes(case: Case, contraction: Contraction) -> Fit:
    if case.hardware.architecture != _ARCHITECTURE or contraction.dtype is not DType.FLOAT32:
        return Fit.NO
    scaled = _is_scaled(contraction)
    if not (contraction.is_tf32 if scaled else contraction.precision in _HALVES):
        return Fit.NO
    found = windows_of(contraction) if min(contraction.m, contraction.n) >= FEWEST else None
    if found is None:
        return Fit.NO
    side, ways = found
    wanted = DType.FLOAT32 if scaled else contraction.precision
    if ways[0].access.dtype is not wanted or not (ways[0].slid or scaled):
        return Fit.NO
    return Fit.BEST


def _propose(case: Case, contraction: Contraction) -> Sequence[Strategy]:
    return [
        Strategy(
            name=CONVOLUTION,
            title=_TITLE,
            mechanism="The input is written once more as rows of halves, channels beside each "
            "other, padding as zeros and strided positions sorted; every tap of the window is then "
            "a box of rows at a distance, which the copy engine brings into swizzled stages, and "
            "warpgroups multiply from there; taps beside each other share a box.",
            reason="Tensor cores multiply halves at twice the rate of TF32 with the same eleven "
            "bits, and rows that lie as tiles need them leave them nothing to wait for.",
            category="arithmetic",
            metric="tensor core utilisation",
            memory="packed rows of the window's factor",
            compute="tensor cores by warpgroups",
            parallel="persistent tiles, two in turns",
            efficiency=0.9,
            launches=3,
        )
    ]


def _others(contraction: Contraction, side: str) -> int:
    """Columns of the product: the side of the window's own factor."""
    return contraction.m if side == "right" else contraction.n


def _choices(case: Case, contraction: Contraction) -> list[Choice]:
    """Every way to pack, with its best tile, the fastest first; packing is counted."""
    found = windows_of(contraction)
    if found is None:
        raise ValueError(f"{case.loop.name}: no factor that windows read")
    side, ways = found
    n, batches = _others(contraction, side), contraction.batches
    choices = []
    for windows in ways:
        lines = [line for line in _LINES if line == 16 or windows.width > line // 2]
        for layout in (Layout(windows, line) for line in lines):
            packing = _packing_cycles(case, contraction, layout)
            choices += _tiled(case, layout, n, batches, packing)[:1]
    return sorted(choices, key=lambda one: one.cycles)


def _tiled(
    case: Case, layout: Layout, n: int, batches: int, packing: float = 0.0
) -> list[Choice]:
    """The tiles and reuses of a layout that fit a block, the fastest first."""
    ways = (
        Way(tile, reuse, groups, held)
        for tile in _TILES
        for groups, most in _MOST_SUMS.items()
        if tile[0] // 64 * tile[1] <= most
        for reuse in layout.reuses
        for held in (True, False)
        if not (held and batches * -(-n // tile[1]) > case.multiprocessors)
    )
    found = [
        Choice(layout, way, packing + _cycles(case, layout, way, n, batches))
        for way in ways
        if layout.room(way, 2) <= case.shared_bytes
    ]
    return sorted(found, key=lambda one: one.cycles)


def _side(contraction: Contraction) -> str:
    found = windows_of(contraction)
    return found[0] if found is not None else ""


def _stages(case: Case, layout: Layout, way: Way) -> int:
    """As many as fit, eight at most."""
    return max(n for n in range(2, 9) if layout.room(way, n) <= case.shared_bytes)


def _cycles(case: Case, layout: Layout, way: Way, n: int, batches: int) -> float:
    """Of the product: waves of tiles at the rate of products, copies or stores."""
    rows, columns = way.tile
    across = batches * -(-n // columns)
    down = -(-layout.windows.places // rows)
    products = way.reuse * layout.line / 16 * rows / 64
    multiplied = max(64 * columns * 16 / _MULTIPLIED / _SHARE, (64 + columns) * 32 / _SHARED_RATE)
    others = 0 if way.held else way.reuse * columns * layout.line * 2
    brought = layout.brought(rows, way.reuse) + others
    lines = brought / (2 * layout.line) / _LINES_BROUGHT
    step = max(products * multiplied, brought / _CACHE_RATE, lines) + _STEP_CYCLES
    # A stage is asked for again when its products are over.
    step = max(step, (_ARRIVAL + 2 * step) / _stages(case, layout, way))
    summed = layout.steps(way.reuse) * step
    stored = rows * columns / 128 * _STORED
    rate = _MOST_STORED * (_PAIRED if rows % 128 == 0 else 1.0)
    of_tile = max(summed, (summed + stored) / way.groups, rows * columns / rate)
    blocks = case.multiprocessors // across * across if way.held else case.multiprocessors
    return -(-down * across // blocks) * of_tile


def _hertz(hardware: Hardware, multiprocessors: int) -> float:
    return (hardware.tensor_tflops or 1.0) * 1e12 / multiprocessors / (2 * _MULTIPLIED)


def _packing_cycles(case: Case, contraction: Contraction, layout: Layout) -> float:
    read = loop_bytes(case.loop)[0] * (2 if _is_scaled(contraction) else 1)
    moved = read + 2 * 2 * contraction.batches * layout.windows.rows * layout.pitch
    seconds = moved / (case.hardware.bandwidth_gb_s * 1e9 * _PACKING)
    return seconds * _hertz(case.hardware, case.multiprocessors)


def _predicted_ms(case: Case, contraction: Contraction, strategy: Strategy) -> float:
    best = _choices(case, contraction)[0]
    packing = _packing_cycles(case, contraction, best.layout)
    hertz = _hertz(case.hardware, case.multiprocessors)
    written = loop_bytes(case.loop)[1] / (case.hardware.bandwidth_gb_s * 0.9e9)
    seconds = packing / hertz + max((best.cycles - packing) / hertz, written)
    return seconds * 1e3 + strategy.launches * case.hardware.launch_us / 1e3


def _tunables(
    case: Case, contraction: Contraction, prefix: str, chosen: Choice
) -> Tunables:
    layout, n = chosen.layout, _others(contraction, _side(contraction))
    ordered = [one.way for one in _tiled(case, layout, n, contraction.batches)]
    best = ordered[0]
    tunables = Tunables(prefix)
    tunables.add("TILE", [one.tile[0] * 1000 + one.tile[1] for one in ordered])
    tunables.add("GROUPS", (best.groups, *_MOST_SUMS))
    tunables.add("REUSE", (best.reuse, *layout.reuses))
    tunables.add("HELD", (int(best.held), 1 - int(best.held)))
    tunables.add("STAGES", (_stages(case, layout, best), 3, 4, 6, 2))
    tunables.add("SPAN", _SPANS)
    # Twice as many sums for one group less, from 64 for four on.
    often = "({GROUPS} * {GROUPS} - 3 * {GROUPS} + 4) // 2"
    tunables.require(f"({{TILE}} // 64000) * ({{TILE}} % 1000) * {often} <= {_MOST_SUMS[2]}")
    units = f"{contraction.batches} * (({n} + {{TILE}} % 1000 - 1) // ({{TILE}} % 1000))"
    tunables.require(f"{{HELD}} * {units} <= {case.multiprocessors}")
    return tunables.require(f"{_room(layout)} <= {case.shared_bytes}")


def _is_light(contraction: Contraction) -> bool:
    return len(contraction.epilogue) <= _FEW


def _halo(layout: Layout) -> str:
    return f"(({{REUSE}} - 1) * {layout.apart} + 7) // 8 * 8"


def _room(layout: Layout) -> str:
    """Shared memory of a block, as a plan's expression."""
    line = 2 * layout.line
    left = f"(({{TILE}} // 1000 + {_halo(layout)}) * {line} + 1023) // 1024 * 1024"
    right = f"({{TILE}} % 1000) * {line}"
    steps = layout.outer_taps * (layout.pitch // layout.line)
    depth = f"{steps} * (({layout.run_taps} + {{REUSE}} - 1) // {{REUSE}})"
    others = f"({{HELD}} * {depth} + (1 - {{HELD}}) * {{STAGES}}) * {{REUSE}} * {right}"
    of_group = f"({{SPAN}} * {_OF_STRIP} + ({{TILE}} % 1000) * {_OF_TILE})"
    beside = f"{{GROUPS}} * {of_group} + {_ALIGNMENT}"
    return f"{{STAGES}} * ({left}) + {others} + {beside}"


def _depth(layout: Layout) -> str:
    """Elements of the other factor's packed depth, as a plan's expression."""
    steps = layout.outer_taps * (layout.pitch // layout.line)
    return f"{steps} * ceil_div({layout.run_taps}, {{REUSE}}) * {{REUSE}} * {layout.line}"


def _emit(case: Case, contraction: Contraction, name: str, prefix: str) -> Emitted:
    side = _side(contraction)
    if not side:
        raise ValueError(f"{case.loop.name}: {name} needs a factor that windows read")
    chosen = _choices(case, contraction)[0]
    layout, scaled, is_left = chosen.layout, _is_scaled(contraction), side == "left"
    printer, whole = ElementPrinter(case.loop, contraction), windows_of(contraction)
    assert whole is not None
    tunables = _tunables(case, contraction, prefix, chosen)
    other = (printer.right if is_left else printer.left)(along="depth", width=1)
    epilogue = printer.epilogue("whole")
    code = WindowCode(contraction, layout.windows, whole[1][0], layout.pitch)
    half = contraction.precision if contraction.precision in _HALVES else DType.FLOAT16
    images = code.images if scaled else 0
    shares = max(1, min(_SHARES_OF_IMAGE, case.multiprocessors * 4 // max(1, images)))
    source = render(
        "windows",
        title=_TITLE, prefix=tunables.prefix, name=prefix, tunables=tunables.text(),
        type=c_type(half), memory_type=c_type(layout.windows.access.dtype), scaled=scaled,
        windows=layout.windows, batches=contraction.batches, others=_others(contraction, side),
        line=layout.line, pitch=layout.pitch, run_taps=layout.run_taps,
        outer_taps=layout.outer_taps, run_distance=layout.apart, is_left=is_left,
        light=_is_light(contraction),
        by_columns=is_left and contraction.columns[-1].size >= _SIDE_BY_SIDE,
        summands=contraction.k, other_side="column" if is_left else "row", other=other, epilogue=epilogue,
        shares=shares, left=printer.left(along="depth"), right=printer.right(along="depth"),
        **code.values(),
    )  # fmt: skip
    arguments = [*_arguments(contraction, layout, tunables, prefix, scaled)]
    arguments += contraction_arguments(contraction)
    sides = contraction.batches * _others(contraction, side)
    launches = [
        Launch(f"{prefix}_prepare", f"{images * shares + sides}", "256"),
        Launch(f"{prefix}_pack", f"{code.pack_blocks}", "256"),
        _launch(case, contraction, layout, tunables, prefix, _others(contraction, side)),
    ]
    text, plan = complete(source, arguments, launches)
    lines = _allocations(contraction, layout, tunables, prefix, half, sides, images)
    return Emitted(source=INCLUDE + text, plan=(*lines, *plan))


def _arguments(
    contraction: Contraction, layout: Layout, tunables: Tunables, prefix: str, scaled: bool
) -> list[Argument]:
    """What the passes leave for the product, as memory and as maps."""
    line = layout.line
    boxes = (
        ("window_map", "rows", f"({{TILE}} // 1000, {line})"),
        ("halo_map", "rows", f"(max(8, {_halo(layout)}), {line})"),
        ("other_map", "others", f"({{TILE}} % 1000, {line})"),
    )
    found = [
        Argument(
            name,
            f"const __grid_constant__ kw::TensorMap {name}",
            tunables.named(f"tensor_map({prefix}_{what}, box={box}, swizzle={2 * line})"),
        )
        for name, what, box in boxes
    ]
    half = c_type(contraction.precision if contraction.precision in _HALVES else DType.FLOAT16)
    found.append(Argument("window_rows", f"{half}* window_rows", f"{prefix}_rows"))
    found.append(Argument("other_packed", f"{half}* other_packed", f"{prefix}_others"))
    if scaled:
        for name, kind in (
            ("window_largest", "unsigned int"),
            ("window_short", "unsigned int"),
            ("other_scales", "int"),
        ):
            found.append(Argument(name, f"{kind}* {name}", f"{prefix}_{name}"))
    return found


def _allocations(
    contraction: Contraction,
    layout: Layout,
    tunables: Tunables,
    prefix: str,
    half: DType,
    sides: int,
    images: int,
) -> list[str]:
    rows = contraction.batches * layout.windows.rows
    depth = tunables.named(_depth(layout))
    lines = [
        f'{prefix}_rows = empty(({rows}, {layout.pitch}), dtype="{half.value}")',
        f'{prefix}_others = empty(({sides}, {depth}), dtype="{half.value}")',
    ]
    if images:
        lines += [
            f'{prefix}_window_largest = zeros(({images},), dtype="int32")',
            f'{prefix}_window_short = zeros(({images},), dtype="int32")',
            f'{prefix}_other_scales = empty(({2 * sides},), dtype="int32")',
        ]
    return lines


def _launch(
    case: Case, contraction: Contraction, layout: Layout, tunables: Tunables, prefix: str, n: int
) -> Launch:
    down = f"ceil_div({layout.windows.places}, {{TILE}} // 1000)"
    across = f"({contraction.batches} * ceil_div({n}, {{TILE}} % 1000))"
    # Blocks that hold columns go through tiles of the same ones.
    even = f"max(1, {case.multiprocessors} // {across}) * {across}"
    blocks = f"({{HELD}} * {even} + (1 - {{HELD}}) * {case.multiprocessors})"
    return Launch(
        kernel=f"{prefix}_windows",
        grid=tunables.named(f"min({blocks}, {down} * {across})"),
        block=tunables.named("({GROUPS} + 1) * 128"),
        shared=tunables.named(_room(layout)),
    )


CONVOLUTION_FAMILY = ContractionFamily(
    (CONVOLUTION,), _takes, _propose, _predicted_ms, _emit
)
