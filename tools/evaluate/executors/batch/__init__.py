"""`--executor batch`: evaluates on another host, by bundles of files carried there and back.

Jobs go out in a bundle, a folder, and results come back in the same folder. `executor` is the
search's side: it writes bundles and reads results. `work` is the far host's side: it needs a device
and no network. `bundle` is what travels between them. Not covered: a far host that wants to
deceive; what is checked here finds damage and mix-ups.
"""

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.base.kind import (
    ExecutorChoice,
    ExecutorKind,
    Options,
    Order,
)


class BatchKind(ExecutorKind):
    """The executor that evaluates on another host, by bundles of files."""

    def make(self, order: Order) -> Executor:
        """An executor that writes bundles for the chosen device.

        Raises:
            ValueError: When no device was chosen.
        """
        from kernelwright.tools.evaluate.executors.batch.executor import BatchExecutor

        hardware = order.choice.hardware
        if hardware is None:
            raise ValueError("bundles are for a device: the choice has none")
        return BatchExecutor(hardware, order.scratch, seed=order.seed)

    def chosen(self, name: str, options: Options) -> ExecutorChoice:
        """Bundles for the GPU that was named, or for a CPU."""
        folder = "" if options.bundles is None else str(options.bundles.absolute())
        return ExecutorChoice(name=name, hardware=_device(options), bundles=folder)


def _device(options: Options) -> Hardware:
    if options.target == "cpu":
        if options.gpu is not None:
            raise ValueError("--gpu names a GPU, but --target is cpu")
        return hardware_profile("cpu")
    if options.gpu is None:
        raise ValueError("--executor batch needs --gpu NAME, the GPU that the bundles are for")
    hardware = hardware_profile(options.gpu)
    if hardware.kind != "cuda":
        raise ValueError(f"{hardware.name} is no GPU; use --target cpu instead of --gpu")
    return hardware


KIND = BatchKind()
