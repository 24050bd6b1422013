"""Tables that a forward writes down itself, as `torch.tensor([0.1, 0.9])`: an export's own buffers.

They are no weights of the user's module, so the export carries their bytes.
"""

from kernelwright.tools.export.guards import Argument
from kernelwright.tools.types import Scalar, Task


def tables_of(task: Task, weights: list[Argument]) -> dict[str, str]:
    """Of those weights that are such tables, by label: shape, type and bytes (base64) as Python."""
    data = {
        repr(str(node.target)): text.value
        for node in task.graph.nodes
        if node.op == "constant" and isinstance(text := dict(node.kwargs)["data"], Scalar)
    }
    return {
        item.label: f"({item.shape}, torch.{item.dtype}, {data[item.label]!r})"
        for item in weights
        if item.label in data
    }
