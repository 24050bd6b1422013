"""The emitter for CUDA: which strategies fit a loop on a device, and their source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agents.playbook.cuda import columns, pointwise, relay, rows, scans, split
from agents.playbook.cuda.case import Case
from agents.playbook.ir import Emitted, Loop, Strategy
from profiles.load import Hardware
from tools.nouns import Language

_HEADER = '#include "kernelwright.cuh"\n'


@dataclass(frozen=True)
class _Family:
    """Strategies that are printed alike."""

    names: tuple[str, ...]
    strategies: Callable[[Case], list[Strategy]]
    emit: Callable[[Case, str, str], Emitted]


_POINTWISE = _Family(pointwise.NAMES, pointwise.strategies, pointwise.emit)
_SCANS = _Family(scans.NAMES, scans.strategies, scans.emit)
_COLUMNS = _Family(columns.NAMES, columns.strategies, columns.emit)
_ROWS = (
    _Family(rows.NAMES, rows.strategies, rows.emit),
    _Family(relay.NAMES, relay.strategies, relay.emit),
    _Family(split.NAMES, split.strategies, split.emit),
)
_EVERY = (_POINTWISE, _SCANS, _COLUMNS, *_ROWS)


class CudaEmitter:
    """Prints loops as CUDA C++ over the prelude `kernelwright.cuh`."""

    @property
    def language(self) -> Language:
        """CUDA."""
        return Language.CUDA

    def header(self) -> str:
        """The prelude's include."""
        return _HEADER

    def strategies(self, loop: Loop, hardware: Hardware) -> tuple[Strategy, ...]:
        """Every strategy that fits, the most promising first.

        Raises:
            ValueError: When the loop is empty, or mixes scans with reductions or other scans.
        """
        case = Case(loop, hardware)
        found = [one for family in _families(case) for one in family.strategies(case)]
        return tuple(sorted(found, key=_cost))

    def emit(self, loop: Loop, strategy: Strategy, prefix: str, hardware: Hardware) -> Emitted:
        """The loop under a strategy.

        Raises:
            ValueError: When the strategy does not fit the loop.
        """
        case = Case(loop, hardware)
        for family in _families(case):
            if strategy.name in family.names:
                # A name that ends in "_" would make "__", which belongs to the compiler.
                return family.emit(case, strategy.name, prefix.rstrip("_"))
        known = {name for family in _EVERY for name in family.names}
        why = "does not fit" if strategy.name in known else "is no strategy of CUDA's for"
        raise ValueError(f"{strategy.name} {why} loop {loop.name}")


def _families(case: Case) -> tuple[_Family, ...]:
    if case.nest.pointwise:
        return (_POINTWISE,)
    if case.has_scan:
        return (_SCANS,)
    if not case.contiguous_rows and case.nest.kept:
        return (_COLUMNS,)
    return _ROWS


def _cost(strategy: Strategy) -> float:
    """Traffic over the share of bandwidth: reads count as half of what a pass moves."""
    return (1 + strategy.bytes_read_factor) / strategy.efficiency
