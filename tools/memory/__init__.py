"""The library of kernels that were verified for this user, found again by what they compute.

A kernel is kept under the structure of its task's traced graph, never under the user's source. It
is a hint: whoever takes one has it judged again.
"""

from kernelwright.tools.memory.entry import (
    Kept,
    Proof,
    Shaped,
    device_of,
    file_lines,
    read_lines,
)
from kernelwright.tools.memory.library import (
    BROKEN,
    KernelLibrary,
    LibraryCounts,
    forget,
    library_path,
)
from kernelwright.tools.memory.structure import TaskKey, is_near, key_of, with_weights_named
from kernelwright.tools.memory.trail import Trail, share_that_gained

__all__ = [
    "BROKEN",
    "Kept",
    "KernelLibrary",
    "LibraryCounts",
    "Proof",
    "Shaped",
    "TaskKey",
    "Trail",
    "device_of",
    "file_lines",
    "forget",
    "is_near",
    "key_of",
    "library_path",
    "read_lines",
    "share_that_gained",
    "with_weights_named",
]
