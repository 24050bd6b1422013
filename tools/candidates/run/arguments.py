"""Checks and converts the arguments of a launch, one converter a parameter.

A converter is called for every argument of every launch, so each is one short closure.
"""

import math
from collections.abc import Callable, Sequence

import torch

from kernelwright.tools.candidates.ctypes_table import ScalarType
from kernelwright.tools.candidates.errors import LaunchRefused
from kernelwright.tools.candidates.source import KernelFunction, Parameter

Number = int | float
_NUMBERS = (int, float)
Converter = Callable[[object], Number]


class Converters:
    """Turns the arguments of one function's launches into addresses and numbers.

    Attributes:
        each: One converter a parameter.
    """

    def __init__(self, function: KernelFunction, device: torch.device):
        self.each = tuple(_converter(item, function, device) for item in function.parameters)

    def __call__(self, values: Sequence[object]) -> list[Number]:
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

    def convert(value: object) -> Number:
        if not isinstance(value, tensor_type):
            raise LaunchRefused(f"{where} takes a tensor, not {_shown(value)}")
        if value.dtype not in accepted:
            names = " or ".join(sorted(_word(dtype) for dtype in accepted))
            raise LaunchRefused(f"{where} takes {names}, not {_word(value.dtype)}")
        if value.get_device() != index:
            raise LaunchRefused(f"{where} is on {value.device}, the kernel runs on {device}")
        return value.data_ptr()

    return convert


def _integer(parameter: Parameter, function: KernelFunction, scalar: ScalarType) -> Converter:
    low, high = scalar.minimum or 0, scalar.maximum or 0
    where = f"{function.name}: {parameter.spelling} {parameter.name}"

    def convert(value: object) -> Number:
        if not isinstance(value, int):
            raise LaunchRefused(f"{where} takes an integer, not {_shown(value)}")
        if not low <= value <= high:
            raise LaunchRefused(f"{where} cannot hold {value}")
        return value

    return convert


def _float(parameter: Parameter, function: KernelFunction) -> Converter:
    where = f"{function.name}: {parameter.spelling} {parameter.name}"
    limit = 3.4028235677973366e38 if parameter.type == "float" else math.inf

    def convert(value: object) -> Number:
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
