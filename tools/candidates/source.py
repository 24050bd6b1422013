"""What is known about a kernel's source without compiling it."""

from __future__ import annotations

from kernelwright.tools.candidates.ctypes_table import POINTEES, SCALARS, ScalarType
from kernelwright.tools.types import DType, LanguageName, Value


class Parameter(Value):
    """One parameter of an exported function; `type` is the pointee's type for a pointer."""

    name: str
    type: str
    pointer: bool

    @property
    def accepts(self) -> tuple[DType, ...]:
        """Element types of the tensors that may be passed; empty for a scalar."""
        return POINTEES[self.type] if self.pointer else ()

    @property
    def scalar(self) -> ScalarType | None:
        """How a number is passed; None for a pointer."""
        return None if self.pointer else SCALARS[self.type]

    @property
    def spelling(self) -> str:
        """The C type as a person writes it."""
        return f"{self.type}*" if self.pointer else self.type


class KernelFunction(Value):
    """A function that the plan may launch."""

    name: str
    parameters: tuple[Parameter, ...]
    line: int

    @property
    def letters(self) -> str:
        """Its parameters as letters: `P` a pointer, else the `struct` letter of the C type."""
        return "".join("P" if item.scalar is None else item.scalar.code for item in self.parameters)

    @property
    def pointers(self) -> tuple[bool, ...]:
        """Which of its parameters are pointers."""
        return tuple(item.pointer for item in self.parameters)


class Tunable(Value):
    """A macro of the kernel and name of the plan, with the values declared for it."""

    name: str
    values: tuple[int, ...]
    line: int


class Requirement(Value):
    """An expression over tunables that every setting must make true."""

    text: str
    line: int


class KernelSource(Value):
    """The contract side of a kernel's source.

    `has_grid` is whether its launches have a geometry: grid, block, shared memory, cluster.
    """

    language: LanguageName
    has_grid: bool
    functions: tuple[KernelFunction, ...]
    tunables: tuple[Tunable, ...] = ()
    requires: tuple[Requirement, ...] = ()

    @property
    def letters(self) -> dict[str, str]:
        """For every exported function, its parameters as letters."""
        return {item.name: item.letters for item in self.functions}

    @property
    def pointers(self) -> dict[str, tuple[bool, ...]]:
        """For every exported function, which parameters are pointers."""
        return {item.name: item.pointers for item in self.functions}

    def function(self, name: str) -> KernelFunction | None:
        """The exported function of that name, or None."""
        return next((item for item in self.functions if item.name == name), None)

    def tunable(self, name: str) -> Tunable | None:
        """The tunable of that name, or None."""
        return next((item for item in self.tunables if item.name == name), None)
