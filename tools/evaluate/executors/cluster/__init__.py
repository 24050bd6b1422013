"""`--executor ray`: spreads candidates over the GPUs of a Ray cluster, or of this machine.

`executor` is the search's side; it asks the `scheduler`, which gives jobs to devices, and keeps
`results`. `ray_fleet` starts the `broker`, the one process that imports Ray. An `actor` stands for
each device and starts its `judge`, which evaluates as on one machine. `messages` is what they say
to each other, `lease` keeps timing exclusive on each device.

Where devices of one kind differ (clocks, cooling), a screening's times do too; what is claimed in
the end is compared within one process on one device.
"""

from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.base.kind import (
    ExecutorChoice,
    ExecutorKind,
    Options,
    Order,
)

CPU, ANY_GPU = "cpu", "gpu"


def kind_of(choice: ExecutorChoice, target: str) -> str:
    """Which devices a choice means: its kind, or any GPU, or processors where there is none."""
    from kernelwright.tools.hardware.detect import visible_gpus

    if choice.kind or target == CPU:
        return choice.kind or CPU
    here = not choice.cluster and target == "auto"
    return CPU if here and visible_gpus() == 0 else ANY_GPU


class RayKind(ExecutorKind):
    """The executor that evaluates on the devices of a cluster."""

    def make(self, order: Order) -> Executor:
        """An executor with a cluster of its own; nothing is started before it is asked.

        Raises:
            EnvironmentLacksError: Ray, a token or bubblewrap is missing.
        """
        from kernelwright.tools.evaluate.executors.cluster.executor import Cluster, RayExecutor
        from kernelwright.tools.evaluate.executors.cluster.messages import Ground
        from kernelwright.tools.evaluate.executors.cluster.ray_fleet import check

        choice = order.choice
        kind = kind_of(choice, order.target)
        ground = Ground(address=choice.cluster, kinds=(kind,), cpus=choice.cpus)
        check(ground)
        cluster = Cluster(ground, order.scratch)
        return RayExecutor(cluster, kind, seed=order.seed, rules=order.rules)

    def chosen(self, name: str, options: Options) -> ExecutorChoice:
        """A cluster at an address, or this machine's; GPUs by their kind, or processors."""
        if options.bundles is not None:
            raise ValueError("--bundles needs --executor batch")
        if options.gpu is not None and options.target == CPU:
            raise ValueError("--gpu names a GPU, but --target is cpu")
        if options.gpu is not None and "," in options.gpu:
            raise ValueError("one kind of GPU for a search; bench takes several, a result for each")
        return ExecutorChoice(name=name, kind=options.gpu or "", cluster=options.cluster)


KIND = RayKind()
