"""The family of products that tensor maps feed on Hopper: what it proposes, and its source.

As `wgmma`'s kernel for halves, but one thread asks the copy engine for whole boxes of both factors,
which leaves the others nothing but to multiply. Tiles that are neighbours can form a cluster, whose
blocks bring the larger factor once for all of them, and blocks can share the depth of one tile
where there are few. Two groups share a tile, or each has its own and multiplies while the other's
results leave, from registers or through shared memory by a map of their own.

Rows are one axis wherever the left factor walks them as one, whatever the epilogue makes of them: a
gate for each image or positions for all images are addressed by parts of the row, and cost a
multiplication or two for eight results.

Not here: factors that are computed on the way or lie in odd strides (`mma_tiles`), sides that their
factor does not walk as one, and depths that more blocks share than a cluster has.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from kernelwright.tools.codegen.cuda.contractions.epilogue import ElementPrinter
from kernelwright.tools.codegen.cuda.contractions.family import (
    FEWEST,
    ContractionFamily,
    contraction_arguments,
)
from kernelwright.tools.codegen.cuda.contractions.mapped.factors import (
    MappedFactor,
    MappedResults,
    both_mapped,
    map_argument,
    mapped_results,
)
from kernelwright.tools.codegen.cuda.contractions.mapped.schemes import (
    LINE_BYTES,
    SCHEMES,
    schemes_of,
)
from kernelwright.tools.codegen.cuda.contractions.mapped.ways import (
    ALIGNMENT,
    BOX_BYTES,
    BOXES,
    CLUSTERS,
    MOST_BLOCKS,
    MOST_SPANNED,
    MOST_STAGES,
    Way,
    dear,
    ordered_ways,
    room_bytes,
    splits,
    way_ms,
)
from kernelwright.tools.codegen.cuda.contractions.mma_tiles import INCLUDE
from kernelwright.tools.codegen.cuda.contractions.tiles import shape_of
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    c_type,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.printing.printing import decoded
from kernelwright.tools.codegen.ir import Emitted, Strategy
from kernelwright.tools.codegen.ir.contraction import Contraction
from kernelwright.tools.codegen.ir.kernel_family import Fit
from kernelwright.tools.codegen.ir.roofline import roofline_ms
from kernelwright.tools.types import Setting

_ARCHITECTURE = "sm_90a"
# Results that are stored at once.
_TOGETHER = 8
# Statements of an epilogue that are few enough to stand once for every register, and all of them
# but one cheap: choosing among registers costs more than the length.
_FEW = 16
# Results of a tile whose steps can be counted, and steps of eight-bit factors between two
# promotions, of 128 positions each.
_MOST_COUNTED, _PROMOTED = 128 * 192, (1, 2, 4)
# Ways that are worth a look before any other, and how much slower than the first one they may be.
_FIRST, _FAR = 8, 1.5


def _takes(case: Case, contraction: Contraction) -> Fit:
    if case.hardware.architecture != _ARCHITECTURE or not schemes_of(contraction):
        return Fit.NO
    if min(contraction.m, contraction.n) < FEWEST or both_mapped(contraction) is None:
        return Fit.NO
    return Fit.BEST


def _propose(case: Case, contraction: Contraction) -> Sequence[Strategy]:
    return [
        Strategy(
            name=name,
            title=scheme.title,
            mechanism="Persistent blocks: one thread has the copy engine bring boxes of both "
            "factors into a ring of swizzled stages by tensor maps, neighbours in a cluster share "
            "the larger one, and warpgroups multiply straight from shared memory by wgmma; the "
            f"epilogue runs on the {scheme.kept} before they are stored once.",
            reason="Hopper's tensor cores reach their full rate when nothing but products is left "
            "for the warps that ask for them.",
            category="arithmetic",
            metric="tensor core utilisation",
            memory="ring of copies by tensor maps",
            compute="tensor cores by warpgroups",
            parallel="persistent tiles in clusters",
            efficiency=0.9,
        )
        for name, scheme in schemes_of(contraction).items()
    ]


class _Printing:
    """A product under one scheme: its ways in order, and what is printed of it.

    Args:
        case: The product on its device.
        contraction: The product.
        name: The strategy.

    Raises:
        ValueError: No tensor maps describe its factors.
    """

    def __init__(self, case: Case, contraction: Contraction, name: str) -> None:
        factors = both_mapped(contraction)
        if factors is None:
            raise ValueError(f"{case.loop.name}: {name} needs factors that tensor maps describe")
        self.case, self.contraction, self.scheme = case, contraction, SCHEMES[name]
        self.left, self.right = factors
        self.printer = ElementPrinter(case.loop, contraction)
        self.needed = self.printer.tile_is_needed(("first_row", "BM"), ("first_column", "BN"))
        # Blocks of a cluster go through the same steps, whether they need them or not.
        self.alike = self.needed == "true"
        self.results: MappedResults | None = mapped_results(contraction, self.printer)
        self.ways = ordered_ways(
            case, contraction, self.scheme, alike=self.alike, boxed=self.results is not None
        )

    def emitted(self, prefix: str) -> Emitted:
        """The source and the plan's line."""
        tunables = self._tunables(prefix)
        arguments = [*self._maps(tunables), *contraction_arguments(self.contraction)]
        launch = self._launch(tunables, prefix)
        text, plan = complete(self._source(tunables, prefix), arguments, [launch])
        return Emitted(source=INCLUDE + text, plan=plan)

    def _source(self, tunables: Tunables, prefix: str) -> str:
        contraction, width = self.contraction, min(_TOGETHER, self.printer.width_of_epilogue())
        batches = [axis.size for axis in contraction.batch]
        return render(
            "map_tiles",
            title=self.scheme.title,
            prefix=tunables.prefix,
            name=prefix,
            tunables=tunables.text(),
            type=c_type(contraction.precision),
            depth=self.scheme.step,
            promotes=self.scheme.promotes,
            sum=self.scheme.register,
            shape=shape_of(contraction),
            needed=self.needed,
            clusters=self.alike,
            room=room_bytes(self.case),
            left=self.left,
            right=self.right,
            batch_lines=decoded("batch_", "batch", batches, "int"),
            epilogue=self.printer.epilogue("sum[k]" if width > 1 else "sum[0]", width=width),
            staged=self.results,
            written_out=dear(contraction) == 0,
        )

    def _tunables(self, prefix: str) -> Tunables:
        best, tunables = self.ways[0], Tunables(prefix)
        tunables.add("TILE", [way.tile for way in self.ways])
        tunables.add("STAGES", (MOST_STAGES, 4, 3))
        if self.alike:
            self._add_sharing(tunables, best)
        if self.results is not None:
            tunables.add("BOXES", (best.boxes, BOXES, 0))
            tunables.require(f"{{BOXES}} == 0 or ({_COLUMNS} >= 64 and {{SPAN}} >= 64)")
            if self.alike:
                tunables.require("{BOXES} == 0 or {SPLIT} == 1")  # joined, from registers
        if self.scheme.promotes:
            tunables.add("PROMOTED", _PROMOTED)
            # The largest tiles have no registers for counting steps as well.
            tunables.require(f"{{PROMOTED}} == 1 or ({_ROWS}) * ({_COLUMNS}) < {_MOST_COUNTED}")
        spans = (256, 64, 32) if _is_light(self.contraction) else (64, 32, 256)
        tunables.add("SPAN", spans).add("GROUP", (8, 16, 4, 1))
        tunables.require(f"({_COLUMNS}) % min({{SPAN}}, {_COLUMNS}) == 0")
        turns = " * (1 + {TURNS})" if self.alike else ""
        tunables.require(f"{{SPAN}} <= 64 or ({_ROWS}) * ({_COLUMNS}){turns} <= {MOST_SPANNED}")
        return tunables.require(f"{self._stages()} >= 2")

    def _add_sharing(self, tunables: Tunables, best: Way) -> None:
        """What is shared among blocks and groups, and what excludes what."""
        tunables.add("CLUSTER", (best.cluster, *CLUSTERS)).add("LATE", (0, 1, 2))
        near = sorted(splits(self.contraction), key=lambda n: abs(log2(n / best.split)))
        tunables.add("SPLIT", near)
        tunables.add("TURNS", (int(best.turns), 0, *[1] * (self.scheme.most_of_group > 0)))
        tunables.require(f"{{CLUSTER}} * {{SPLIT}} <= {MOST_BLOCKS}")
        joined = f"({_ROWS}) * ({_COLUMNS}) * 4 <= {self._stages()} * ({_STAGE})"
        tunables.require(f"{{SPLIT}} == 1 or ({joined})")
        tunables.require("{SPLIT} == 1 or {TURNS} == 0")
        tunables.require(f"{{LATE}} < {self._stages()} - 1 and ({{LATE}} == 0 or {{TURNS}} == 0)")
        most = self.scheme.most_of_group
        tunables.require(
            f"{{TURNS}} == 0 or ({_ROWS} <= 128 and ({_ROWS}) * ({_COLUMNS}) <= {most})"
        )
        tunables.require(f"{{CLUSTER}} == 1 or max({_ROWS}, {_COLUMNS}) >= 128")
        if not self.right.along_depth:
            tunables.require(f"{{CLUSTER}} == 1 or {_COLUMNS} != 192")

    # -- expressions of the plan

    def _groups(self) -> str:
        turns = "{TURNS}" if self.alike else "0"
        return f"(1 + min(({_ROWS}) // 128 + {turns}, 1))"

    def _boxes(self) -> str:
        """Bytes of all boxes of results."""
        if self.results is None:
            return "0"
        return f"{self._groups()} * {{BOXES}} * {4 * BOX_BYTES}"

    def _stages(self) -> str:
        """As many as were asked for and fit."""
        room = f"({room_bytes(self.case)} - {self._boxes()})"
        return f"min({{STAGES}}, {room} // ({_STAGE}))"

    def _shared(self) -> str:
        return f"{self._stages()} * ({_STAGE}) + {self._boxes()} + {ALIGNMENT}"

    def _maps(self, tunables: Tunables) -> list[Argument]:
        """A box of the larger factor is what one block of a cluster brings of it."""
        parts = "{CLUSTER}" if self.alike else "1"
        left = f"{_ROWS} // ({parts} if {_ROWS} > {_COLUMNS} else 1)"
        right = f"{_COLUMNS} // ({parts} if {_COLUMNS} >= {_ROWS} else 1)"
        sides: tuple[tuple[str, MappedFactor, str], ...] = (
            ("left", self.left, left), ("right", self.right, right),
        )  # fmt: skip
        maps = [
            map_argument(self.contraction, which, factor, tunables.named(rows))
            for which, factor, rows in sides
        ]
        return [*maps, *([self.results.argument] if self.results is not None else [])]

    def _launch(self, tunables: Tunables, prefix: str) -> Launch:
        """A persistent block a multiprocessor, in whole clusters; a warp or warpgroup copies.

        Where depths are shared there is a cluster for every tile. Else there are no more than take
        the same number of tiles each: what does not begin at once would come after all others.
        """
        contraction = self.contraction
        down = f"ceil_div({contraction.m}, {_ROWS})"
        across = f"ceil_div({contraction.n}, {_COLUMNS})"
        blocks = f"{contraction.batches} * {down} * {across}"
        grid = f"min({self.case.multiprocessors}, {blocks})"
        if self.alike:
            below = f"ceil_div({down}, {{CLUSTER}} if {_COLUMNS} >= {_ROWS} else 1)"
            beside = f"ceil_div({across}, {{CLUSTER}} if {_ROWS} > {_COLUMNS} else 1)"
            clusters = f"{contraction.batches} * {below} * {beside}"
            places = f"{self.case.multiprocessors} // {{CLUSTER}}"
            waves = f"ceil_div({clusters}, {places})"
            grid = f"{{CLUSTER}} * (ceil_div({clusters}, {waves}) if {{SPLIT}} == 1 else "
            grid += f"{{SPLIT}} * {clusters})"
        return Launch(
            kernel=f"{prefix}_maps",
            grid=tunables.named(grid),
            block=tunables.named(f"384 if {self._groups()} == 2 else 160"),
            shared=tunables.named(self._shared()),
            cluster=tunables.named("{CLUSTER} * {SPLIT}") if self.alike else "",
        )


_ROWS, _COLUMNS = "{TILE} // 1000", "{TILE} % 1000"
_STAGE = f"({_ROWS} + {_COLUMNS}) * {LINE_BYTES}"


def _is_light(contraction: Contraction) -> bool:
    return len(contraction.epilogue) <= _FEW and dear(contraction) <= 1


def _predicted_ms(case: Case, contraction: Contraction, strategy: Strategy) -> float:
    best = _Printing(case, contraction, strategy.name).ways[0]
    flops = shape_of(contraction).flops
    rate = flops / (way_ms(case, contraction, best) * 1e9)
    return roofline_ms(sum(case.moved_bytes), flops, strategy, case.hardware, tflops=rate)


def _first(
    case: Case, contraction: Contraction, strategy: Strategy
) -> tuple[tuple[Setting, ...], ...]:
    """The ways that are predicted fastest, of those with the same tiles and parts the best one."""
    printing = _Printing(case, contraction, strategy.name)
    limit = _FAR * way_ms(case, contraction, printing.ways[0])
    found: list[Way] = []
    for way in printing.ways:
        known = {(one.tile, one.split, one.turns) for one in found}
        is_new = (way.tile, way.split, way.turns) not in known
        if is_new and len(found) < _FIRST and way_ms(case, contraction, way) <= limit:
            found.append(way)
    return tuple(_settings(way, printing) for way in found)


def _settings(way: Way, printing: _Printing) -> tuple[Setting, ...]:
    values = {"TILE": way.tile}
    if printing.alike:
        values |= {"CLUSTER": way.cluster, "SPLIT": way.split, "TURNS": int(way.turns)}
    if printing.results is not None:
        values["BOXES"] = way.boxes
    return tuple(Setting(name=name, value=value) for name, value in values.items())


def _emit(case: Case, contraction: Contraction, name: str, prefix: str) -> Emitted:
    return _Printing(case, contraction, name).emitted(prefix)


MAP_FAMILY = ContractionFamily(
    tuple(SCHEMES), _takes, _propose, _predicted_ms, _emit, eights=True, first=_first
)
