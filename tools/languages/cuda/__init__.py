"""CUDA through NVRTC: cubins for a named architecture, launched through the driver."""
