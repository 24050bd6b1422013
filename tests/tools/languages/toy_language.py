"""A toy language, as somebody else's package would bring it: OpenCL C, one work-item, on the CPU.

`kernel void f(global const float* x)` is rewritten to what the host's C++ compiler knows;
compiling, loading, inspecting and exporting are then C++'s own.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from kernelwright.tools.candidates import KernelSource
from kernelwright.tools.languages.base.c_source import read_c_source, with_macros
from kernelwright.tools.languages.cpp.language import CppLanguage
from kernelwright.tools.types import Setting

_PROBE = """kernel void probe(global const float* x, global float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = x[i] * 2.0f + 1.0f;
}
"""


class ToyLanguage(CppLanguage):
    """What differs from C++: the facts, how a signature reads, and what is compiled."""

    spec = replace(
        CppLanguage.spec,
        name="toy",
        title="Toy",
        suffixes=(".cl",),
        fences=("toy", "opencl"),
        marks=("kernel void",),
        lexer="c",
        probe=_PROBE,
    )

    def parse(self, kernel: str) -> KernelSource:
        """Read the `kernel void` functions."""
        return read_c_source(_translated(kernel), self.spec.name, qualifier="", has_grid=False)

    def with_settings(self, kernel: str, settings: Sequence[Setting]) -> str:
        """C++ with the tunables as macros."""
        return with_macros(_translated(kernel), settings)


def _translated(kernel: str) -> str:
    exported = re.sub(r"\bkernel\s+void\b", 'extern "C" void', kernel)
    return re.sub(r"\bglobal\s+", "", exported)


TOY = ToyLanguage()
