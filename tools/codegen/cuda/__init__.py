"""Prints loops as CUDA C++.

`nest` brings a loop's axes into the order a GPU wants, `schedule` cuts its body into passes,
`printing` and `body` write statements, and each strategy's file (`pointwise`, `rows`, `split`,
`relay`, `waves`, `columns`, `scans`) fills a skeleton from `skeletons/` with them.
"""

from kernelwright.tools.codegen.cuda.emitter import CudaEmitter

__all__ = ["CudaEmitter"]
