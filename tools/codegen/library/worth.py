"""Whether a form is worth proposing: kernels for all of it, and no product that must be slow."""

from __future__ import annotations

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir import LibraryCall, Program
from kernelwright.tools.codegen.ir.contraction import PRODUCT, contraction_of
from kernelwright.tools.codegen.ir.kernel_family import Emitter
from kernelwright.tools.codegen.ir.roofline import library_product_ms
from kernelwright.tools.codegen.ir.scores import ATTENTION


def lacks_kernels(program: Program, emitter: Emitter, hardware: Hardware) -> bool:
    """Whether something stands in it that no library computes, and no family either."""
    alone = [
        n for n in program.nodes if isinstance(n, LibraryCall) and n.line.operator == ATTENTION
    ]
    return any(not emitter.strategies(node, hardware) for node in alone)


# How far behind the library products of our own may be expected to stay, to be proposed at all.
# Of a product this short it is not told: the library waits for its operands as well.
_FAR_BEHIND, _SHORT_MS = 2.0, 0.03


def keeps_up(program: Program, emitter: Emitter, hardware: Hardware) -> bool:
    """Whether the products among a program's loops take no multiple of the library's time."""
    ours = theirs = 0.0
    for loop in program.loops:
        product = contraction_of(loop) if loop.family == PRODUCT else None
        if product is not None:
            ways = emitter.strategies(loop, hardware)
            ours += min(emitter.predicted_ms(loop, way, hardware) for way in ways)
            theirs += _FAR_BEHIND * library_product_ms(product, hardware) + _SHORT_MS
    return ours <= theirs
