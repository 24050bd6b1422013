"""How the plain kernels of `plain` are spelt in CUDA and in C++.

Types, expressions and the conversions at memory's edge are the playbook's own; what is here is how
a reduction is begun, fed and finished by one thread, a warp or a block.
"""

from collections.abc import Mapping
from typing import Protocol

from kernelwright.tools.codegen.cpp import expressions as cpp
from kernelwright.tools.codegen.cuda.printing import expressions as cuda
from kernelwright.tools.codegen.ir import ReduceKind, Stmt
from kernelwright.tools.codegen.ir.loops import computed, results
from kernelwright.tools.types import DType, LanguageName


class UnwritableError(ValueError):
    """A loop that has no plain kernel; the message says why."""


class Dialect(Protocol):
    """One language's spelling of plain kernels."""

    language: LanguageName

    def stored(self, dtype: DType) -> str:
        """The type of an element in memory."""
        ...

    def type_of(self, stmt: Stmt) -> str:
        """The type of a statement's value."""
        ...

    def load(self, place: str, dtype: DType) -> str:
        """An element read."""
        ...

    def store(self, value: str, stmt: Stmt, dtype: DType) -> str:
        """A statement's value as an element."""
        ...

    def expression(self, stmt: Stmt, behind: Mapping[str, Stmt]) -> str:
        """A pointwise statement, cast or constant over the statements it reads."""
        ...

    def begin(self, stmt: Stmt) -> str:
        """The line that begins a reduction; ValueError for one that plain kernels do not know."""
        ...

    def feed(self, stmt: Stmt) -> str:
        """The line that takes one element in."""
        ...

    def finish(self, stmt: Stmt, count: int, shared_by: str) -> tuple[str, ...]:
        """The lines that make the result known; `shared_by` is the call that joins threads."""
        ...


class CudaDialect:
    """CUDA: reductions are the prelude's partials, which combine over lanes and warps."""

    language: LanguageName = "cuda"
    _PARTIALS: Mapping[ReduceKind, str] = {
        ReduceKind.SUM: "Sum",
        ReduceKind.PROD: "Product",
        ReduceKind.MAX: "Maximum",
        ReduceKind.MIN: "Minimum",
        ReduceKind.MOMENTS: "Moments",
    }

    def stored(self, dtype: DType) -> str:
        """The type of an element in memory."""
        return cuda.c_type(dtype)

    def type_of(self, stmt: Stmt) -> str:
        """The type of a statement's value."""
        return cuda.value_type(stmt.dtype)

    def load(self, place: str, dtype: DType) -> str:
        """An element read."""
        have = cuda.value_type(dtype)
        return place if have == cuda.c_type(dtype) else f"kw::to<{have}>({place})"

    def store(self, value: str, stmt: Stmt, dtype: DType) -> str:
        """A statement's value as an element."""
        want = cuda.c_type(dtype)
        return value if self.type_of(stmt) == want else f"kw::to<{want}>({value})"

    def expression(self, stmt: Stmt, behind: Mapping[str, Stmt]) -> str:
        """A pointwise statement, cast or constant over the statements it reads."""
        if stmt.op == "tf32":
            return stmt.args[0]
        return cuda.expression(stmt, [(name, behind[name].dtype) for name in stmt.args])

    def begin(self, stmt: Stmt) -> str:
        """The line that begins a reduction."""
        assert stmt.reduce is not None
        if stmt.reduce not in self._PARTIALS:
            raise UnwritableError(f"{stmt.reduce} has no plain kernel")
        return f"kw::{self._PARTIALS[stmt.reduce]}<{self.type_of(stmt)}> {stmt.name}_part;"

    def feed(self, stmt: Stmt) -> str:
        """The line that takes one element in."""
        return f"{stmt.name}_part.add<1>(&{stmt.args[0]});"

    def finish(self, stmt: Stmt, count: int, shared_by: str) -> tuple[str, ...]:
        """The lines that make the result known."""
        part = f"{stmt.name}_part"
        joined = (f"{part} = {shared_by}({part});",) if shared_by else ()
        ends = (".value()", ".second()")
        named = zip(results(stmt), ends, strict=False)
        kind = self.type_of(stmt)
        return (*joined, *(f"const {kind} {name} = {part}{end};" for name, end in named))


class CppDialect:
    """C++: a reduction is a variable, of double where the elements are floats."""

    language: LanguageName = "cpp"
    _TAKES: Mapping[ReduceKind, str] = {
        ReduceKind.SUM: "{part} += {value};",
        ReduceKind.PROD: "{part} *= {value};",
        ReduceKind.MAX: "{part} = kw::maximum({part}, {value});",
        ReduceKind.MIN: "{part} = kw::minimum({part}, {value});",
    }
    _BEGINS: Mapping[ReduceKind, str] = {
        ReduceKind.SUM: "0",
        ReduceKind.PROD: "1",
        ReduceKind.MAX: "-kw::kInfinity",
        ReduceKind.MIN: "kw::kInfinity",
    }

    def stored(self, dtype: DType) -> str:
        """The type of an element in memory."""
        return cpp.STORED[dtype]

    def type_of(self, stmt: Stmt) -> str:
        """The type of a statement's value."""
        return (
            cpp.COMPUTED[computed(stmt.dtype)] if stmt.op == "reduce" else cpp.computed_type(stmt)
        )

    def load(self, place: str, dtype: DType) -> str:
        """An element read."""
        return cpp.loaded(place, dtype)

    def store(self, value: str, stmt: Stmt, dtype: DType) -> str:
        """A statement's value as an element."""
        return cpp.stored(value, self.type_of(stmt), dtype)

    def expression(self, stmt: Stmt, behind: Mapping[str, Stmt]) -> str:
        """A pointwise statement, cast or constant over the statements it reads."""
        if stmt.op == "const":
            return cpp.literal(stmt.value or 0, self.type_of(stmt))
        if stmt.op == "tf32":
            return stmt.args[0]
        read = [behind[name] for name in stmt.args]
        last = read[-1] if len(read) == 2 else None
        exponent = last.value if last is not None and last.op == "const" else None
        return cpp.expression(stmt, stmt.args, [self.type_of(one) for one in read], exponent)

    def begin(self, stmt: Stmt) -> str:
        """The line that begins a reduction."""
        assert stmt.reduce is not None
        if stmt.reduce not in self._TAKES or not stmt.dtype.is_floating:
            raise UnwritableError(f"{stmt.reduce} of {stmt.dtype} has no plain kernel")
        return f"{self._wide(stmt)} {stmt.name}_part = {self._BEGINS[stmt.reduce]};"

    def feed(self, stmt: Stmt) -> str:
        """The line that takes one element in."""
        assert stmt.reduce is not None
        return self._TAKES[stmt.reduce].format(part=f"{stmt.name}_part", value=stmt.args[0])

    def finish(self, stmt: Stmt, count: int, shared_by: str) -> tuple[str, ...]:
        """The lines that make the result known."""
        kind, value = self.type_of(stmt), f"{stmt.name}_part"
        value = value if self._wide(stmt) == kind else f"{kind}({value})"
        return (f"const {kind} {stmt.name} = {value};",)

    def _wide(self, stmt: Stmt) -> str:
        extremum = stmt.reduce in (ReduceKind.MAX, ReduceKind.MIN)
        return self.type_of(stmt) if extremum else "double"
