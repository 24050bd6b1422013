"""Statistics of a convolution's results: which side is counted, and what its skeleton is told."""

from __future__ import annotations

from kernelwright.tools.codegen.cuda.contractions.convolutions.window_ways import choices, side_of
from kernelwright.tools.codegen.cuda.contractions.statistics.tiles import CountedTiles, counted_side
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import Tunables
from kernelwright.tools.codegen.ir.contraction import Contraction

# Places of a warp, which statistics have together.
CHUNK = "(32 - 16 * ({TILE} / 64000 % 2))"


def counted_windows(case: Case, contraction: Contraction, parts: int) -> CountedTiles | None:
    """The statistics of what a product makes; None where it has none, or none that tiles take."""
    found = choices(case, contraction, parts) if contraction.statistics is not None else ()
    if not found or contraction.folds or contraction.statistics is None:
        return None
    extents = [one.extent for one in found[0].layout.windows.directions]
    name = "row" if side_of(contraction) == "left" else "column"
    side = counted_side(contraction, name, extents)
    return None if side is None else CountedTiles(contraction, contraction.statistics, side)


def counting_values(
    case: Case, counted: CountedTiles | None, tunables: Tunables, beside: int
) -> dict[str, object]:
    """What is told of statistics, and the lines that hand over what they take of a result."""
    if counted is None:
        return {"counted": None, "counted_one": (), "counted_of_four": ()}
    of_four = "of_column + n + k" if beside > 1 else "of_column + n"
    taken = {"tally": (counted.of.value, "DOWN_STRIP")}
    taken |= {"held_back": (counted.of.when, "DOWN")} if counted.of.when else {}
    one, four = (
        [
            f"{name}[({column}) * {line} + {row}] = v_{value};"
            for name, (value, line) in taken.items()
        ]
        for column, row in (("across", "down"), (of_four, "lane % DOWN"))
    )
    values = counted.values(case.loop, tunables.named(CHUNK))
    return {"counted": values, "counted_one": one, "counted_of_four": four}
