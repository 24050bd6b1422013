"""Families of CUDA kernels for loops, one a file or two; `cuda.emitter` has the registry."""
