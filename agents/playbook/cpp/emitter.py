"""The C++ emitter: picks strategies for a loop on a CPU and prints it under one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from agents.playbook.cpp.columns import ColumnsKernel, turned
from agents.playbook.cpp.flat import flat_kernel, flattened
from agents.playbook.cpp.frame import Frame
from agents.playbook.cpp.rows import rows_kernel
from agents.playbook.cpp.split import MOST_ROWS, split_kernel
from agents.playbook.cpp.strategies import (
    COLUMNS,
    COLUMNS_KEPT,
    FLAT,
    ROWS,
    ROWS_KEPT,
    SPLIT,
    reread,
)
from agents.playbook.cpp.sweep import Knobs
from agents.playbook.ir import Access, Emitted, Loop, Strategy
from profiles.load import Hardware
from tools.nouns import Language

_CHUNKS = (2048, 512, 8192)
_WIDTHS = (64, 256, 128, 32)


class CppEmitter:
    """Emits C++ for the host's CPU."""

    @property
    def language(self) -> Language:
        """C++."""
        return Language.CPP

    def header(self) -> str:
        """The include that every kernel needs."""
        return '#include "kernelwright.hpp"\n'

    def strategies(self, loop: Loop, hardware: Hardware) -> tuple[Strategy, ...]:
        """Every strategy that fits, the most promising first."""
        fitting = []
        for strategy in _ordered(loop, hardware):
            try:
                self.emit(loop, strategy, "probe", hardware)
            except ValueError:
                continue
            fitting.append(strategy)
        return tuple(fitting)

    def emit(self, loop: Loop, strategy: Strategy, prefix: str, hardware: Hardware) -> Emitted:
        """The kernel and the plan line that launches it; ValueError when they do not fit."""
        print_ = _PRINTERS.get(strategy.name)
        if print_ is None:
            raise ValueError(
                f"unknown strategy {strategy.name!r}; known are {', '.join(_PRINTERS)}"
            )
        if (strategy.name == "flat") == bool(loop.inner):
            raise ValueError(f"{loop.name}: strategy {strategy.name!r} is for another kind of loop")
        frame, source = print_(loop, prefix, hardware)
        arguments = ", ".join(frame.arguments)
        comma = "," if len(frame.arguments) == 1 else ""
        launch = f'launch("{frame.function}", args=({arguments}{comma}))'
        words = f"// {loop.name}: {strategy.title}.\n"
        return Emitted(source=words + source, plan=(launch,))


def _ordered(loop: Loop, hardware: Hardware) -> tuple[Strategy, ...]:
    """All strategies for the kind of loop, by what its memory looks like."""
    if not loop.inner:
        return (FLAT,)
    factor = _walks_from_memory(loop, hardware)
    along = (ROWS_KEPT, reread(ROWS, factor))
    across = (reread(COLUMNS_KEPT, 1.0), reread(COLUMNS, factor))
    split = (reread(SPLIT, factor),)
    cores = hardware.cores or 1
    if _is_contiguous_inside(loop):
        # A vector loop over a row shorter than two vectors is all overhead.
        if loop.columns < 16:
            return (*across, *along, *split)
        few = loop.rows < 2 * cores
        return (*split, *along, *across) if few else (*along, *split, *across)
    return (*across, *along, *split)


def _is_contiguous_inside(loop: Loop) -> bool:
    """Whether most of the loop's bytes lie along inner axes."""
    votes = 0
    for access in _accesses(loop):
        inside = min((abs(access.step(a.name)) or 1 << 62 for a in loop.inner), default=1 << 62)
        outside = min((abs(access.step(a.name)) or 1 << 62 for a in loop.outer), default=1 << 62)
        touched = prod(a.size for a in (*loop.outer, *loop.inner) if access.step(a.name))
        if inside != outside:
            votes += touched if inside < outside else -touched
    return votes >= 0


def _accesses(loop: Loop) -> tuple[Access, ...]:
    loads = [stmt.access for stmt in loop.body if stmt.access is not None]
    return (*loads, *(store.access for store in loop.stores))


def _walks_from_memory(loop: Loop, hardware: Hardware) -> float:
    """How often a row is read from memory when it does not fit the core's cache."""
    row_bytes = sum(
        access.dtype.itemsize_bytes * prod(a.size for a in loop.inner if access.step(a.name))
        for access in _accesses(loop)
    )
    cache = (hardware.l2_kib_per_core or 512) * 1024
    deepest = max(loop.passes().values(), default=0)
    return 1.0 + deepest if row_bytes > cache else 1.0


def _streaming(frame: Frame, hardware: Hardware) -> str:
    """The tunable for stores past the cache, where results are too large for it to keep."""
    loop = frame.loop
    sizes = {axis.name: axis.size for axis in (*loop.outer, *loop.inner)}
    written = sum(
        s.access.dtype.itemsize_bytes * prod(n for a, n in sizes.items() if s.access.step(a))
        for s in loop.stores
    )
    if written < 1 << 20:
        return ""
    large = written > hardware.cache_mib * (1 << 20) / 2
    return frame.tune("STREAM", (1, 0) if large else (0, 1))


def _knobs(frame: Frame, hardware: Hardware, size: int) -> Knobs:
    lanes = [width for width in (32, 16, 64) if width <= max(size, 1)] or [8 if size >= 8 else 1]
    chunks = [chunk for chunk in _CHUNKS if chunk < size] or [_CHUNKS[0]]
    return Knobs(
        lanes=frame.tune("LANES", lanes),
        chunk=frame.tune("CHUNK", chunks) if size > min(_CHUNKS) * 4 else str(_CHUNKS[0]),
        chunk_limit=min(_CHUNKS) * 4,
        stream=_streaming(frame, hardware),
    )


def _flat(loop: Loop, prefix: str, hardware: Hardware) -> tuple[Frame, str]:
    frame = Frame(flattened(loop), prefix)
    return frame, flat_kernel(frame, _knobs(frame, hardware, loop.rows))


def _rows(loop: Loop, prefix: str, hardware: Hardware) -> tuple[Frame, str]:
    frame = Frame(loop, prefix)
    return frame, rows_kernel(frame, _knobs(frame, hardware, loop.columns), keeping=False)


def _rows_kept(loop: Loop, prefix: str, hardware: Hardware) -> tuple[Frame, str]:
    frame = Frame(loop, prefix)
    return frame, rows_kernel(frame, _knobs(frame, hardware, loop.columns), keeping=True)


def _split(loop: Loop, prefix: str, hardware: Hardware) -> tuple[Frame, str]:
    frame = Frame(loop, prefix)
    cores = hardware.cores or 1
    each = max(1, -(-2 * cores // max(1, loop.rows)))
    counts = [each * scale for scale in (4, 1, 16) if each * scale * loop.rows <= MOST_ROWS * 16]
    segments = frame.tune("SEGMENTS", counts or [1])
    return frame, split_kernel(frame, _knobs(frame, hardware, loop.columns), segments)


def _columns_with(loop: Loop, prefix: str, *, keeping: bool) -> tuple[Frame, str]:
    frame = Frame(turned(loop), prefix)
    widths = [width for width in _WIDTHS if width <= max(32, loop.rows)]
    width = frame.tune("WIDTH", widths)
    kernel = ColumnsKernel(frame, width, "16", max(widths), keeping=keeping)
    return frame, kernel.text()


def _columns(loop: Loop, prefix: str, hardware: Hardware) -> tuple[Frame, str]:
    return _columns_with(loop, prefix, keeping=False)


def _columns_kept(loop: Loop, prefix: str, hardware: Hardware) -> tuple[Frame, str]:
    return _columns_with(loop, prefix, keeping=True)


_Printer = Callable[[Loop, str, Hardware], tuple[Frame, str]]
_PRINTERS: Mapping[str, _Printer] = {
    "flat": _flat,
    "rows": _rows,
    "rows_kept": _rows_kept,
    "split": _split,
    "columns": _columns,
    "columns_kept": _columns_kept,
}
