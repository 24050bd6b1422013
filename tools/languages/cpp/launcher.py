"""Loads C++ kernels and calls them through ctypes, which lets go of the GIL.

The judge imports this file, and an export holds its text: it uses nothing of Kernelwright's. A
call runs to its end; there is no grid.
"""

import ctypes
from pathlib import Path
from types import SimpleNamespace

import torch

# --- exported from here ---


def load_kernels(library: Path, signatures: dict[str, str]) -> SimpleNamespace:
    """The library's functions as attributes.

    Args:
        library: The shared object.
        signatures: For every function, its parameters as letters: `P` a pointer, else the
            letter of the `struct` module for the C type.
    """
    types = {
        "P": ctypes.c_void_p,
        "f": ctypes.c_float,
        "d": ctypes.c_double,
        "?": ctypes.c_bool,
        "i": ctypes.c_int32,
        "I": ctypes.c_uint32,
        "q": ctypes.c_int64,
        "Q": ctypes.c_uint64,
    }
    loaded = ctypes.CDLL(str(library))
    kernels = SimpleNamespace(device=torch.device("cpu"))
    for name, letters in signatures.items():
        function = getattr(loaded, name)
        function.argtypes = [types[letter] for letter in letters]
        function.restype = None
        setattr(kernels, name, function)
    return kernels
