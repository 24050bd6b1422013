"""`--executor local`: evaluates on this machine, by worker processes behind a wall.

`executor` has the class; it uses `builder` (what a task is, whether it proves anything, and
torch.compile's baselines), `baselines` (PyTorch's own times, and compiled candidates) and
`certification` (one candidate judged, a finalist closely, and its profile), which share the
`workshop`: the device's workers, one of them persistent, and the account of where their time goes.
"""

from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.base.kind import ExecutorKind, Order


class LocalKind(ExecutorKind):
    """The executor that evaluates on this machine."""

    def make(self, order: Order) -> Executor:
        """Worker processes for the device of this machine; a target that is not here is lacking."""
        from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor

        return LocalExecutor.create(order.target, order.scratch, rules=order.rules)


KIND = LocalKind()
