"""`--executor local`: worker processes on this machine."""

from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.base.kind import ExecutorKind, Order


class LocalKind(ExecutorKind):
    """The executor that evaluates on this machine."""

    def make(self, order: Order) -> Executor:
        """Worker processes for the device of this machine; a target that is not here is lacking."""
        from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor

        return LocalExecutor.create(order.target, order.scratch, rules=order.rules)


KIND = LocalKind()
