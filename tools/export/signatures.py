"""A kernel's parameters as letters, in the way that an export passes them."""

from tools.candidates import KernelSource

POINTER = "P"


def letters(source: KernelSource) -> dict[str, str]:
    """For every exported function, `P` for a pointer and else the `struct` letter of its C type."""
    return {
        function.name: "".join(
            POINTER if item.scalar is None else item.scalar.code for item in function.parameters
        )
        for function in source.functions
    }


def pointers(source: KernelSource) -> dict[str, tuple[bool, ...]]:
    """For every exported function, which parameters are pointers."""
    return {
        function.name: tuple(item.pointer for item in function.parameters)
        for function in source.functions
    }
