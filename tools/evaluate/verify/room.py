"""Foresees memory, so that a large task is judged in parts instead of failing."""

import os
from collections.abc import Callable

import torch

from kernelwright.tools.evaluate.sandbox.memory import machine_bytes, resident_bytes
from kernelwright.tools.types import Graph, Node, Task, TensorSpec
from kernelwright.tools.types.walk import reads

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
    width = _DOUBLE_BYTES if spec.dtype.is_floating else spec.dtype.itemsize_bytes
    return spec.numel * width
