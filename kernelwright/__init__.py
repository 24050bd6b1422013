"""Makes PyTorch modules faster by writing kernels for them, and proves it."""
