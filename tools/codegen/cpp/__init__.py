"""The playbook in C++: loops of the intermediate form as kernels for the host's CPU.

`plan` decides what each walk over a row computes and keeps, `sweep`, `lanes` and `columns` print
it, and `rows`, `split`, `flat` and `columns` spread it over threads with a skeleton of
`templates`. The arithmetic lives in the prelude, `tools/languages/include/kernelwright.hpp`.
Not here: lowering a module to loops, tuning, compiling.
"""

from kernelwright.tools.codegen.cpp.emitter import CppEmitter

__all__ = ["CppEmitter"]
