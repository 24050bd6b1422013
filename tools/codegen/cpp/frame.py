"""What every kernel of this package shares: parameters, row-level statements, tunables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kernelwright.tools.codegen.cpp.analysis import Analysis
from kernelwright.tools.codegen.cpp.geometry import LaneGroup, decode, without_single
from kernelwright.tools.codegen.cpp.lanes import Unit
from kernelwright.tools.codegen.cpp.peephole import shortened
from kernelwright.tools.codegen.cpp.spelling import STORED, Names
from kernelwright.tools.codegen.ir import Axis, Loop, Store
from kernelwright.tools.types import DType, Value


class Tunable(Value):
    """A `// tune:` line: values, the best guess first."""

    name: str
    values: tuple[int, ...]

    @property
    def line(self) -> str:
        """The declaration."""
        return f"// tune: {self.name} in {', '.join(map(str, self.values))}"


class Frame:
    """A loop on its way to becoming a kernel.

    Args:
        loop: The loop.
        prefix: What every function and tunable starts with.
    """

    def __init__(self, loop: Loop, prefix: str) -> None:
        self.loop = shortened(without_single(loop))
        self.facts = Analysis(self.loop)
        self.function = re.sub(r"\W", "_", prefix).strip("_").lower() or "kernel"
        self.names = Names(frozenset({self.function}))
        self.tunables: list[Tunable] = []
        self._buffers = self._parameters()

    def tune(self, name: str, values: Sequence[int]) -> str:
        """Declares a tunable and gives its macro; a single value needs none."""
        listed = tuple(dict.fromkeys(values))
        if len(listed) == 1:
            return str(listed[0])
        tunable = Tunable(name=f"{self.function.upper()}_{name}", values=listed)
        if tunable not in self.tunables:
            self.tunables.append(tunable)
        return tunable.name

    @property
    def arguments(self) -> tuple[str, ...]:
        """The plan's variables to pass, in order."""
        return tuple(self._buffers)

    def call(self) -> str:
        """The parameters' names, for one function of the kernel calling another."""
        return ", ".join(self.names("buffer", buffer) for buffer in self._buffers)

    def signature(self, *, exported: bool = False) -> str:
        """The parameter list. Inside, pointers are restrict: buffers of a plan do not overlap."""
        qualifier = "" if exported else " __restrict"
        return ", ".join(
            f"{'' if written else 'const '}{STORED[dtype]}*{qualifier} {self.names('buffer', name)}"
            for name, (dtype, written) in self._buffers.items()
        )

    def coordinates(self, axes: Sequence[Axis]) -> dict[str, str]:
        """Identifiers of coordinates, by axis."""
        return {axis.name: self.names("axis", axis.name) for axis in axes}

    def decoded(self, axes: Sequence[Axis], position: str) -> list[str]:
        """Statements that take a row-major position apart."""
        names = self.coordinates(axes)
        return [f"const int64_t {names[axis]} = {text};" for axis, text in decode(axes, position)]

    def row_values(self, sweep: int) -> list[str]:
        """Values that are the same for a whole row and known after `sweep` sweeps, in order."""
        facts = self.facts
        return [
            stmt.name
            for stmt in self.loop.body
            if stmt.op not in ("const", "reduce", "scan")
            and not facts.depends[stmt.name] & facts.inner
            and facts.sweep[stmt.name] == sweep
        ]

    def row_stores(self, sweep: int) -> list[Store]:
        """Stores of such values."""
        facts = self.facts
        return [
            store
            for store in self.loop.stores
            if not facts.is_element_store(store) and facts.store_sweep(store) == sweep
        ]

    def row_unit(self, outer: Mapping[str, str]) -> Unit:
        """A printer for the row itself."""
        return Unit(self.facts, self.names, LaneGroup(axes=()), outer, "0", "_row")

    def _parameters(self) -> dict[str, tuple[DType, bool]]:
        written = {store.access.buffer for store in self.loop.stores}
        return {
            access.buffer: (access.dtype, access.buffer in written)
            for access in self.facts.accesses()
        }
