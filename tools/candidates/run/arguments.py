"""What a plan's launches take: functions, memory, and arguments that are checked and converted.

What is launched are the functions of a built object, whatever language they were written in. Where
a plan's memory comes from is a seam, so that a judge can poison and guard it. Arguments have one
converter a parameter, called for every argument of every launch, so each is one short closure.
Calls go without autograd's records, at next to no cost.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import torch

from kernelwright.tools.candidates.arithmetic import LaunchRefused
from kernelwright.tools.candidates.kernel_source import (
    KernelFunction,
    KernelSource,
    Parameter,
    ScalarType,
)
from kernelwright.tools.candidates.run.tensor_maps import Encode, TensorMap

Extent = int | tuple[int, ...]


class Launcher(Protocol):
    """One function of the object, called for every launch; `grid` counts blocks."""

    def __call__(
        self,
        arguments: Sequence[object],
        grid: Extent = 1,
        block: Extent = 1,
        shared: int = 0,
        cluster: Extent = 1,
    ) -> None:
        """Launch on torch's current stream, or run to the end where a language has no streams."""
        ...


class Loader(Protocol):
    """Gives the functions of a candidate's built object; a language is behind it."""

    def __call__(self, source: KernelSource, device: torch.device) -> Mapping[str, Launcher]:
        """Load the object into this process.

        Raises:
            LaunchRefused: When the object lacks a function that the source exports.
            DeviceError: When the device cannot load it.
        """
        ...


class Host(Protocol):
    """Runs a model that is traced in parts."""

    def __call__(
        self,
        arguments: Sequence[object],
        weights: Mapping[str, torch.Tensor],
        forwards: Mapping[int, Callable[..., object]],
    ) -> object:
        """The flat result, with these forwards in the place of the task's parts' own."""
        ...


class Allocator(Protocol):
    """Gives uninitialised, contiguous tensors to `empty`, `zeros` and their relatives."""

    def empty(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """A contiguous tensor whose contents may be anything."""
        ...


class TorchAllocator:
    """torch's own allocator."""

    def empty(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """See Allocator."""
        return torch.empty(shape, dtype=dtype, device=device)


def without_gradients(function: Callable[..., object], arguments: Iterable[object]) -> object:
    """`function(*arguments)` as under `torch.no_grad`.

    That context costs the host more than a microsecond, much of it before the call begins: in a
    timed call that is time in which a device waits. Whatever is timed is called by this function,
    candidate and baseline alike.
    """
    if not torch.is_grad_enabled():
        return function(*arguments)
    torch._C._set_grad_enabled(False)
    try:
        return function(*arguments)
    finally:
        torch._C._set_grad_enabled(True)


Number = int | float
_NUMBERS = (int, float)
Passed = Number | bytes
Converter = Callable[[object], Passed]


class Converters:
    """Turns the arguments of one function's launches into addresses, numbers and tensor maps.

    Args:
        function: What is launched.
        device: Where its tensors are.
        encode: What the language makes of a tensor map; None where it has none.

    Attributes:
        each: One converter a parameter.
    """

    def __init__(
        self, function: KernelFunction, device: torch.device, encode: Encode | None = None
    ):
        self.each = tuple(
            _map(item, function, device, encode)
            if item.is_map and encode is not None
            else _converter(item, function, device)
            for item in function.parameters
        )

    def __call__(self, values: Sequence[object]) -> list[Passed]:
        """One number a parameter; LaunchRefused when a value does not match its parameter."""
        return [convert(value) for convert, value in zip(self.each, values, strict=True)]


def _converter(parameter: Parameter, function: KernelFunction, device: torch.device) -> Converter:
    scalar = parameter.scalar
    if scalar is None:
        return _pointer(parameter, function, device)
    if scalar.is_integer:
        return _integer(parameter, function, scalar)
    return _float(parameter, function)


def _pointer(parameter: Parameter, function: KernelFunction, device: torch.device) -> Converter:
    accepted = frozenset(getattr(torch, item.value) for item in parameter.accepts)
    index = device.index if device.type != "cpu" else -1
    where = f"{function.name}: {parameter.spelling} {parameter.name}"
    tensor_type = torch.Tensor

    def convert(value: object) -> Passed:
        if not isinstance(value, tensor_type):
            raise LaunchRefused(f"{where} takes a tensor, not {_shown(value)}")
        if value.dtype not in accepted:
            names = " or ".join(sorted(_word(dtype) for dtype in accepted))
            raise LaunchRefused(f"{where} takes {names}, not {_word(value.dtype)}")
        if value.get_device() != index:
            raise LaunchRefused(f"{where} is on {value.device}, the kernel runs on {device}")
        return value.data_ptr()

    return convert


def _map(
    parameter: Parameter, function: KernelFunction, device: torch.device, encode: Encode
) -> Converter:
    index = device.index if device.type != "cpu" else -1
    where = f"{function.name}: {parameter.spelling} {parameter.name}"

    def convert(value: object) -> Passed:
        if not isinstance(value, TensorMap):
            raise LaunchRefused(f"{where} takes tensor_map(...), not {_shown(value)}")
        if value.device != index:
            raise LaunchRefused(f"{where} is not on {device}, where the kernel runs")
        if value.encoded is None:
            value.encoded = encode(value)
        return value.encoded

    return convert


def _integer(parameter: Parameter, function: KernelFunction, scalar: ScalarType) -> Converter:
    low, high = scalar.minimum or 0, scalar.maximum or 0
    where = f"{function.name}: {parameter.spelling} {parameter.name}"

    def convert(value: object) -> Passed:
        if not isinstance(value, int):
            raise LaunchRefused(f"{where} takes an integer, not {_shown(value)}")
        if not low <= value <= high:
            raise LaunchRefused(f"{where} cannot hold {value}")
        return value

    return convert


def _float(parameter: Parameter, function: KernelFunction) -> Converter:
    where = f"{function.name}: {parameter.spelling} {parameter.name}"
    limit = 3.4028235677973366e38 if parameter.type == "float" else math.inf

    def convert(value: object) -> Passed:
        if not isinstance(value, _NUMBERS):
            raise LaunchRefused(f"{where} takes a number, not {_shown(value)}")
        number = float(value)
        if limit <= abs(number) < math.inf:
            raise LaunchRefused(f"{where} cannot hold {number}")
        return number

    return convert


def _shown(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {_word(value.dtype)} tensor"
    return f"{type(value).__name__} {value!r}"


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
