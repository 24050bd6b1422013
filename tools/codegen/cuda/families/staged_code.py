"""The pieces of a kernel whose blocks stage the lines of windows in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kernelwright.tools.codegen.cuda.families.strip_code import StripCode, WindowCode
from kernelwright.tools.codegen.cuda.printing.stencil import Window
from kernelwright.tools.codegen.cuda.printing.vectors import MOVED_BYTES


def stageable(window: Window) -> bool:
    """Whether a window's outputs lie along its lines, whose elements are next to each other."""
    return window.places.pitch == 1 and window.places.step > 0 and window.steps[-1] > 0


@dataclass(frozen=True)
class Staged(WindowCode):
    """A window in shared memory: `steady` if all its lines begin alike within a vector."""

    vector: int
    steady: bool


class StagedCode(StripCode):
    """Prints the statements of a stencil whose taps are read from staged lines."""

    tile_names = ("DEPTH", "ROWS", "WIDTH")
    stored = "p"

    def holds(self, window: Window) -> bool:
        """Only what can be staged."""
        return stageable(window)

    @cached_property
    def staged(self) -> list[Staged]:
        """The windows that are staged."""
        return [_staged(code) for code in self.windows if stageable(code.window)]

    def tap(self, window: int, at: list[str]) -> str:
        """An element in shared memory; a line that begins within a vector is shifted by that."""
        (code,) = [one for one in self.staged if one.name == f"w{window}"]
        name, (plane, line, place) = code.name, at
        row = f"(({plane}) * LINES_{name} + ({line})) * ROOM_{name}"
        shift = f"shift_{name}" if code.steady else self._shift(code, plane, line)
        return f"{name}[{row} + kw::line_slot<SPREAD, {code.type}>({shift} + {place})]"

    def _shift(self, code: Staged, plane: str, line: str) -> str:
        """Where a line begins within its first vector."""
        g, kind = code.window, f"({code.index})"
        moved = f"{kind}({plane}) * {g.planes.pitch} + {kind}({line}) * {g.lines.pitch}"
        start = f"from_{code.name} + {moved}"
        return f"(SPREAD ? 0 : (int)(({start}) & {code.vector - 1}))"


def _staged(code: WindowCode) -> Staged:
    vector = MOVED_BYTES // code.window.dtype.itemsize_bytes
    steady = all(along.pitch % vector == 0 for along in (code.window.planes, code.window.lines))
    return Staged(**vars(code), vector=vector, steady=steady)
