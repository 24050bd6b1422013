"""Convolutions on Hopper's tensor cores: one product of halves over a packed input.

One pass writes the factor that windows read as rows of halves (`windows`), another the window's own
factor, and the product fetches shifted boxes of rows by tensor maps: nothing is gathered, and
padding, strides, dilation and any number of dimensions are a matter of where rows lie. Where taps
lie next to each other in rows, one box serves several of them.

Float32 that the module multiplies in TF32 is scaled by powers of two, of each image and each output
channel, and rounded to one half: these have the same eleven bits. Results that numbers below
half's normal ones may decide are summed from the factors. Half types are packed as they are.

Float32 that the module multiplies as IEEE says is written as two halves an element, upper and
lower, which three products bring together (`wgmma_windows_split`). Sums begin from zero every 64
positions of the depth and are added to float32 totals, as in `split`. Where TF32 is allowed it
comes second: what the library does is not known for certain, and the judge goes by what it sees.

Results that are reduced over output channels or over windows of outputs are reduced before they
are stored (`folds`), where a tile has all that this needs.

Not here: factors that are computed on the way in, windows of one position in IEEE's float32
(`split`), any other device than sm_90a.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.contractions.convolutions.statistics import (
    CHUNK,
    counted_windows,
    counting_values,
)
from kernelwright.tools.codegen.cuda.contractions.convolutions.window_code import (
    WindowCode,
    columns_beside,
    stored_at,
)
from kernelwright.tools.codegen.cuda.contractions.convolutions.window_plan import (
    ONCE,
    PREPARE,
    other_allocations,
    packing_again,
    product_launch,
    room,
    window_allocations,
    window_arguments,
)
from kernelwright.tools.codegen.cuda.contractions.convolutions.window_ways import (
    MOST_SUMS,
    PROMOTED,
    SPANS,
    Choice,
    choices,
    flops_of_result,
    hertz,
    is_scaled,
    kept_loads,
    most_stages,
    other_side,
    others,
    packing_cycles,
    sampled_runs,
    side_of,
    tiled,
)
from kernelwright.tools.codegen.cuda.contractions.epilogue import ElementPrinter
from kernelwright.tools.codegen.cuda.contractions.family import (
    FEWEST,
    ContractionFamily,
    contraction_arguments,
)
from kernelwright.tools.codegen.cuda.contractions.float32.split import (
    LONGEST,
    PREPARED_WORDS,
    is_preparable,
)
from kernelwright.tools.codegen.cuda.contractions.folds import (
    folded_values,
    folding_of,
    folds_in_turns,
)
from kernelwright.tools.codegen.cuda.contractions.mma_tiles import INCLUDE, half_type
from kernelwright.tools.codegen.cuda.contractions.windows import windows_of
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Launch,
    Tunables,
    c_type,
    complete,
    render,
)
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.contraction import Contraction
from kernelwright.tools.codegen.ir.kernel_family import Fit
from kernelwright.tools.types import DType

CONVOLUTION, SPLIT_CONVOLUTION = "wgmma_windows", "wgmma_windows_split"
_TITLE = "A convolution as one product of halves, its input packed into rows"
_SPLIT_TITLE = "A convolution as three products of halves, its input packed into rows of two parts"
_ARCHITECTURE = "sm_90a"
# Statements of an epilogue that may stand sixteen times.
_FEW = 8
# Shares of an image that blocks look for the largest magnitude in.
_SHARES_OF_IMAGE = 264
# Powers of two that a sample's largest magnitude leaves room for, by the halves of an element.
_MARGINS = {1: 2, 2: 1}
# Columns of any weight, which is packed once for each.
_MOST_COLUMNS = 1 << 14
# Columns that lie next to each other, for lanes to take these and not neighbouring rows.
_SIDE_BY_SIDE = 16


@dataclass(frozen=True)
class _Kind:
    """One strategy: its name, the halves of an element, and what it says of itself."""

    name: str
    title: str
    parts: int
    products: str
    reason: str


_KINDS = (
    _Kind(
        CONVOLUTION,
        _TITLE,
        1,
        "warpgroups multiply from there",
        "Tensor cores multiply halves at twice the rate of TF32 with the same eleven bits, and "
        "rows that lie as tiles need them leave them nothing to wait for.",
    ),
    _Kind(
        SPLIT_CONVOLUTION,
        _SPLIT_TITLE,
        2,
        "warpgroups add three products of upper and lower parts, promoted to float32 totals every "
        f"{PROMOTED} positions",
        "Three products of halves on tensor cores take a fifth of the time of one in float32 on "
        "ordinary cores, and promotion keeps the error at float32's own.",
    ),
)


def _takes(case: Case, contraction: Contraction) -> Fit:
    return Fit.BEST if _kinds(case, contraction) else Fit.NO


def _kinds(case: Case, contraction: Contraction) -> list[_Kind]:
    """The strategies that a product has, with a tile that holds what it folds."""
    found = _multiplying(case, contraction)
    if contraction.folds and contraction.statistics is not None:
        return []  # no kernel here takes statistics of what it folds
    if found and contraction.folds:
        known = windows_of(contraction)
        assert known is not None
        side, ways = known
        in_turns = bool(ways[0].members) and folds_in_turns(contraction, ways[0])
        fits = in_turns or folding_of(contraction, other_side(side)) is not None
        # Where outputs are folded otherwise, it is the weight that windows seem to read.
        fits = fits and others(contraction, side) <= max(ways[0].places, _MOST_COLUMNS)
        return [one for one in found if fits and choices(case, contraction, one.parts)]
    if contraction.statistics is not None:
        return [one for one in found if counted_windows(case, contraction, one.parts) is not None]
    return found


def _multiplying(case: Case, contraction: Contraction) -> list[_Kind]:
    """Those that multiply what it multiplies; none where windows read no factor."""
    if case.hardware.architecture != _ARCHITECTURE or contraction.dtype is not DType.FLOAT32:
        return []
    scaled = is_scaled(contraction)
    if half_type(contraction) is None and not scaled:
        return []
    found = windows_of(contraction) if min(contraction.m, contraction.n) >= FEWEST else None
    if found is None:
        return []
    _, ways = found
    wanted, slides = DType.FLOAT32 if scaled else contraction.precision, bool(ways[0].slid)
    if ways[0].access.dtype is not wanted:
        return []
    single, split = _KINDS
    rough = [single] if not scaled or contraction.is_tf32 else []
    if not scaled or contraction.k > LONGEST or _is_double(contraction):
        return rough if slides or scaled else []
    return [*rough, split] if slides else rough


def _is_double(contraction: Contraction) -> bool:
    loads = (*contraction.left.loads, *contraction.right.loads)
    return any(access.dtype is DType.FLOAT64 for access in loads)


def _kind(name: str) -> _Kind:
    return next(one for one in _KINDS if one.name == name)


def _propose(case: Case, contraction: Contraction) -> Sequence[Strategy]:
    return [
        Strategy(
            name=one.name,
            title=one.title,
            mechanism="The input is written once more as rows of halves, channels beside each "
            "other, padding as zeros and strided positions sorted; every tap of the window is then "
            "a box of rows at a distance, which the copy engine brings into swizzled stages, and "
            f"{one.products}; taps beside each other share a box."
            f"{PREPARED_WORDS if _prepares(case, contraction) else ''}",
            reason=one.reason,
            category="arithmetic",
            metric="tensor core utilisation",
            memory="packed rows of the window's factor",
            compute="tensor cores by warpgroups" if one.parts == 1 else "split products",
            parallel="persistent tiles, warpgroups in turns",
            efficiency=0.9,
            launches=_launches(case, contraction),
            rounds_factors=one.parts == 1 and is_scaled(contraction),
        )
        for one in _kinds(case, contraction)
    ]


def _prepares(case: Case, contraction: Contraction) -> bool:
    """Whether the factor that no window reads is packed once for all calls."""
    is_left = side_of(contraction) == "left"
    return is_preparable(case, contraction.right if is_left else contraction.left)


def _launches(case: Case, contraction: Contraction) -> int:
    """Rows and the product; zeros and magnitudes, or the other factor; and statistics."""
    before = 2 if is_scaled(contraction) else int(not _prepares(case, contraction))
    return 2 + before + (contraction.statistics is not None)


def _predicted_ms(case: Case, contraction: Contraction, strategy: Strategy) -> float:
    best = choices(case, contraction, _kind(strategy.name).parts)[0]
    packing = packing_cycles(case, contraction, best.layout)
    rate = hertz(case.hardware, case.multiprocessors)
    bandwidth = case.hardware.bandwidth_gb_s * 0.9e9
    written = case.moved_bytes[1] / bandwidth
    seconds = packing / rate + max((best.cycles - packing) / rate, written)
    # Few warps have a result at hand: what is done to it overlaps with little else.
    done = flops_of_result(case, contraction)
    results = contraction.batches * contraction.m * contraction.n
    seconds += done * results / (case.hardware.fp32_tflops * 1e12)
    counted = counted_windows(case, contraction, _kind(strategy.name).parts)
    if counted is not None:
        chunk = 32 if best.way.tile[0] % 128 == 0 else 16
        seconds += counted.moved_bytes(chunk) / bandwidth
        seconds += counted.joining_seconds(chunk, bandwidth, rate)
    return seconds * 1e3 + strategy.launches * case.hardware.launch_us / 1e3


def _tunables(case: Case, contraction: Contraction, prefix: str, chosen: Choice) -> Tunables:
    layout, n = chosen.layout, others(contraction, side_of(contraction))
    ordered = [one.way for one in tiled(case, layout, n, contraction.batches)]
    best = ordered[0]
    tunables = Tunables(prefix)
    tunables.add("TILE", [one.tile[0] * 1000 + one.tile[1] for one in ordered])
    tunables.add("GROUPS", (best.groups, *MOST_SUMS))
    tunables.add("REUSE", (best.reuse, *layout.reuses))
    tunables.add("HELD", (int(best.held), 1 - int(best.held)))
    tunables.add("STAGES", (most_stages(case, layout, best), 3, 4, 6, 2))
    tunables.add("SPAN", layout.folding.spans(SPANS) if layout.folding else SPANS)
    # Twice as many sums for one group less, from 64 for four on.
    often = f"({{GROUPS}} * {{GROUPS}} - 3 * {{GROUPS}} + 4) // 2 * {layout.parts}"
    tunables.require(f"({{TILE}} // 64000) * ({{TILE}} % 1000) * {often} <= {MOST_SUMS[2]}")
    units = f"{contraction.batches} * (({n} + {{TILE}} % 1000 - 1) // ({{TILE}} % 1000))"
    tunables.require(f"{{HELD}} * {units} <= {case.multiprocessors}")
    return tunables.require(f"{room(layout)} <= {case.shared_bytes}")


def _is_light(contraction: Contraction) -> bool:
    return len(contraction.epilogue) <= _FEW


def _emit(case: Case, contraction: Contraction, name: str, prefix: str) -> Emitted:
    side = side_of(contraction)
    if not side:
        raise ValueError(f"{case.loop.name}: {name} needs a factor that windows read")
    kind = _kind(name)
    chosen = choices(case, contraction, kind.parts)[0]
    layout, scaled, is_left = chosen.layout, is_scaled(contraction), side == "left"
    printer, whole = ElementPrinter(case.loop, contraction), windows_of(contraction)
    assert whole is not None
    tunables = _tunables(case, contraction, prefix, chosen)
    folding, across = layout.folding, other_side(side)
    plain = not contraction.folds
    by_columns = plain and is_left and contraction.columns[-1].size >= _SIDE_BY_SIDE
    counted = counted_windows(case, contraction, kind.parts)
    if not by_columns and plain and counted is None:
        # Of 15 pairs of settings on an H200 two were faster so, by a fifth, and 13 slower.
        tunables.add("TOGETHER", (0, 1))
    stored_lines, stored_offset = stored_at(printer, contraction)
    other = (printer.right if is_left else printer.left)(along="depth", width=1)
    kept = kept_loads(case, contraction, side)
    known = [one.name for one in kept]
    code = WindowCode(contraction, layout.windows, whole[1][0], layout.pitch, layout.parts)
    half = half_type(contraction) or DType.FLOAT16
    prepared = _prepares(case, contraction)
    images = code.images if scaled else 0
    every = sampled_runs(code.whole) if scaled else 1
    if every > 1:
        tunables.add("EVERY", (every, 1))
    shares = max(1, min(_SHARES_OF_IMAGE, case.multiprocessors * 4 // max(1, images)))
    source = render(
        "windows",
        title=kind.title, prefix=tunables.prefix, name=prefix, tunables=tunables.text(),
        type=c_type(half), memory_type=c_type(layout.windows.access.dtype), scaled=scaled,
        windows=layout.windows, batches=contraction.batches, others=others(contraction, side),
        line=layout.line, pitch=layout.pitch, run_taps=layout.run_taps,
        outer_taps=layout.outer_taps, run_distance=layout.apart, is_left=is_left,
        light=_is_light(contraction), parts=layout.parts, promoted=PROMOTED,
        is_short="kw::is_short" if layout.parts == 2 else "kw::is_subnormal_half",
        weight="kw::SHORT_WEIGHT" if layout.parts == 2 else "2.0f",
        prepared=prepared, samples=every > 1,
        sampled=tunables.named("{EVERY}") if every > 1 else "1", margin=_MARGINS[layout.parts],
        by_columns=by_columns, beside=columns_beside(contraction, layout.windows),
        stored_lines=stored_lines, stored_offset=stored_offset, kept=known,
        kept_values=printer.loaded(kept, across), summands=contraction.k, other_side=across,
        other=other,
        shares=shares, left=printer.left(along="depth"), right=printer.right(along="depth"),
        **code.values(),
        **counting_values(case, counted, tunables, printer.width_of_epilogue(across)),
        **(_leaving(printer, across, known) if plain else
           folded_values(printer, contraction, folding, known)),
    )  # fmt: skip
    arguments = window_arguments(contraction, layout, tunables, prefix, scaled)
    arguments += contraction_arguments(contraction)
    sides = contraction.batches * others(contraction, side)
    once = [Launch(f"{prefix}{ONCE}", f"{sides}", "256")] if prepared else []
    before = images * shares + (0 if prepared else sides)
    launches = [
        *([Launch(f"{prefix}{PREPARE}", f"{before}", "256")] if before else []),
        Launch(f"{prefix}_pack", f"{code.pack_blocks}", "256"),
        *packing_again(case, code, prefix, every),
        product_launch(case, contraction, layout, tunables, prefix, others(contraction, side)),
    ]
    lines = window_allocations(contraction, layout, prefix, half, images)
    of_other = other_allocations(layout, tunables, prefix, half, sides, scaled)
    if counted is not None:
        arguments += counted.arguments(prefix)
        launches.append(counted.launch(prefix))
        lines += counted.allocations(prefix, tunables.named(CHUNK.replace("/", "//")))
    text, plan = complete(source, arguments, [*once, *launches])
    if not prepared:
        return Emitted(source=INCLUDE + text, plan=(*lines, *of_other.values(), *plan))
    return Emitted(
        source=INCLUDE + text,
        plan=(*lines, *plan[len(once) :]),
        prepare=(*of_other.values(), *plan[: len(once)]),
        prepared=tuple(of_other),
    )


def _leaving(printer: ElementPrinter, across: str, kept: Sequence[str]) -> dict[str, object]:
    """What is done to results, one by one and four at a time."""
    known = {name: f"kept_{name}[first_column + of_column]" for name in kept}
    beside = min(4, printer.width_of_epilogue(across))
    neighbour = "n + k" if beside > 1 else "n"
    of_four = {name: f"four_{name}[{neighbour}]" for name in kept}
    return {
        "epilogue": printer.epilogue("whole", known=known),
        "epilogue_of_four": printer.epilogue(
            f"whole[{neighbour}]", along=across, width=beside, known=of_four
        ),
        "stored_beside": beside,
        "passes": (),
    }


CONVOLUTION_FAMILY = ContractionFamily(
    tuple(one.name for one in _KINDS),
    _takes,
    _propose,
    _predicted_ms,
    _emit,
    slides_on=(_ARCHITECTURE,),
    folds=True,
    statistics=True,
)
