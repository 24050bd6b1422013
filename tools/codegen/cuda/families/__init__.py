"""Families of CUDA kernels, one a file or two; `cuda.emitter` has the registry."""
