"""The floor: the time below which no implementation of a task can go on a device.

It is the larger of moving every byte once and doing every operation at the highest rate the
device has, tensor cores included, so that a faster time is impossible rather than unlikely.
What is not covered: algebra that saves operations, and inputs that already lie in a cache.
"""

from kernelwright.profiles.load import Hardware


def floor_ms(bytes_moved: int, flops: int, hardware: Hardware) -> float:
    """Milliseconds that `bytes_moved` and `flops` take at least on `hardware`."""
    memory_s = bytes_moved / (hardware.bandwidth_gb_s * 1e9)
    rate_tflops = max(hardware.fp32_tflops, hardware.tensor_tflops or 0.0)
    return max(memory_s, flops / (rate_tflops * 1e12)) * 1e3
