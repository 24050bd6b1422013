"""How CUDA C++ is spelt: types, constants, pointwise operators, and skeletons filled with them.

Pointwise operators of the intermediate form are expressions over the prelude's functions. Skeletons
are templates, filled together with tunables, parameters and the plan's launches.

The host's C++ (`cpp.expressions`) has types and literals of its own: it keeps half precision as
bits, its integers are int64_t, and a constant stands there for exactly one float.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kernelwright.tools.codegen.cuda.printing.nest import Nest
from kernelwright.tools.codegen.ir import OPERATORS, Stmt
from kernelwright.tools.codegen.ir.kernel_family import ARITHMETIC, BITWISE, COMPARE
from kernelwright.tools.codegen.ir.loops import computed
from kernelwright.tools.types import DType

# Spelled as a kernel's signature must spell them.
C_TYPES: dict[DType, str] = {
    DType.FLOAT64: "double",
    DType.FLOAT32: "float",
    DType.FLOAT16: "__half",
    DType.BFLOAT16: "__nv_bfloat16",
    DType.FLOAT8_E4M3FN: "kw::E4M3",
    DType.INT64: "long long",
    DType.INT32: "int",
    DType.INT16: "short",
    DType.INT8: "signed char",
    DType.UINT8: "unsigned char",
    DType.BOOL: "bool",
}


def c_type(dtype: DType) -> str:
    """The C++ name of a storage type."""
    return C_TYPES[dtype]


def value_type(dtype: DType) -> str:
    """The C++ name of the type that values of `dtype` are computed in."""
    return C_TYPES[computed(dtype)]


def literal(value: float | int | bool | None, dtype: DType) -> str:
    """A constant as C++ text, in the type that `dtype` is computed in."""
    kind = computed(dtype)
    if kind is DType.BOOL:
        return "true" if value else "false"
    if kind is DType.INT64:
        return _integer(int(value or 0))
    number = 0.0 if value is None else float(value)  # and -0.0 keeps its sign
    return _floating(number, "f" if kind is DType.FLOAT32 else "")


def _integer(value: int) -> str:
    if value <= -(1 << 63):  # the literal of the smallest integer does not exist in C++
        return "(-9223372036854775807LL - 1)"
    return f"{value}LL"


def _floating(value: float, suffix: str) -> str:
    name = "float" if suffix else "double"
    if math.isnan(value):
        return f"{name}(NAN)"
    if math.isinf(value):
        return f"kw::{'greatest' if value > 0 else 'least'}<{name}>()"
    # A double past the range of float is an infinity once it is converted, as in ATen.
    if suffix and abs(value) > 3.4028235677973366e38:
        return _floating(math.copysign(math.inf, value), suffix)
    text = repr(value)
    return f"{text if any(mark in text for mark in '.en') else text + '.0'}{suffix}"


_INFIX: Mapping[str, str] = {**ARITHMETIC, **COMPARE, **BITWISE}
_COMPARISONS = frozenset(COMPARE)
_PREDICATES = frozenset({"isnan", "isinf"})
_LOGICAL: Mapping[str, str] = {"logical_and": "&&", "logical_or": "||", "logical_xor": "!="}
_RENAMED: Mapping[str, str] = {"fma": "multiply_add", "isnan": "is_nan", "isinf": "is_infinite"}


def convert(text: str, have: DType, want: DType) -> str:
    """`text` of type `have` in the type that `want` is computed in."""
    if computed(have) is computed(want):
        return text
    return f"kw::to<{value_type(want)}>({text})"


def expression(stmt: Stmt, args: Sequence[tuple[str, DType]], *, alone: bool = False) -> str:
    """The C++ expression of a pointwise statement, a cast or a constant.

    Args:
        stmt: The statement.
        args: Text and type of each argument.
        alone: Whether it is a product that nothing may be fused with.

    Raises:
        ValueError: When the operator is not one of `OPERATORS`.
    """
    if stmt.op == "const":
        return literal(stmt.value, stmt.dtype)
    if stmt.op in ("cast", "tf32"):
        return convert(*args[0], stmt.dtype)
    if stmt.op not in OPERATORS or len(args) != OPERATORS[stmt.op]:
        raise ValueError(f"{stmt.name}: no operator {stmt.op!r} with {len(args)} arguments")
    if alone and computed(stmt.dtype) in (DType.FLOAT32, DType.FLOAT64):
        parts = _converted(stmt, args)
        return f"kw::product({parts[0]}, {parts[-1]})"
    return _printer(stmt.op)(stmt, args)


def _printer(op: str) -> Callable[[Stmt, Sequence[tuple[str, DType]]], str]:
    if op in _LOGICAL or op == "logical_not":
        return _logical
    if op == "where":
        return _where
    if op in ("div", "reciprocal", "square", "neg", "bitwise_not"):
        return _special
    return _infix if op in _INFIX else _call


def _type_of_arguments(stmt: Stmt, args: Sequence[tuple[str, DType]]) -> DType:
    """Comparisons meet in the widest argument's type; everything else computes in its own."""
    if stmt.op not in _COMPARISONS | _PREDICATES:
        return stmt.dtype
    order = (DType.BOOL, DType.INT64, DType.FLOAT32, DType.FLOAT64)
    return max((computed(dtype) for _, dtype in args), key=order.index)


def _converted(stmt: Stmt, args: Sequence[tuple[str, DType]]) -> list[str]:
    meet = _type_of_arguments(stmt, args)
    return [convert(text, dtype, meet) for text, dtype in args]


def _infix(stmt: Stmt, args: Sequence[tuple[str, DType]]) -> str:
    left, right = _converted(stmt, args)
    text = f"{left} {_INFIX[stmt.op]} {right}"
    # C++ promotes bool arithmetic to int; the result is a bool again.
    return f"bool({text})" if stmt.dtype is DType.BOOL and stmt.op not in _COMPARISONS else text


def _logical(stmt: Stmt, args: Sequence[tuple[str, DType]]) -> str:
    parts = [convert(text, dtype, DType.BOOL) for text, dtype in args]
    text = f"!{parts[0]}" if stmt.op == "logical_not" else f" {_LOGICAL[stmt.op]} ".join(parts)
    return convert(f"({text})", DType.BOOL, stmt.dtype)


def _where(stmt: Stmt, args: Sequence[tuple[str, DType]]) -> str:
    condition = convert(*args[0], DType.BOOL)
    chosen, other = (convert(text, dtype, stmt.dtype) for text, dtype in args[1:])
    return f"{condition} ? {chosen} : {other}"


def _special(stmt: Stmt, args: Sequence[tuple[str, DType]]) -> str:
    parts = _converted(stmt, args)
    if stmt.op == "div":
        # Integers have no division of their own here; ATen's integer quotient truncates.
        return f"kw::truncdiv({', '.join(parts)})" if _integral(stmt) else " / ".join(parts)
    if stmt.op == "reciprocal":
        return f"{literal(1, stmt.dtype)} / {parts[0]}"
    if stmt.op == "square":
        return f"{parts[0]} * {parts[0]}"
    if stmt.op == "neg":
        return f"-{parts[0]}"
    return f"!{parts[0]}" if stmt.dtype is DType.BOOL else f"~{parts[0]}"


def _call(stmt: Stmt, args: Sequence[tuple[str, DType]]) -> str:
    return f"kw::{_RENAMED.get(stmt.op, stmt.op)}({', '.join(_converted(stmt, args))})"


def _integral(stmt: Stmt) -> bool:
    return computed(stmt.dtype) is DType.INT64


_PARAMETERS = "@parameters@"
_KERNEL = re.compile(r'(?=^extern "C" )', re.MULTILINE)
_COMMENT = re.compile(r"//.*")
_NAME = re.compile(r"(\w+)\(@parameters@\)")


@dataclass(frozen=True)
class Argument:
    """A kernel parameter that is there if the kernel mentions it, and what the plan passes.

    `written_by` are the ends of the names of the kernels that write to it, where others do not: to
    these it is `const`. Without any it is as declared.
    """

    name: str
    declaration: str
    passed: str
    written_by: tuple[str, ...] = ()

    def declared_in(self, kernel: str) -> str:
        """The parameter of a kernel."""
        is_read = self.written_by and not kernel.endswith(self.written_by)
        return f"const {self.declaration}" if is_read else self.declaration


@dataclass(frozen=True)
class Launch:
    """How the plan launches a kernel; the sizes are plan expressions."""

    kernel: str
    grid: str
    block: str
    shared: str = ""
    cluster: str = ""


class Tunables:
    """The tunables and requirements of one emitted loop, under its prefix."""

    def __init__(self, prefix: str):
        self.prefix = prefix.upper()
        self._lines: list[str] = []
        self._best: dict[str, int] = {}

    def add(self, name: str, values: Sequence[int]) -> "Tunables":
        """Declare a tunable; its first value is the best guess."""
        kept = list(dict.fromkeys(values))
        self._best[name] = kept[0]
        self._lines.append(f"// tune: {self.prefix}_{name} in {', '.join(map(str, kept))}")
        return self

    def best(self, name: str) -> int:
        """The best guess of a declared tunable; 1 where it was not declared."""
        return self._best.get(name, 1)

    def require(self, text: str) -> "Tunables":
        """Declare a requirement; names of tunables in braces, `{THREADS} <= 1024`."""
        self._lines.append(f"// require: {self.named(text)}")
        return self

    def named(self, text: str) -> str:
        """`text` with `{THREADS}` replaced by the tunable's full name."""
        return re.sub(r"\{(\w+)\}", rf"{self.prefix}_\1", text)

    def text(self) -> str:
        """The declarations."""
        return "\n".join(self._lines)


def render(skeleton: str, **values: object) -> str:
    """The filled skeleton, without runs of empty lines."""
    text = (
        _environment().get_template(f"{skeleton}.cuh.j2").render(**values, parameters=_PARAMETERS)
    )
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\n{2,}", "\n", text)
    # A pragma is indented like the loop it is about.
    text = re.sub(r"^ *(#pragma unroll.*\n)( *)", r"\2\1\2", text, flags=re.MULTILINE)
    # One empty line before each comment that opens a pass or a kernel.
    return re.sub(r'\n( *// Pass \d|extern "C"|template |struct )', r"\n\n\1", text).strip() + "\n"


def buffer_arguments(nest: Nest) -> list[Argument]:
    """A parameter for every buffer of a nest: what is read, then what is written."""
    arguments: dict[str, Argument] = {}
    read = [place for place in nest.places.values() if place.buffer]
    for place, const in [*((p, "const ") for p in read), *((p, "") for p in nest.targets)]:
        name = f"g_{place.buffer}"
        before = arguments.get(name)
        if before is not None and before.declaration.startswith("const ") != bool(const):
            raise ValueError(f"{nest.loop.name}: {place.buffer} is both read and written")
        text = f"{const}{c_type(place.dtype)}* __restrict__ {name}"
        arguments[name] = Argument(name, text, place.buffer)
    return list(arguments.values())


def complete(
    source: str, arguments: Sequence[Argument], launches: Sequence[Launch]
) -> tuple[str, tuple[str, ...]]:
    """Give each kernel of `source` the parameters it mentions, and print the launches.

    Returns:
        The source, and one plan line a launch.
    """
    passed: dict[str, str] = {}
    parts = []
    for part in _KERNEL.split(source):
        named = _NAME.search(part)
        if named is not None:
            code = _COMMENT.sub("", part)  # whose words are no names
            used = [a for a in arguments if re.search(rf"\b{re.escape(a.name)}\b", code)]
            kernel = named.group(1)
            part = part.replace(_PARAMETERS, ", ".join(a.declared_in(kernel) for a in used))
            passed[kernel] = "".join(f"{a.passed}, " for a in used).strip()
        parts.append(part)
    return "".join(parts), tuple(_launch(one, passed[one.kernel]) for one in launches)


def _launch(one: Launch, arguments: str) -> str:
    if arguments.count(",") > 1:
        arguments = arguments.removesuffix(",")
    extra = f", shared={one.shared}" if one.shared else ""
    extra += f", cluster={one.cluster}" if one.cluster else ""
    return f'launch("{one.kernel}", grid={one.grid}, block={one.block}, args=({arguments}){extra})'


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parents[1] / "skeletons"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        autoescape=False,
    )
