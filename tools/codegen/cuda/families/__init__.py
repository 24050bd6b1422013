"""Families of CUDA kernels, one a file or two, or a folder; `cuda.emitter` has the registry."""
