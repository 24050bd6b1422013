"""One guest in its seat: a link to it, and guarded memory that both can reach."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from kernelwright.tools.evaluate.foreign.arena import Arena, HostMemory, Memory
from kernelwright.tools.evaluate.foreign.link import Link
from kernelwright.tools.evaluate.foreign.messages import Named
from kernelwright.tools.evaluate.foreign.places import place_of
from kernelwright.tools.evaluate.verify.bench import Bench
from kernelwright.tools.evaluate.verify.memory import GuardedMemory
from kernelwright.tools.evaluate.verify.room import available_bytes, io_bytes

_ROOM_SHARE = {"cpu": 0.3, "cuda": 0.2}
_LEAST_BYTES = 64 << 20
_WANTED_BYTES = 2 << 30
_COPIES = 4  # of inputs and outputs: two places while verified, one set while timed, and room


class SharedMemory(GuardedMemory):
    """Guarded blocks in shared memory, given back when they are forgotten."""

    def __init__(self, device: str, guard_bytes: int, arena: Arena) -> None:
        super().__init__(device, guard_bytes, take=arena.take)
        self._arena = arena

    def forget(self, name: str) -> None:
        """Drop the blocks whose names begin so; nobody may use their tensors any more."""
        gone = [block for block in self._blocks if block.name.startswith(name)]
        super().forget(name)
        for block in gone:
            self._arena.give_back(block.raw)


class Seat:
    """A guest and its memory.

    Args:
        bench: the task on its device.
        link: to the guest.
    """

    def __init__(self, bench: Bench, link: Link) -> None:
        self.link = link
        device: Literal["cpu", "cuda"] = "cuda" if bench.device == "cuda" else "cpu"
        self.arena = Arena(_memory(device, wanted_bytes(bench)))
        self.memory = SharedMemory(bench.device, bench.rules.guard_bytes, self.arena)
        link.share(self.arena.memory, device)

    def outputs(self, bench: Bench) -> tuple[Tensor, ...]:
        """Poisoned places for one answer."""
        return tuple(
            self.memory.empty(spec.shape, getattr(torch, spec.dtype.value))
            for spec in bench.task.outputs
        )

    def named(self, weights: Sequence[tuple[str, Tensor]]) -> tuple[Named, ...]:
        """Weights that lie in this memory, as the guest is told of them."""
        return tuple(Named(name=name, place=place_of(self.arena, value)) for name, value in weights)


def wanted_bytes(bench: Bench) -> int:
    """How much memory a guest and the judge share.

    Raises:
        MemoryError: the device has not even room for one verification.
    """
    inputs, outputs = io_bytes(bench.task)
    weights = sum(spec.tensor.size_bytes for spec in bench.task.weights)
    blocks = len(bench.task.weights) + 4 * (len(bench.task.inputs) + len(bench.task.outputs))
    least = _COPIES * (inputs + outputs) + 2 * weights + blocks * 3 * bench.rules.guard_bytes
    room = int(
        available_bytes(bench.device, bench.rules.memory_fraction) * _ROOM_SHARE[bench.device]
    )
    if least > room:
        raise MemoryError(
            f"a guest of this task shares {least / 2**30:.1f} GiB with the judge, "
            f"but only {room / 2**30:.1f} GiB are to be had"
        )
    # More sets of inputs make short calls measurable; pages of the host exist once touched.
    return min(room, max(least + _LEAST_BYTES, min(_WANTED_BYTES, 16 * least)))


def _memory(device: str, size_bytes: int) -> Memory:
    if device == "cpu":
        return HostMemory.make(size_bytes)
    from kernelwright.tools.evaluate.foreign.device_memory import DeviceMemory

    return DeviceMemory.make(size_bytes)
