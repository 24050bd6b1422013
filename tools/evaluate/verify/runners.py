"""Ways to call a candidate: a plan interpreted here, foreign code somewhere else.

The trials know nothing of them but what `Runner` says; one that prepares something of the weights
can be asked for it (`Prepares`), as nothing may write there.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from kernelwright.tools.candidates import ContractError, DeviceError, LaunchRefused
from kernelwright.tools.candidates.run import PlanRunner
from kernelwright.tools.evaluate.verify.memory import GuardedMemory
from kernelwright.tools.evaluate.verify.reasons import rejection
from kernelwright.tools.evaluate.verify.reference_runtime import ReferenceRuntime
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.languages import Built, load_candidate
from kernelwright.tools.types import Candidate


class Runner(Protocol):
    """A way to call a candidate: a plan interpreted here, or foreign code somewhere else."""

    def prepare(self, weights: Mapping[str, Tensor]) -> None:
        """The set-up, once."""
        ...

    def __call__(
        self, arguments: Sequence[Argument], weights: Mapping[str, Tensor], /
    ) -> tuple[Tensor, ...]:
        """The outputs on arguments and weights that lie in the memory of the trials."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """A runner that can be asked for what it prepared."""

    def kept(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What it prepared of these weights, as it is now, by name."""
        ...


def plan_runner(
    runtime: ReferenceRuntime, candidate: Candidate, built: Built, memory: GuardedMemory
) -> PlanRunner:
    """A plan that allocates in guarded memory; RejectedError when it cannot be loaded."""
    try:
        return load_candidate(
            candidate, built, runtime.device, allocator=memory, host=runtime.reference.host
        )
    except (ContractError, LaunchRefused, DeviceError) as error:
        raise rejection(error) from error


def prepared_by(runner: object, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a plan made of weights beforehand, by the names that it is told by."""
    kept = runner.kept(weights) if isinstance(runner, Prepares) else {}
    return {f"prepared {name!r}": tensor for name, tensor in kept.items()}
