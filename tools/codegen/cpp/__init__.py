"""Loops of the intermediate form as C++ kernels for the host's CPU.

`sweep_plan` decides what each walk over a row computes and keeps, `frame` and `body` print it, and
`walks` and `split` spread it over threads with a skeleton of `templates`. The arithmetic lives in
the prelude, `tools/languages/base/include/kernelwright.hpp`. Not here: lowering a module to loops,
tuning, compiling.
"""

from kernelwright.tools.codegen.cpp.emitter import CppEmitter

__all__ = ["CppEmitter"]
