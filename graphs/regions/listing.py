"""A model as a list of regions: where its time goes, and what there is to gain."""

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.algebra import loops_as_layers
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.hardware import floor_ms
from kernelwright.tools.tasks.regions import boundaries, model_regions
from kernelwright.tools.types import Task
from kernelwright.tools.types.outline import ModelRegions, Outline
from kernelwright.tools.types.value import Value

# With fewer operators between which regions could lie, a module is searched as one.
LARGE = 6
_LISTED = 2


class Listed(Value):
    """An outline with its regions, and what listing took; `failure` says why there are none."""

    outline: Outline | None = None
    regions: ModelRegions | None = None
    failure: str = ""
    seconds: float = 0.0


def is_large(task: Task) -> bool:
    """Whether a task is worth searching region by region.

    A written loop over time counts as the one layer that it can be computed as: in regions its
    steps would be apart.
    """
    return bool(task.parts) or boundaries(loops_as_layers(task.graph)) >= LARGE


async def listed(executor: Executor, task: Task) -> Listed:
    """A model's outline and regions as measured on the device."""
    seen = await executor.outline(task)
    if seen.outline is None:
        return Listed(failure=seen.failure)
    hardware, rules = await executor.hardware(), executor.rules or Rules()
    regions = model_regions(
        seen.outline,
        lambda moved, operations: _floor_ms(moved, operations, hardware, rules),
        joined=hardware.kind == "cuda",  # there kernels of ours compute products too
    )
    return Listed(outline=seen.outline, regions=regions)


async def listed_for_audit(executor: Executor, task: Task) -> Listed:
    """The regions of a task that has several; nothing where there is nothing to list."""
    several = bool(task.parts) or boundaries(task.graph) >= _LISTED
    return await listed(executor, task) if several else Listed()


def _floor_ms(moved: int, operations: int, hardware: Hardware, rules: Rules) -> float:
    """The floor of a region; what caches can hold between two operators has none."""
    if moved <= rules.floor_cache_multiple * hardware.cache_mib * 2**20:
        moved = 0
    return floor_ms(moved, operations, hardware)
