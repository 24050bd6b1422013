"""What is known about a kernel's source without compiling it."""

from __future__ import annotations

from tools.candidates.ctypes_table import POINTEES, SCALARS, ScalarType
from tools.nouns import DType, Language, Value


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
    """The contract side of a kernel's source."""

    language: Language
    functions: tuple[KernelFunction, ...]
    tunables: tuple[Tunable, ...] = ()
    requires: tuple[Requirement, ...] = ()

    def function(self, name: str) -> KernelFunction | None:
        """The exported function of that name, or None."""
        return next((item for item in self.functions if item.name == name), None)

    def tunable(self, name: str) -> Tunable | None:
        """The tunable of that name, or None."""
        return next((item for item in self.tunables if item.name == name), None)
