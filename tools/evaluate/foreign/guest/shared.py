"""Opens the judge's memory in the guest."""

from torch import Tensor

from kernelwright.tools.evaluate.foreign.arena import HostMemory
from kernelwright.tools.evaluate.foreign.messages import Memory


def opened(memory: Memory, descriptor: int) -> Tensor:
    """The shared bytes as a tensor on the device."""
    if memory.device == "cpu":
        return HostMemory(descriptor, memory.size_bytes).raw
    from kernelwright.tools.evaluate.foreign.device_memory import DeviceMemory

    return DeviceMemory.opened(descriptor, memory.size_bytes).raw
