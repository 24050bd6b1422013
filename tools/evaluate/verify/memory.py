"""Guarded memory that shows what a candidate wrote, and how much memory judging will take.

`GuardedMemory`: every block a candidate may touch is poisoned and lies between guards. Outputs and
temporaries are filled with NaN (integers with a pattern nobody computes), so that what a kernel
forgets to write shows. Guards beside inputs hold NaN, so that reading past the end shows in the
result; guards beside written blocks hold another pattern, so that a NaN read there and written here
is still noticed. A call may also be given the memory of the call before as that left it, which is
how calls meet it when they are timed: whoever leaves a mark there that the work is done is found
out. Not covered: writes beyond the guards, and reads past the end whose value does not matter.

`truth_bytes` and its like foresee memory, so that a large task is judged in parts instead of
failing.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf, prod
from typing import Literal

import torch
from torch import Tensor

from kernelwright.tools.evaluate.sandbox.process_tree import machine_bytes, resident_bytes
from kernelwright.tools.evaluate.verify.bits import bits, extent, flat_memory
from kernelwright.tools.types import Graph, Node, Task, TensorSpec
from kernelwright.tools.types.graph import base, reads, refs
from kernelwright.tools.types.value import Value

_DOUBLE_BYTES = 8
_MARGIN = 1.2


def available_bytes(device: str, memory_fraction: float) -> int:
    """What this worker may still allocate on the device."""
    if device.startswith("cuda"):
        free, _ = torch.cuda.mem_get_info()
        return int(free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
    return int(machine_bytes() * memory_fraction) - resident_bytes(os.getpid())


def io_bytes(task: Task) -> tuple[int, int]:
    """Bytes of all inputs and of all outputs."""
    inputs = sum(spec.tensor.size_bytes for spec in task.inputs if spec.tensor)
    return inputs, sum(spec.size_bytes for spec in task.outputs)


def candidate_bytes(task: Task) -> int:
    """Memory to judge one draw: inputs as drawn and in two places, outputs twice, a work space."""
    inputs, outputs = io_bytes(task)
    return int(_MARGIN * (3 * inputs + 3 * outputs))


def truth_bytes(task: Task) -> int:
    """Memory to evaluate the reference in float64: what is alive at the worst moment."""
    return int(_MARGIN * peak_double_bytes(task.graph))


def scores_bytes(task: Task) -> int:
    """What the largest attention's scores take in float64; the library need not keep them."""
    calls = [node for node in task.graph.nodes if base(node.op) == "scaled_dot_product_attention"]
    return max((_scores(task.graph, node) for node in calls), default=0)


def _scores(graph: Graph, attention: Node) -> int:
    query, key = (graph.node(name).out[0].shape for name in refs(attention)[:2])
    return prod(query[:-1]) * key[-2] * _DOUBLE_BYTES


def peak_double_bytes(graph: Graph) -> int:
    """The most that is alive at once when every floating node is float64."""
    return _peak(graph, _size)


def peak_bytes(graph: Graph) -> int:
    """The most that is alive at once in the task's own types; fused operators need less."""
    return _peak(graph, lambda spec: spec.size_bytes)


def _peak(graph: Graph, size: Callable[[TensorSpec], int]) -> int:
    last_use = _last_uses(graph)
    alive = peak = 0
    held: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        held[node.name] = sum(size(spec) for spec in node.out) if _makes_memory(node) else 0
        alive += held[node.name]
        peak = max(peak, alive)
        for name in [name for name in held if last_use.get(name, position) <= position]:
            alive -= held.pop(name)
    return peak


def _last_uses(graph: Graph) -> dict[str, int]:
    uses = dict.fromkeys(graph.outputs, len(graph.nodes))
    # The caller keeps the inputs alive throughout.
    uses |= dict.fromkeys(graph.inputs, len(graph.nodes))
    for position, node in enumerate(graph.nodes):
        for name in reads(node):
            uses[name] = max(uses.get(name, 0), position)
    return uses


def _makes_memory(node: Node) -> bool:
    views = ("view", "expand", "permute", "unsqueeze", "squeeze", "transpose", "slice", "select")
    return node.op != "getitem" and not any(node.op == f"aten.{view}.default" for view in views)


def _size(spec: TensorSpec) -> int:
    if spec.dtype.is_complex:
        return spec.numel * 2 * _DOUBLE_BYTES
    width = _DOUBLE_BYTES if spec.dtype.is_floating else spec.dtype.itemsize_bytes
    return spec.numel * width


NAN_BYTE = 0xFF  # all ones is a NaN in every floating type, and none that arithmetic makes
INTEGER_BYTE = 0xA5
_WRITTEN_GUARD = 0x7F
_Wish = tuple[tuple[int, ...], torch.dtype]


class Damage(Value):
    """A guard was written over. `distance_bytes` is how far outside the furthest write was."""

    block: str
    side: Literal["before", "after"]
    bytes_changed: int
    distance_bytes: int


class Block:
    """One allocation between its guards."""

    def __init__(self, name: str, raw: Tensor, guard: int, guard_byte: int) -> None:
        self.name = name
        self.raw = raw
        self._guard_byte = guard_byte
        self._sides = (raw[:guard], raw[raw.numel() - guard :])
        self.body = raw[guard : raw.numel() - guard]
        for side in self._sides:
            side.fill_(guard_byte)

    def changed(self) -> list[Tensor]:
        """Bytes changed before and after, still on the device."""
        return [(side != self._guard_byte).sum() for side in self._sides]

    def damage(self, before: int, after: int) -> Damage:
        """Describe what `changed` counted."""
        side = self._sides[0] if before else self._sides[1]
        where = torch.nonzero(side != self._guard_byte).flatten()
        distance = side.numel() - int(where[0]) if before else int(where[-1]) + 1
        return Damage(
            block=self.name,
            side="before" if before else "after",
            bytes_changed=before or after,
            distance_bytes=distance,
        )


class GuardedMemory:
    """Hands out guarded blocks; the candidate's allocator while it is judged."""

    def __init__(
        self,
        device: str,
        guard_bytes: int,
        take: Callable[[int], Tensor] | None = None,
        *,
        poisoned: bool = True,
    ) -> None:
        """`take` hands out bytes on the device, where they are not torch's own.

        Blocks that are not `poisoned` hold zeros, as fresh memory often does.
        """
        self._device = device
        self._poisoned = poisoned
        self._guard = guard_bytes
        self._take = take
        self._blocks: list[Block] = []
        self._left: list[Block] = []  # by the call before, in the order of asking
        self._first = 0
        self._recycling = False

    def begin(self, *, recycling: bool) -> None:
        """A call begins; it may be given what `retire` kept of the one before, as it was left."""
        self._first = len(self._blocks)
        self._recycling = recycling

    def retire(self) -> None:
        """Keep what was allocated since the call began; what was kept before is freed."""
        self._left, self._recycling = self._blocks[self._first :], False

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, device: object = None) -> Tensor:
        """A poisoned tensor for an output or a temporary."""
        size = torch.Size(shape).numel()
        count = sum(not block.name.startswith("input") for block in self._blocks)
        if self._recycling and self._left and self._left[0].body.numel() == size * dtype.itemsize:
            self._blocks.append(self._left.pop(0))
            return self._blocks[-1].body.view(dtype).view(shape)
        block = self._block(f"allocation {count}", size * dtype.itemsize, _WRITTEN_GUARD)
        block.body.fill_(poison_byte(dtype) if self._poisoned else 0)
        return block.body.view(dtype).view(shape)

    def place(self, tensor: Tensor, name: str) -> Tensor:
        """A copy of an input with the same layout, in a block of its own."""
        size = extent(tensor)
        block = self._block(f"input {name}", size * tensor.element_size(), NAN_BYTE)
        flat = block.body.view(tensor.dtype)
        if size:
            flat.copy_(flat_memory(tensor))
        return flat.as_strided(tensor.shape, tensor.stride(), flat.storage_offset())

    def forget(self, name: str) -> None:
        """Drop the blocks whose names begin so; their memory is freed with their tensors."""
        self._blocks = [block for block in self._blocks if not block.name.startswith(name)]

    def damage(self) -> Damage | None:
        """The first block whose guards were written over, or None. Waits for the device."""
        if not self._blocks:
            return None
        counts = torch.stack([n for block in self._blocks for n in block.changed()]).tolist()
        for block, before, after in zip(self._blocks, counts[::2], counts[1::2], strict=True):
            if before or after:
                return block.damage(int(before), int(after))
        return None

    def _block(self, name: str, body_bytes: int, guard_byte: int) -> Block:
        total = body_bytes + 2 * self._guard
        if self._take is not None:
            raw = self._take(total)
        else:
            raw = torch.empty(total, dtype=torch.uint8, device=self._device)
        block = Block(name, raw, self._guard, guard_byte)
        self._blocks.append(block)
        return block


class SpoiltMemory:
    """torch's own memory, in which a timed call finds nothing that an earlier one left.

    Before every sample, outside the timed span, memory as the last call asked for it is poisoned.
    On a CPU the next call is handed those very blocks, and pays for asking torch all the same; a
    GPU's allocator gives out blocks of a size again by itself, and may be capturing a graph.
    Not covered: that a plan lets go of tensors (on a CPU each has a block of its own, and a call is
    timed in more memory than it has elsewhere); calls beyond the first of a sample, and the memory
    inside of a CUDA graph, which stays as it was: there what a call leaves out shows when it is
    looked at.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._asked: list[_Wish] = []
        self._call: list[_Wish] = []  # of one call: the fewest between two samples
        self._ready: list[Tensor] = []

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """See `tools.candidates.run.arguments.Allocator`."""
        made = torch.empty(shape, dtype=dtype, device=device)
        self._asked.append((shape, dtype))
        if self._ready and self._ready[0].shape == made.shape and self._ready[0].dtype == dtype:
            return self._ready.pop(0)
        return made

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is asked for inside is none of a call's: it stays, as what is prepared does."""
        asked, ready = self._asked, self._ready
        self._asked, self._ready = [], []
        try:
            yield
        finally:
            self._asked, self._ready = asked, ready

    def spoil(self) -> None:
        """Poison what the next call will be given, as far as the device has room for it."""
        if self._asked and (not self._call or len(self._asked) < len(self._call)):
            self._call = self._asked
        self._asked, self._ready = [], []
        blocks: list[Tensor] = []
        on_cpu = self._device == "cpu"
        room = inf if on_cpu else available_bytes(self._device, 1.0)
        for shape, dtype in self._call:
            room -= torch.Size(shape).numel() * dtype.itemsize
            if room < 0:
                break  # asking all the same would give back what the next call finds ready
            try:
                block = torch.empty(shape, dtype=dtype, device=self._device)
            except torch.OutOfMemoryError:
                break
            flat_memory(block).view(torch.uint8).fill_(poison_byte(dtype))
            blocks.append(block)
        if on_cpu:
            self._ready = blocks


def poison_byte(dtype: torch.dtype) -> int:
    """The byte that fills memory of this type before a candidate writes it."""
    return NAN_BYTE if dtype.is_floating_point else INTEGER_BYTE


def refill(placed: Tensor, values: Tensor) -> None:
    """Put other values into the same memory."""
    if extent(values):
        flat_memory(placed).copy_(flat_memory(values))


def unwritten(tensor: Tensor) -> int:
    """How many elements still hold the poison, bit for bit."""
    byte = poison_byte(tensor.dtype)
    if tensor.dtype in (torch.int8, torch.uint8):
        return 0  # every pattern of one byte is a value that may be right
    pattern = int.from_bytes(bytes([byte]) * tensor.element_size(), "little", signed=True)
    if tensor.dtype == torch.bool:
        pattern = byte
    return int((bits(tensor) == pattern).sum())
