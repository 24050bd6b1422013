"""What a rewritten plan calls where reading its text was not enough, and its library operators.

Tensors are opaque to a plan's arithmetic: adding two of them would be work for a kernel or a
library operator, and branching on one would wait for the device. Library operators are resolved
once, by name, and only those that write nowhere.

Where a plan's builtins would be stands nothing but an import, and that is torch's own. Parts of
torch import others of its modules the first time that they are needed, and Python looks for
`__import__` in the builtins of whatever frame is on top, which may be a plan's. A plan itself
cannot say the name: the validator refuses import statements and every name with two underscores.
"""

import builtins
import math
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import torch

from kernelwright.tools.candidates.arithmetic import LaunchRefused
from kernelwright.tools.candidates.plan.vocabulary import CREATORS
from kernelwright.tools.types import DType


def _of_torch(
    name: str,
    namespace: Mapping[str, object] | None = None,
    local: Mapping[str, object] | None = None,
    wanted: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Import a module of torch's, and no other."""
    if level or name.partition(".")[0] != "torch":
        raise ImportError(f"{name} is not imported here")
    return builtins.__import__(name, namespace, local, wanted or (), level)


BUILTINS: Mapping[str, object] = {"__import__": _of_torch}


Operator = Callable[..., object]


def resolve(path: str, device: torch.device) -> Operator:
    """The operator of that path (`convolution`, `max.dim`).

    A bare name with a single functional overload is bound to it, which is cheaper to call.

    Raises:
        LaunchRefused: When this torch has none of that name, or it writes to its arguments.
    """
    name, _, overload = path.partition(".")
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        raise LaunchRefused(f"this torch has no aten.{name}")
    found = _overload(packet, overload, path) if overload else _cheapest(packet)
    if name in CREATORS:
        return _on_device(found, device)
    return found


def _overload(packet: Operator, overload: str, path: str) -> Operator:
    found = getattr(packet, overload, None)
    if found is None:
        raise LaunchRefused(f"this torch has no aten.{path}")
    if found._schema.is_mutable:
        raise LaunchRefused(f"aten.{path} writes to its arguments")
    operator: Operator = found
    return operator


def _cheapest(packet: Operator) -> Operator:
    names: list[str] = packet.overloads()  # type: ignore[attr-defined]
    functional = [
        found for found in (getattr(packet, name) for name in names) if not found._schema.is_mutable
    ]
    if len(functional) == 1:
        operator: Operator = functional[0]
        return operator
    # The packet picks by the arguments; the ones that write need `out`, which no plan can pass.
    return packet


def _on_device(operator: Operator, device: torch.device) -> Operator:
    def create(*args: object, **keywords: object) -> object:
        return operator(*args, **keywords, device=device)

    return create


Number = int | float
_MAX_BITS = 64
_MAX_ITERATIONS = 100_000
# Tuples, not unions: isinstance of a union costs three times as much, and this runs per call.
_NUMBERS = (int, float)
_SEQUENCES = (tuple, list)
_SUMMANDS = (int, float, tuple, list)
_DTYPES: dict[str, torch.dtype] = {item.value: getattr(torch, item.value) for item in DType}
_WORDS = {dtype: word for word, dtype in _DTYPES.items()}


def number(value: object) -> Number:
    """A number as it is; anything else is refused."""
    if isinstance(value, _NUMBERS):
        return value
    raise LaunchRefused(f"{shown(value)} cannot be used in arithmetic")


def summand(value: object) -> object:
    """A number, or a tuple or list (shapes may be joined)."""
    if isinstance(value, _SUMMANDS):
        return value
    raise LaunchRefused(f"{shown(value)} cannot be used in arithmetic")


def comparable(value: object) -> object:
    """A number, word, None or tuple; comparing tensors would be work of the device's."""
    if isinstance(value, torch.Tensor):
        raise LaunchRefused(f"{shown(value)} cannot be compared or branched on")
    return value


def power(base: Number, exponent: Number) -> Number:
    """The power, bounded so that no plan computes a number of a million digits."""
    bits = abs(base).bit_length() if isinstance(base, int) else 0
    if isinstance(exponent, int) and exponent > 0 and bits * exponent > 4 * _MAX_BITS:
        raise LaunchRefused(f"{base} ** {exponent} is too large")
    result = base**exponent
    return number(result)


def shift(value: int, by: int) -> int:
    """`value << by`, at most 64 places."""
    if not 0 <= by <= _MAX_BITS:
        raise LaunchRefused(f"cannot shift by {by}")
    return value << by


def times(left: Number, right: Number) -> Number:
    """The product, where integers stay short enough for a thousand bits."""
    result = left * right
    if isinstance(result, int) and result.bit_length() > 1024:
        raise LaunchRefused("an integer grew past 1024 bits")
    return result


def bounded_range(*limits: object) -> range:
    """A range, with a bound on how often the body runs."""
    numbers = [integer(limit) for limit in limits]
    made = range(*numbers)
    if len(made) > _MAX_ITERATIONS:
        raise LaunchRefused(f"a loop of {len(made)} iterations is too long for a plan")
    return made


def item(value: object, index: object) -> object:
    """`value[index]`: a view of a tensor, or an element of a tuple or list."""
    if isinstance(value, torch.Tensor):
        parts = index if isinstance(index, tuple) else (index,)
        if not all(part is None or isinstance(part, int | slice) for part in parts):
            raise LaunchRefused("a tensor is indexed by integers and slices only")
        return value[index]  # type: ignore[index]
    if isinstance(value, _SEQUENCES):
        return value[index]  # type: ignore[call-overload]
    raise LaunchRefused(f"{shown(value)} cannot be indexed")


def dtype_word(value: object) -> str:
    """The element type of a tensor as a word."""
    return _WORDS.get(tensor(value).dtype, str(tensor(value).dtype))


def dtype_named(word: object) -> torch.dtype:
    """The element type of that name."""
    if isinstance(word, str) and word in _DTYPES:
        return _DTYPES[word]
    raise LaunchRefused(f"{word!r} is no element type; known are {', '.join(_DTYPES)}")


def dtype_or_value(value: object) -> object:
    """The element type where a word names one; for keyword arguments called dtype."""
    return dtype_named(value) if isinstance(value, str) else value


def to(value: object, dtype: object) -> torch.Tensor:
    """A tensor converted to another element type."""
    return tensor(value).to(dtype_named(dtype))


def integer(value: object) -> int:
    """`int(value)` for numbers; reading a tensor's element would wait for the device."""
    return int(number(value))


def real(value: object) -> float:
    """`float(value)` for numbers and the words of infinities."""
    if isinstance(value, str) and value in ("inf", "-inf", "nan"):
        return float(value)
    return float(number(value))


def absolute(value: object) -> Number:
    """The absolute value of a number."""
    return abs(number(value))


def ceil_div(left: object, right: object) -> int:
    """The quotient of two integers, rounded up."""
    top, bottom = number(left), number(right)
    if not isinstance(top, int) or not isinstance(bottom, int):
        raise LaunchRefused("ceil_div takes integers")
    return -(-top // bottom)


def least(*values: object) -> Number:
    """The smallest of several numbers."""
    return min(number(value) for value in values)


def most(*values: object) -> Number:
    """The largest of several numbers."""
    return max(number(value) for value in values)


def length(value: object) -> int:
    """How long a tuple, list or shape is."""
    if isinstance(value, _SEQUENCES):
        return len(value)
    raise LaunchRefused(f"{shown(value)} has no length here; a tensor's is in its shape")


def product(value: object) -> Number:
    """The product of a shape's numbers."""
    if isinstance(value, _SEQUENCES):
        return math.prod(number(part) for part in value)
    raise LaunchRefused(f"prod takes a shape, not {shown(value)}")


def shape_of(value: object) -> tuple[int, ...]:
    """A shape from an int, tuple or list of ints."""
    if type(value) is torch.Size:
        return value
    parts: Sequence[object] = value if isinstance(value, _SEQUENCES) else (value,)
    if all(isinstance(part, int) and part >= 0 for part in parts):
        return tuple(int(number(part)) for part in parts)
    raise LaunchRefused(f"{value!r} is not a shape")


def shown(value: object) -> str:
    """A value in a few words."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return f"{type(value).__name__} {value!r}"[:80]


def tensor(value: object) -> torch.Tensor:
    """A tensor as it is; anything else is refused."""
    if isinstance(value, torch.Tensor):
        return value
    raise LaunchRefused(f"{shown(value)} is not a tensor")


GUARDS: dict[str, Callable[..., object]] = {
    "__number": number,
    "__summand": summand,
    "__comparable": comparable,
    "__power": power,
    "__shift": shift,
    "__times": times,
    "__range": bounded_range,
    "__item": item,
    "__dtype": dtype_word,
    "__dtype_or_value": dtype_or_value,
    "__to": to,
    "int": integer,
    "float": real,
    "abs": absolute,
    "ceil_div": ceil_div,
    "min": least,
    "max": most,
    "len": length,
    "prod": product,
}
