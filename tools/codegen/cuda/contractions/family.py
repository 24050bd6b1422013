"""A family of kernels for products: what it is made of, and what all of them share.

Such a family is asked about contractions alone (`ir.contraction`), and says itself what time to
expect: the roofline knows nothing of tiles, and reads every operand once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelwright.tools.codegen.cuda.contractions.windows import windows_of
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import Argument, c_type
from kernelwright.tools.codegen.ir import Emitted, Loop, Strategy
from kernelwright.tools.codegen.ir.contraction import Contraction
from kernelwright.tools.codegen.ir.kernel_family import Fit
from kernelwright.tools.codegen.ir.rewrites import GraphRewrite, LoopRewrite
from kernelwright.tools.types import DType, Setting

# Fewer rows or columns than these are no tile: an operand is hardly used twice, and kernels for
# rows do as well.
FEWEST = 4


# Settings that are worth a look, names without the kernel's prefix; what is not named is free.
Settings = tuple[tuple[Setting, ...], ...]


@dataclass(frozen=True)
class ContractionFamily:
    """Strategies for products of matrices; the four functions are its own.

    `takes` says how well it fits, `propose` the ways, `predicted` the milliseconds to expect of one
    of them and `printed` its source under a name and a prefix. On the architectures of `slides_on`
    it has a layout for factors that windows read; all others read each element as often as windows
    do, and stand back where there is one. Those with `folds` print epilogues that reduce results,
    those with `statistics` take these of all results, and those with `eights` multiply factors of
    eight bits. `first` are settings of one of the ways to try first, where more than the tile
    decides.
    """

    names: tuple[str, ...]
    takes: Callable[[Case, Contraction], Fit]
    propose: Callable[[Case, Contraction], Sequence[Strategy]]
    predicted: Callable[[Case, Contraction, Strategy], float]
    printed: Callable[[Case, Contraction, str, str], Emitted]
    rewrites: tuple[LoopRewrite, ...] = ()
    graph_rewrites: tuple[GraphRewrite, ...] = ()
    slides_on: tuple[str, ...] = ()
    folds: bool = False
    statistics: bool = False
    eights: bool = False
    first: Callable[[Case, Contraction, Strategy], Settings] = lambda *_: ()

    def fit(self, case: Case, /) -> Fit:
        """What `takes` says of a product; no other node fits."""
        found = case.contraction if isinstance(case.node, Loop) else None
        if found is None or (found.folds and not self.folds):
            return Fit.NO
        if found.statistics is not None and not self.statistics:
            return Fit.NO
        if found.precision is DType.FLOAT8_E4M3FN and not self.eights:
            return Fit.NO
        fit = self.takes(case, found)
        stands_back = fit > Fit.LAST_RESORT and not self.slides_on and _has_windows(found)
        return Fit.LAST_RESORT if stands_back else fit

    def strategies(self, case: Case, /) -> Sequence[Strategy]:
        """What it proposes."""
        return self.propose(case, _product(case))

    def predicted_ms(self, case: Case, strategy: Strategy, /) -> float:
        """The time that its tiles take."""
        return self.predicted(case, _product(case), strategy)

    def first_settings(self, case: Case, strategy: Strategy, /) -> Settings:
        """What to try first of a strategy, the one predicted fastest first; none where tiles do."""
        return self.first(case, _product(case), strategy)

    def emit(self, case: Case, name: str, prefix: str, /) -> Emitted:
        """The product's source."""
        return self.printed(case, _product(case), name, prefix)


def _has_windows(contraction: Contraction) -> bool:
    found = windows_of(contraction)
    return found is not None and bool(found[1][0].slid)


def _product(case: Case) -> Contraction:
    if case.contraction is None:
        raise ValueError(f"{case.node.name} is no product")
    return case.contraction


def is_tiled(contraction: Contraction | None) -> bool:
    """Whether only kernels for products should take a loop."""
    return contraction is not None and min(contraction.m, contraction.n) >= FEWEST


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
