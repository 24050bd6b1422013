"""What is known about a kernel's source without compiling it: types, tunables, settings, identity.

Types: which C types may stand in a kernel's signature, and what the plan may pass for them. A
pointer takes tensors of the listed element types; a scalar takes a number that fits. Half
precision has no portable C type on the host, so its bits travel as `uint16_t` there.

Tunables: `// tune:` and `// require:` lines are read. Only real comments count (the parser says
which they are), so a string that looks like a declaration declares nothing. Settings of tunables
are completed and checked, and the valid ones listed.

Identity: a hash of what would run. Two candidates from different ideas that come to the same code
are one candidate.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from math import prod

from kernelwright.tools.candidates.arithmetic import ContractError, Expression
from kernelwright.tools.types import Candidate, DType, LanguageName, Setting, Value
from kernelwright.tools.types.graph import REAL
from kernelwright.tools.types.idea import CallMode

_HALVES = (DType.FLOAT16, DType.BFLOAT16)

POINTEES: Mapping[str, tuple[DType, ...]] = {
    "float": (DType.FLOAT32,),
    "double": (DType.FLOAT64,),
    "half": (DType.FLOAT16,),
    "__half": (DType.FLOAT16,),
    "_Float16": (DType.FLOAT16,),
    "nv_bfloat16": (DType.BFLOAT16,),
    "__nv_bfloat16": (DType.BFLOAT16,),
    "bool": (DType.BOOL,),
    "int8_t": (DType.INT8,),
    "signed char": (DType.INT8,),
    "uint8_t": (DType.UINT8, DType.BOOL, DType.FLOAT8_E4M3FN),
    "unsigned char": (DType.UINT8, DType.BOOL, DType.FLOAT8_E4M3FN),
    "int16_t": (DType.INT16,),
    "short": (DType.INT16,),
    "uint16_t": (DType.INT16, *_HALVES),
    "unsigned short": (DType.INT16, *_HALVES),
    "int": (DType.INT32,),
    "int32_t": (DType.INT32,),
    # Counters for "last block finishes" are unsigned; torch allocates them as int32.
    "unsigned int": (DType.INT32,),
    "uint32_t": (DType.INT32,),
    "long long": (DType.INT64,),
    "long": (DType.INT64,),
    "int64_t": (DType.INT64,),
    "unsigned long long": (DType.INT64,),
    "uint64_t": (DType.INT64,),
    "void": REAL,
}


class ScalarType(Value):
    """A C type passed by value; `code` is its `struct` format letter."""

    code: str
    size_bytes: int
    minimum: int | None = None
    maximum: int | None = None

    @property
    def is_integer(self) -> bool:
        """Whether fractions are refused."""
        return self.minimum is not None


def _signed(code: str, bits: int) -> ScalarType:
    return ScalarType(
        code=code,
        size_bytes=bits // 8,
        minimum=-(1 << (bits - 1)),
        maximum=(1 << (bits - 1)) - 1,
    )


def _unsigned(code: str, bits: int) -> ScalarType:
    return ScalarType(code=code, size_bytes=bits // 8, minimum=0, maximum=(1 << bits) - 1)


_I32, _U32, _I64, _U64 = _signed("i", 32), _unsigned("I", 32), _signed("q", 64), _unsigned("Q", 64)

SCALARS: Mapping[str, ScalarType] = {
    "float": ScalarType(code="f", size_bytes=4),
    "double": ScalarType(code="d", size_bytes=8),
    "bool": ScalarType(code="?", size_bytes=1, minimum=0, maximum=1),
    "int": _I32,
    "int32_t": _I32,
    "unsigned int": _U32,
    "uint32_t": _U32,
    "long long": _I64,
    "long": _I64,
    "int64_t": _I64,
    "ptrdiff_t": _I64,
    "unsigned long long": _U64,
    "unsigned long": _U64,
    "uint64_t": _U64,
    "size_t": _U64,
}

# What describes a tensor to a device's copy engine: a plan passes `tensor_map(...)`.
TENSOR_MAP = "kw::TensorMap"

_ALIASES = {
    "kw TensorMap": TENSOR_MAP,
    "unsigned": "unsigned int",
    "long int": "long",
    "long long int": "long long",
    "unsigned long int": "unsigned long",
    "unsigned long long int": "unsigned long long",
    "short int": "short",
    "unsigned short int": "unsigned short",
    "signed int": "int",
}


def canonical(spelling: str) -> str:
    """A C type without qualifiers, `std::` and doubled blanks, in one of the tables' spellings."""
    words = re.sub(r"\b(?:const|volatile|register)\b|(?:\bstd)?::", " ", spelling).split()
    plain = " ".join(words)
    return _ALIASES.get(plain, plain)


class Parameter(Value):
    """One parameter of an exported function; `type` is the pointee's type for a pointer.

    What is no pointer is a number, or a tensor map where the type is `TENSOR_MAP`. `constant` says
    that what it points to is declared `const`.
    """

    name: str
    type: str
    pointer: bool
    constant: bool = False

    @property
    def accepts(self) -> tuple[DType, ...]:
        """Element types of the tensors that may be passed; empty for a scalar."""
        return POINTEES[self.type] if self.pointer else ()

    @property
    def is_map(self) -> bool:
        """Whether it takes a tensor map."""
        return not self.pointer and self.type == TENSOR_MAP

    @property
    def scalar(self) -> ScalarType | None:
        """How a number is passed; None for a pointer and a tensor map."""
        return None if self.pointer or self.is_map else SCALARS[self.type]

    @property
    def letter(self) -> str:
        """`P` for a pointer, `M` for a tensor map, else the `struct` letter of the C type."""
        scalar = self.scalar
        return scalar.code if scalar is not None else "M" if self.is_map else "P"

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
        """Its parameters as letters, as `Parameter.letter` has them."""
        return "".join(item.letter for item in self.parameters)

    @property
    def pointers(self) -> tuple[bool, ...]:
        """Which of its parameters are pointers."""
        return tuple(item.pointer for item in self.parameters)

    @property
    def written(self) -> tuple[bool, ...]:
        """Which of its parameters may be written to."""
        return tuple(item.pointer and not item.constant for item in self.parameters)


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

    @property
    def written(self) -> dict[str, tuple[bool, ...]]:
        """For every exported function, which parameters may be written to."""
        return {item.name: item.written for item in self.functions}

    def function(self, name: str) -> KernelFunction | None:
        """The exported function of that name, or None."""
        return next((item for item in self.functions if item.name == name), None)

    def tunable(self, name: str) -> Tunable | None:
        """The tunable of that name, or None."""
        return next((item for item in self.tunables if item.name == name), None)


_TUNE = re.compile(r"([A-Za-z]\w*)\s+in\s+(.+)")
_MAX_TUNABLES = 64
_MAX_VALUES = 64


def declarations(
    comments: Iterable[tuple[int, str]],
) -> tuple[tuple[Tunable, ...], tuple[Requirement, ...]]:
    """The tunables and requirements that comments declare.

    Args:
        comments: (line, text with its `//`) in order.

    Raises:
        ContractError: When a declaration is malformed, doubled, or names the unknown.
    """
    tunables: dict[str, Tunable] = {}
    requires: list[Requirement] = []
    for line, comment in comments:
        word, _, rest = comment.lstrip("/").strip().partition(":")
        if not comment.startswith("//"):
            continue
        if word == "tune":
            tunable = _tunable(line, rest.strip())
            if tunable.name in tunables:
                raise ContractError(line, "tune", f"{tunable.name} is declared twice")
            tunables[tunable.name] = tunable
        elif word == "require":
            requires.append(Requirement(text=rest.strip(), line=line))
    if len(tunables) > _MAX_TUNABLES:
        raise ContractError(0, "tune", f"more than {_MAX_TUNABLES} tunables")
    for requirement in requires:
        Expression(requirement.text, frozenset(tunables), requirement.line)
    return tuple(tunables.values()), tuple(requires)


def _tunable(line: int, text: str) -> Tunable:
    match = _TUNE.fullmatch(text)
    if match is None or "__" in text:
        raise ContractError(line, "tune", f"{text!r} is not of the form NAME in 1, 2, 4")
    name, listed = match.groups()
    parts = [part.strip() for part in listed.split(",")]
    if not all(re.fullmatch(r"-?\d{1,9}", part) for part in parts):
        raise ContractError(line, "tune", f"the values of {name} must be integers, not {listed!r}")
    values = tuple(dict.fromkeys(int(part) for part in parts))
    if len(values) > _MAX_VALUES:
        raise ContractError(line, "tune", f"{name} has more than {_MAX_VALUES} values")
    return Tunable(name=name, values=values, line=line)


_ID_DIGITS = 12


def identity(
    language: LanguageName,
    kernel: str,
    plan: str,
    settings: tuple[Setting, ...],
    mode: CallMode = "eager",
) -> str:
    """The id of language, kernel, plan, complete settings and mode."""
    values = ",".join(f"{item.name}={item.value}" for item in settings)
    # Ids from before there were modes are those of plans that are called eagerly.
    content = "\0".join((language, kernel, plan, values, *([] if mode == "eager" else [mode])))
    return hashlib.sha256(content.encode("utf-8", errors="replace")).hexdigest()[:_ID_DIGITS]


def implementation_key(candidate: Candidate) -> str:
    """What candidates share that differ only in their settings."""
    return _implementation(candidate.language, candidate.kernel, candidate.plan)


@lru_cache(maxsize=4096)  # asked for every candidate of a run, in every round
def _implementation(language: LanguageName, kernel: str, plan: str) -> str:
    return identity(language, kernel, plan, ())


# Backtracking ends here, so that contradictory requirements over many tunables are an error
# and not a hang.
_MAX_STEPS = 30_000


def complete_settings(source: KernelSource, given: Iterable[Setting] = ()) -> tuple[Setting, ...]:
    """A value for every tunable, in the order of their declaration.

    What is not given takes the first declared values, in order, that satisfy the requirements.

    Raises:
        ContractError: When a given name or value is not declared, or no completion is valid.
    """
    fixed: dict[str, int] = {}
    for setting in given:
        tunable = source.tunable(setting.name)
        if tunable is None:
            raise ContractError(0, "settings", f"{setting.name} is not a declared tunable")
        if setting.value not in tunable.values:
            words = f"{setting.name} = {setting.value} is not among {tunable.values}"
            raise ContractError(tunable.line, "settings", words)
        fixed[setting.name] = setting.value
    found = next(_assignments(source, fixed), None)
    if found is None:
        shown = ", ".join(f"{name} = {value}" for name, value in fixed.items()) or "any values"
        words = f"no values of the tunables satisfy every requirement with {shown}"
        raise ContractError(source.requires[0].line if source.requires else 0, "require", words)
    return found


def valid_settings(source: KernelSource, limit: int = 4096) -> list[tuple[Setting, ...]]:
    """Complete settings that satisfy every requirement, the default first.

    All of them in the order of declaration when the tunables have at most `limit` combinations.
    Otherwise the default, then what differs from it in one tunable, then a fixed random
    sample, `limit` in total at most.
    """
    return list(_valid_settings(source, limit))


@lru_cache(maxsize=16)  # a coder, a tuner and a judge ask for the same kernel's
def _valid_settings(source: KernelSource, limit: int) -> tuple[tuple[Setting, ...], ...]:
    if prod(len(tunable.values) for tunable in source.tunables) <= limit:
        return tuple(_assignments(source, {}))
    default = next(_assignments(source, {}), None)
    if default is None:
        return ()
    found = {
        tuple([setting.value for setting in settings]): None
        for settings in (default, *_neighbours(source, default))
    }
    names = [item.name for item in source.tunables]
    # A rule is about few tunables, so the same few cases of it come up in every draw.
    rules = [_Remembered(rule, names) for rule in _rules(source)]
    drawn = _drawn([item.values for item in source.tunables])
    for values in islice(drawn, 4 * limit):
        if len(found) >= limit:
            break
        if values not in found and all(rule.holds(values) for rule in rules):
            found[values] = None
    kept = list(found)[:limit]
    return tuple(_settings(source, dict(zip(names, values, strict=True))) for values in kept)


def _drawn(choices: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """One of each by chance, again and again, as `random.choice` draws it, without its calls.

    Seeded, so that a resumed search sees the same.
    """
    bits = random.Random(0).getrandbits
    sized = [(options, len(options), len(options).bit_length()) for options in choices]
    while True:
        values = []
        for options, count, width in sized:
            at = bits(width)
            while at >= count:
                at = bits(width)
            values.append(options[at])
        yield tuple(values)


class _Remembered:
    """A rule that is evaluated once for each case of its own tunables."""

    def __init__(self, rule: Expression, names: Sequence[str]) -> None:
        self._rule = rule
        self._places = [(name, names.index(name)) for name in rule.names]
        self._known: dict[tuple[int, ...], bool] = {}

    def holds(self, values: Sequence[int]) -> bool:
        case = tuple([values[at] for _, at in self._places])
        if case not in self._known:
            self._known[case] = self._rule.holds({name: values[at] for name, at in self._places})
        return self._known[case]


def _neighbours(source: KernelSource, default: Sequence[Setting]) -> Iterator[tuple[Setting, ...]]:
    rules = _rules(source)
    start = {setting.name: setting.value for setting in default}
    for tunable in source.tunables:
        for value in tunable.values:
            values = start | {tunable.name: value}
            if value != start[tunable.name] and all(rule.holds(values) for rule in rules):
                yield _settings(source, values)


def _assignments(source: KernelSource, fixed: Mapping[str, int]) -> Iterator[tuple[Setting, ...]]:
    """Valid assignments in the order of declaration; a rule prunes once its names are bound."""
    choices = [
        (item.name, (fixed[item.name],) if item.name in fixed else item.values)
        for item in source.tunables
    ]
    order = {name: depth for depth, (name, _) in enumerate(choices, start=1)}
    due: dict[int, list[Expression]] = {}
    for rule in _rules(source):
        due.setdefault(max((order[name] for name in rule.names), default=0), []).append(rule)
    if not all(rule.holds({}) for rule in due.get(0, [])):
        return
    steps = 0
    waiting: list[tuple[tuple[str, int], ...]] = [()]
    while waiting and steps < _MAX_STEPS:
        steps += 1
        bound = waiting.pop()
        values = dict(bound)
        if not all(rule.holds(values) for rule in due.get(len(bound), []) if bound):
            continue
        if len(bound) == len(choices):
            yield _settings(source, values)
            continue
        name, options = choices[len(bound)]
        waiting.extend((*bound, (name, option)) for option in reversed(options))


def _rules(source: KernelSource) -> list[Expression]:
    names = frozenset(tunable.name for tunable in source.tunables)
    return [Expression(item.text, names, item.line) for item in source.requires]


def _settings(source: KernelSource, values: Mapping[str, int]) -> tuple[Setting, ...]:
    return tuple(_setting(item.name, values[item.name]) for item in source.tunables)


@lru_cache(maxsize=1024)
def _setting(name: str, value: int) -> Setting:
    return Setting(name=name, value=value)
