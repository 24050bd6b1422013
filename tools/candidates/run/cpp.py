"""C++ kernels: a shared object, called through ctypes without the GIL.

A call runs to its end; there is no grid. A kernel that crashes takes the process with it, which
is why this only happens in workers.
"""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from tools.candidates.errors import LaunchRefused
from tools.candidates.run.arguments import Converters
from tools.candidates.run.loading import Extent, Launcher
from tools.candidates.source import KernelFunction, KernelSource, Parameter

_CType = (
    ctypes.c_void_p
    | ctypes.c_float
    | ctypes.c_double
    | ctypes.c_bool
    | ctypes.c_int
    | ctypes.c_uint
    | ctypes.c_longlong
    | ctypes.c_ulonglong
)
_SCALARS: Mapping[str, type[_CType]] = {
    "f": ctypes.c_float,
    "d": ctypes.c_double,
    "?": ctypes.c_bool,
    "i": ctypes.c_int,
    "I": ctypes.c_uint,
    "q": ctypes.c_longlong,
    "Q": ctypes.c_ulonglong,
}


def load_cpp(source: KernelSource, artifact: Path) -> Mapping[str, Launcher]:
    """Every exported function of a shared object.

    Raises:
        LaunchRefused: When one is missing.
    """
    library = ctypes.CDLL(str(artifact))
    return {item.name: CppFunction(library, item) for item in source.functions}


class CppFunction:
    """One function of a shared object."""

    def __init__(self, library: ctypes.CDLL, function: KernelFunction):
        try:
            self._call = library[function.name]
        except AttributeError:
            raise LaunchRefused(f"the object has no function {function.name!r}") from None
        self._call.argtypes = [_ctype(item) for item in function.parameters]
        self._call.restype = None
        self._convert = Converters(function, torch.device("cpu"))

    def __call__(
        self,
        arguments: Sequence[object],
        grid: Extent = 1,
        block: Extent = 1,
        shared: int = 0,
        cluster: Extent = 1,
    ) -> None:
        """Run to the end; the launch geometry does not apply."""
        self._call(*self._convert(arguments))


def _ctype(parameter: Parameter) -> type[_CType]:
    scalar = parameter.scalar
    return ctypes.c_void_p if scalar is None else _SCALARS[scalar.code]
