"""Loops of the intermediate form as CUDA C++.

`printing/` brings a loop's axes into the order a GPU wants, cuts its body into passes and writes
statements; each of `families/` fills a skeleton of `skeletons/` with them; `emitter` has the
registry of families.
"""

from kernelwright.tools.codegen.cuda.emitter import CudaEmitter

__all__ = ["CudaEmitter"]
