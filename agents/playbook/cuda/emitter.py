"""The emitter for CUDA: which strategies fit a loop on a device, and their source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agents.playbook.cuda import (
    columns,
    partly,
    pointwise,
    relay,
    ring,
    row_shapes,
    rows,
    rows_turned,
    scans,
    split,
    staged,
    strips,
    transposed,
    waves,
)
from agents.playbook.cuda.access import gathered
from agents.playbook.cuda.case import Case
from agents.playbook.ir import Emitted, Loop, Strategy
from agents.playbook.rewrites import rewrite, rewrites_for
from profiles.load import Hardware
from tools.nouns import LanguageName

# Rewrites that save a pass over the row, in words.
_FEWER_PASSES = {
    "online_softmax": "maximum and sum of exponentials found in one pass",
    "moments": "mean and squared distances found in one pass",
}
_HEADER = '#include "kernelwright.cuh"\n'


@dataclass(frozen=True)
class _Family:
    """Strategies that are printed alike."""

    names: tuple[str, ...]
    strategies: Callable[[Case], list[Strategy]]
    emit: Callable[[Case, str, str], Emitted]


_POINTWISE = _Family(pointwise.NAMES, pointwise.strategies, pointwise.emit)
_STRIPS = _Family(strips.NAMES, strips.strategies, strips.emit)
_LINES = _Family(staged.NAMES, staged.strategies, staged.emit)
_TURNED = _Family(transposed.NAMES, transposed.strategies, transposed.emit)
_SERIAL = _Family((row_shapes.SERIAL,), rows.serial_strategies, rows.emit)
_SCANS = _Family(scans.NAMES, scans.strategies, scans.emit)
_COLUMNS = _Family(columns.NAMES, columns.strategies, columns.emit)
_ROWS = (
    _Family(row_shapes.NAMES, rows.strategies, rows.emit),
    _Family(rows_turned.NAMES, rows_turned.strategies, rows_turned.emit),
    _Family(partly.NAMES, partly.strategies, partly.emit),
    _Family(ring.NAMES, ring.strategies, ring.emit),
    _Family(relay.NAMES, relay.strategies, relay.emit),
    _Family(waves.NAMES, waves.strategies, waves.emit),
    _Family(split.NAMES, split.strategies, split.emit),
)
_EVERY = (_POINTWISE, _STRIPS, _LINES, _TURNED, _SERIAL, _SCANS, _COLUMNS, *_ROWS)


class CudaEmitter:
    """Prints loops as CUDA C++ over the prelude `kernelwright.cuh`."""

    @property
    def language(self) -> LanguageName:
        """CUDA."""
        return "cuda"

    def header(self) -> str:
        """The prelude's include."""
        return _HEADER

    def strategies(self, loop: Loop, hardware: Hardware) -> tuple[Strategy, ...]:
        """Every strategy that fits, the most promising first.

        Raises:
            ValueError: When an axis of the loop is empty.
        """
        found = _strategies(Case(loop, hardware))
        for name in rewrites_for(loop):
            if name in _FEWER_PASSES:
                changed = _strategies(Case(rewrite(loop, name), hardware))
                found += [_rewritten(strategy, name) for strategy in changed]
        return tuple(sorted(found, key=_cost))

    def emit(self, loop: Loop, strategy: Strategy, prefix: str, hardware: Hardware) -> Emitted:
        """The loop under a strategy.

        Raises:
            ValueError: When the strategy does not fit the loop.
        """
        case = Case(loop, hardware)
        name = strategy.name.removesuffix(f"_{strategy.rewrite}")
        for family in (*_families(case), _SERIAL):
            if name in family.names:
                # A name that ends in "_" would make "__", which belongs to the compiler.
                return family.emit(case, name, prefix.rstrip("_"))
        known = {name for family in _EVERY for name in family.names}
        why = "does not fit" if name in known else "is no strategy of CUDA's for"
        raise ValueError(f"{strategy.name} {why} loop {loop.name}")


def _strategies(case: Case) -> list[Strategy]:
    families = _families(case)
    found = [one for family in families for one in family.strategies(case)]
    if not found:
        # Short rows that lie across few others fill no block: there a thread walks each of them.
        return _SERIAL.strategies(case)
    if families not in (_ROWS, (_COLUMNS,)):
        return found
    left = [gathered(case, one.name, along_rows=families is _ROWS) for one in found]
    return [
        one.model_copy(update={"efficiency": round(one.efficiency * share, 4)})
        for one, share in zip(found, left, strict=True)
    ]


def _rewritten(strategy: Strategy, name: str) -> Strategy:
    """A strategy for the loop after a rewrite, said so in its words."""
    how = _FEWER_PASSES[name]
    return strategy.model_copy(
        update={
            "name": f"{strategy.name}_{name}",
            "title": f"{strategy.title}; {how}",
            "mechanism": f"{how[0].upper()}{how[1:]}. {strategy.mechanism}",
            "rewrite": name,
        }
    )


def _families(case: Case) -> tuple[_Family, ...]:
    if case.nest.pointwise:
        return (_POINTWISE, _STRIPS, _LINES, _TURNED)
    if case.has_scan:
        return (_SCANS,) if scans.stands_alone(case) else (_SERIAL,)
    if not case.contiguous_rows and case.nest.kept:
        return (_COLUMNS,)
    return _ROWS


def _cost(strategy: Strategy) -> float:
    """Traffic over the share of bandwidth: reads count as half of what a pass moves."""
    return (1 + strategy.bytes_read_factor) / strategy.efficiency
