"""The C++ emitter: picks strategies for a loop on a CPU and prints it under one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agents.playbook.cpp.columns import columns_kernel, turned
from agents.playbook.cpp.flat import flat_kernel, flattened
from agents.playbook.cpp.frame import Frame
from agents.playbook.cpp.layout import (
    contiguous_inside,
    stored_across,
    walks_from_memory,
    written_bytes,
)
from agents.playbook.cpp.partials import halved
from agents.playbook.cpp.rows import rows_kernel
from agents.playbook.cpp.split import MOST_ROWS, split_kernel
from agents.playbook.cpp.strategies import (
    COLUMNS,
    COLUMNS_KEPT,
    COLUMNS_SPLIT,
    FEWER_WALKS,
    FLAT,
    ROWS,
    ROWS_KEPT,
    SPLIT,
    rewritten,
    scattered,
    walking,
)
from agents.playbook.cpp.sweep import Knobs
from agents.playbook.ir import Emitted, Loop, Strategy
from agents.playbook.rewrites import rewrite, rewrites_for
from profiles.load import Hardware
from tools.nouns import LanguageName

_CHUNKS = (2048, 8192)
_WIDTHS = (64, 256, 128, 32)
# A vector loop over a row shorter than two vectors is all overhead.
_SHORT_ROW = 16
# Below this many positions a parallel region costs more than it gains, and so does tuning.
_SMALL = 1 << 14
# Up to here lanes across rows are worth a try even where rows are contiguous.
_MODEST_ROW = 64


class CppEmitter:
    """Emits C++ over the prelude `kernelwright.hpp`."""

    @property
    def language(self) -> LanguageName:
        """C++."""
        return "cpp"

    def header(self) -> str:
        """The prelude's include."""
        return '#include "kernelwright.hpp"\n'

    def strategies(self, loop: Loop, hardware: Hardware) -> tuple[Strategy, ...]:
        """Every strategy that fits, the most promising first."""
        found = _fitting(loop, hardware, "")
        for name in rewrites_for(loop):
            if name in FEWER_WALKS:
                better = _fitting(rewrite(loop, name), hardware, name)
                # A walk out of cache is cheap; one out of memory is not.
                worth = walks_from_memory(loop, hardware) > 1 or name == "moments"
                found = [*better, *found] if worth else [*found, *better]
        return tuple(found)

    def emit(self, loop: Loop, strategy: Strategy, prefix: str, hardware: Hardware) -> Emitted:
        """The kernel and the plan line that launches it; ValueError when they do not fit."""
        name = strategy.name.removesuffix(f"_{strategy.rewrite}")
        printer = _PRINTERS.get(name)
        if printer is None:
            raise ValueError(f"unknown strategy {name!r}; known are {', '.join(_PRINTERS)}")
        if (name == "flat") == bool(loop.inner):
            raise ValueError(f"{loop.name}: strategy {name!r} is for another kind of loop")
        emitted = printer(loop, prefix, hardware)
        return emitted.model_copy(update={"source": f"// {strategy.title}\n{emitted.source}"})


def _fitting(loop: Loop, hardware: Hardware, name: str) -> list[Strategy]:
    """Strategies for a loop, which `rewrite` made of the original."""
    fitting = []
    for strategy in _ordered(loop, hardware):
        chosen = rewritten(strategy, name) if name else strategy
        try:
            CppEmitter().emit(loop, chosen, "probe", hardware)
        except ValueError:
            continue
        fitting.append(chosen)
    return fitting


def _ordered(loop: Loop, hardware: Hardware) -> tuple[Strategy, ...]:
    """The strategies for a kind of loop, by what its memory looks like."""
    if not loop.inner:
        return (FLAT,)
    walks = walks_from_memory(loop, hardware)
    along = (ROWS_KEPT, walking(ROWS, walks))
    across = (COLUMNS_KEPT, walking(COLUMNS, walks))
    split = (walking(SPLIT, walks),)
    cores = hardware.cores or 1
    if not contiguous_inside(loop):
        if _is_small(loop):
            return across
        narrow = loop.rows < 2 * cores * _WIDTHS[0]
        shared = (COLUMNS_SPLIT, *across) if narrow else (*across, COLUMNS_SPLIT)
        return (*shared, *along, *split)
    if stored_across(loop) and not _is_small(loop):
        return tuple(map(scattered, (*across, *along, *split)))
    if loop.columns < _SHORT_ROW:
        return (*across, *along)
    if _is_small(loop):
        return along
    if loop.rows < cores:
        return split
    listed = (*split, *along) if loop.rows < 2 * cores else (*along, *split)
    return (*listed, *across) if loop.columns < _MODEST_ROW else listed


def _is_small(loop: Loop) -> bool:
    return loop.rows * max(1, loop.columns) < _SMALL


def _streaming(frame: Frame, hardware: Hardware) -> str:
    """The tunable for stores past the cache, where results are large; "" elsewhere."""
    written = written_bytes(frame.loop)
    if written < 1 << 20:
        return ""
    return frame.tune("STREAM", (1, 0) if written > hardware.cache_mib * (1 << 20) else (0, 1))


def _knobs(frame: Frame, hardware: Hardware, size: int, *, segments: bool = False) -> Knobs:
    """The tunables of a loop whose rows have `size` positions; segments are parts already."""
    lanes = [width for width in (32, 16) if width <= size] or [8 if size >= 8 else 1]
    limit = min(_CHUNKS)
    chunks = [chunk for chunk in _CHUNKS if chunk < size]
    if _is_small(frame.loop):
        lanes, chunks = lanes[:1], chunks[:1]
    return Knobs(
        lanes=frame.tune("LANES", lanes),
        chunk=frame.tune("CHUNK", chunks) if size > limit else str(limit),
        chunk_limit=limit,
        parts="" if segments else _parts(frame, hardware),
        stream=_streaming(frame, hardware),
    )


def _parts(frame: Frame, hardware: Hardware) -> str:
    """Threads take pieces as they come free: another process on a core then costs little.

    As many pieces as cores keep each thread in one stretch of memory instead.
    """
    counts = (64, hardware.cores or 1)
    return frame.tune("PARTS", counts[:1] if _is_small(frame.loop) else counts)


def _flat(loop: Loop, prefix: str, hardware: Hardware) -> Emitted:
    frame = Frame(flattened(loop), prefix)
    return _emitted(frame, flat_kernel(frame, _knobs(frame, hardware, loop.rows)))


def _rows(loop: Loop, prefix: str, hardware: Hardware) -> Emitted:
    frame = Frame(loop, prefix)
    knobs = _knobs(frame, hardware, loop.columns)
    return _emitted(frame, rows_kernel(frame, knobs, keeping=False))


def _rows_kept(loop: Loop, prefix: str, hardware: Hardware) -> Emitted:
    frame = Frame(loop, prefix)
    knobs = _knobs(frame, hardware, loop.columns)
    return _emitted(frame, rows_kernel(frame, knobs, keeping=True))


def _split(loop: Loop, prefix: str, hardware: Hardware) -> Emitted:
    """Segments are a number of their own, so that results do not depend on that of threads."""
    frame = Frame(loop, prefix)
    each = max(1, -(-2 * (hardware.cores or 1) // max(1, loop.rows)))
    counts = [each * scale for scale in (4, 1, 16) if each * scale * loop.rows <= 16 * MOST_ROWS]
    segments = frame.tune("SEGMENTS", counts or [1])
    knobs = _knobs(frame, hardware, loop.columns, segments=True)
    return _emitted(frame, split_kernel(frame, knobs, segments))


def _columns(loop: Loop, prefix: str, hardware: Hardware) -> Emitted:
    return _columns_keeping(loop, prefix, hardware, keeping=False)


def _columns_kept(loop: Loop, prefix: str, hardware: Hardware) -> Emitted:
    return _columns_keeping(loop, prefix, hardware, keeping=True)


def _columns_keeping(loop: Loop, prefix: str, hardware: Hardware, *, keeping: bool) -> Emitted:
    frame = Frame(turned(loop), prefix)
    widths = [width for width in _WIDTHS if width <= max(min(_WIDTHS), loop.rows)]
    widths = widths[:1] if _is_small(loop) else widths
    parts = _parts(frame, hardware)
    return _emitted(frame, columns_kernel(frame, widths, parts, keeping=keeping))


def _columns_split(loop: Loop, prefix: str, hardware: Hardware) -> Emitted:
    name = Frame(loop, prefix).function
    halves = halved(loop, name, 4 * (hardware.cores or 1))
    first = _columns(halves.first, f"{name}_partials", hardware)
    second = _columns(halves.second, f"{name}_whole", hardware)
    made = tuple(
        f'{item.name} = empty(({item.size},), dtype="{item.dtype.value}")'
        for item in halves.temporaries
    )
    source = f"{first.source}\n{second.source}"
    return Emitted(source=source, plan=(*made, *first.plan, *second.plan))


def _emitted(frame: Frame, source: str) -> Emitted:
    comma = "," if len(frame.arguments) == 1 else ""
    launch = f'launch("{frame.function}", args=({", ".join(frame.arguments)}{comma}))'
    return Emitted(source=source, plan=(launch,))


_Printer = Callable[[Loop, str, Hardware], Emitted]
_PRINTERS: Mapping[str, _Printer] = {
    "flat": _flat,
    "rows": _rows,
    "rows_kept": _rows_kept,
    "split": _split,
    "columns": _columns,
    "columns_kept": _columns_kept,
    "columns_split": _columns_split,
}
