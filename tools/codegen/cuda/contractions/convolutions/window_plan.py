"""What the plan of a convolution says: room for packed factors, kernels' arguments, launches."""

from __future__ import annotations

from kernelwright.tools.codegen.cuda.contractions.convolutions.window_code import BUNDLE, WindowCode
from kernelwright.tools.codegen.cuda.contractions.convolutions.window_ways import (
    ALIGNMENT_BYTES,
    TILE_BYTES,
    Layout,
)
from kernelwright.tools.codegen.cuda.contractions.mma_tiles import half_type
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    c_type,
)
from kernelwright.tools.codegen.ir.contraction import Contraction
from kernelwright.tools.types import DType

# Passes before the product: in every call, and of a weight once for all of them.
PACKING_OTHERS = PREPARE, ONCE = "_prepare", "_once"
# Blocks of a multiprocessor that look whether an image has to be packed again.
_AGAIN = 8


def _halo(layout: Layout) -> str:
    return f"(({{REUSE}} - 1) * {layout.apart} + 7) // 8 * 8"


def room(layout: Layout) -> str:
    """Shared memory of a block, as a plan's expression."""
    line = 2 * layout.line
    left = f"(({{TILE}} // 1000 + {_halo(layout)}) * {line} + 1023) // 1024 * 1024"
    right = f"({{TILE}} % 1000) * {line}"
    steps = layout.outer_taps * (layout.pitch // layout.line)
    depth = f"{steps} * (({layout.run_taps} + {{REUSE}} - 1) // {{REUSE}})"
    kept = f"({{HELD}} * {depth} + (1 - {{HELD}}) * {{STAGES}}) * {{REUSE}} * {right}"
    kept = f"{layout.parts} * {kept}"
    of_group = f"{{SPAN}} * {layout.strip_bytes} + ({{TILE}} % 1000) * {TILE_BYTES * layout.kept}"
    if layout.in_turns:
        of_group += " + 4 * ({TILE} // 1000) * ({TILE} % 1000)"
    beside = f"{{GROUPS}} * ({of_group}) + {ALIGNMENT_BYTES}"
    return f"{{STAGES}} * {layout.parts} * ({left}) + {kept} + {beside}"


def _depth(layout: Layout) -> str:
    """Elements of the other factor's packed depth, as a plan's expression."""
    steps = layout.outer_taps * (layout.pitch // layout.line)
    return f"{steps} * ceil_div({layout.run_taps}, {{REUSE}}) * {{REUSE}} * {layout.line}"


def window_arguments(
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
    half = c_type(half_type(contraction) or DType.FLOAT16)
    found.append(Argument("window_rows", f"{half}* window_rows", f"{prefix}_rows"))
    found.append(
        Argument("other_packed", f"{half}* other_packed", f"{prefix}_others", PACKING_OTHERS)
    )
    if scaled:
        state, scales = f"{prefix}_window_state", f"{prefix}_other_scales"
        found.append(Argument("window_state", "unsigned int* window_state", state))
        found.append(Argument("other_scales", "int* other_scales", scales, PACKING_OTHERS))
    return found


def window_allocations(
    contraction: Contraction, layout: Layout, prefix: str, half: DType, images: int
) -> list[str]:
    """Plan lines that make room for what every call packs."""
    rows, pitch = contraction.batches * layout.windows.rows, layout.parts * layout.pitch
    lines = [f'{prefix}_rows = empty(({rows}, {pitch}), dtype="{half.value}")']
    if images:
        told = 3 * images + -(-rows // BUNDLE) + 1
        lines.append(f'{prefix}_window_state = zeros(({told},), dtype="int32")')
    return lines


def other_allocations(
    layout: Layout, tunables: Tunables, prefix: str, half: DType, sides: int, scaled: bool
) -> dict[str, str]:
    """The same for the other factor, by the name of what is made."""
    shape = f"({sides}, {layout.parts} * {tunables.named(_depth(layout))})"
    made = {f"{prefix}_others": f'empty({shape}, dtype="{half.value}")'}
    if scaled:
        made[f"{prefix}_other_scales"] = f'empty(({2 * sides},), dtype="int32")'
    return {name: f"{name} = {made_as}" for name, made_as in made.items()}


def packing_again(case: Case, code: WindowCode, prefix: str, every: int) -> list[Launch]:
    """The pass over images whose sample was not enough; few blocks, as nearly always none was."""
    blocks = min(code.pack_blocks, _AGAIN * case.multiprocessors)
    return [Launch(f"{prefix}_repack", f"{blocks}", "256")] if every > 1 else []


def product_launch(
    case: Case, contraction: Contraction, layout: Layout, tunables: Tunables, prefix: str, n: int
) -> Launch:
    """The product's, of as many blocks as a device has multiprocessors at most."""
    down = f"ceil_div({layout.windows.places}, {{TILE}} // 1000)"
    across = f"({contraction.batches} * ceil_div({n}, {{TILE}} % 1000))"
    # Blocks that hold columns go through tiles of the same ones.
    even = f"max(1, {case.multiprocessors} // {across}) * {across}"
    blocks = f"({{HELD}} * {even} + (1 - {{HELD}}) * {case.multiprocessors})"
    return Launch(
        kernel=f"{prefix}_windows",
        grid=tunables.named(f"min({blocks}, {down} * {across})"),
        block=tunables.named("({GROUPS} + 1) * 128"),
        shared=tunables.named(room(layout)),
    )
