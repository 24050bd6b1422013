"""The floor: the least time that moving a task's bytes takes; what is below it cannot have been.

The floor holds only where every byte must really come from memory: not for working sets that may
lie in a cache, not where the graph reads parts of its inputs, and not where PyTorch itself is
found below it (then the ceilings were measured too low).
"""

from kernelwright.tools.evaluate.verify.reference_runtime import ReferenceRuntime
from kernelwright.tools.tasks import floor_ms
from kernelwright.tools.types import Baselines, Graph

# Operators that may read only part of a tensor, so that its bytes are no lower bound.
_PARTIAL = (
    "embedding", "gather", "index", "select", "slice", "narrow", "take", "tril", "triu",
    "masked", "diagonal", "unfold", "as_strided", "nll_loss",
)  # fmt: skip


def impossible(median_ms: float, runtime: ReferenceRuntime, baselines: Baselines | None) -> str:
    """Why the time cannot be, or an empty word when it can."""
    task, hardware, rules = runtime.task, runtime.hardware, runtime.rules
    in_cache = task.bytes_moved < rules.floor_cache_multiple * hardware.cache_mib * 2**20
    if in_cache or not hardware.measured or reads_partly(task.graph):
        return ""
    # Arithmetic can be saved by algebra, so only the bytes are held against a candidate.
    margin = rules.floor_margin_cuda if runtime.device == "cuda" else rules.floor_margin_cpu
    floor = margin * floor_ms(task.bytes_moved, 0, hardware)
    if median_ms >= floor or _baseline_below(floor, baselines):
        return ""
    return (
        f"{median_ms:.4g} ms is below {floor:.4g} ms, which moving "
        f"{task.bytes_moved / 1e6:.4g} MB takes at least on this device"
    )


def reads_partly(graph: Graph) -> bool:
    """Whether some operator may leave part of its input unread, or an input is unused."""
    words = [node.op.split(".")[1] for node in graph.nodes if node.op.count(".") == 2]
    return any(word.startswith(_PARTIAL) for word in words)


def _baseline_below(floor: float, baselines: Baselines | None) -> bool:
    ran = [item.measurement for item in baselines.items if item.measurement] if baselines else []
    return any(measurement.median_ms < floor for measurement in ran)
