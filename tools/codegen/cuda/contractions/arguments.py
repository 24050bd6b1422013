"""The parameters of a product's kernels: its buffers."""

from __future__ import annotations

from kernelwright.tools.codegen.cuda.printing.expressions import Argument, c_type
from kernelwright.tools.codegen.ir.contraction import Contraction


def contraction_arguments(contraction: Contraction) -> list[Argument]:
    """A parameter for every buffer: what is read, then what is written.

    Raises:
        ValueError: When a buffer is both.
    """
    later = contraction.statistics
    bodies = [contraction.left.body, contraction.right.body, contraction.epilogue]
    bodies += [later.body] if later is not None else []
    read = [stmt.access for body in bodies for stmt in body if stmt.access is not None]
    stores = (*contraction.stores, *(later.stores if later is not None else ()))
    written = [store.access for store in stores]
    both = {access.buffer for access in read} & {access.buffer for access in written}
    if both:
        raise ValueError(f"{', '.join(sorted(both))} is both read and written")
    every = [(access, "const ") for access in read] + [(access, "") for access in written]
    made: dict[str, Argument] = {}
    for access, const in every:
        name = f"g_{access.buffer}"
        text = f"{const}{c_type(access.dtype)}* __restrict__ {name}"
        made.setdefault(name, Argument(name, text, access.buffer))
    return list(made.values())
