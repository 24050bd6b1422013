"""Calls a candidate in its mode, inside torch.compile or as the replay of a CUDA graph.

A plan inside torch.compile is a graph of library operators and launches, which Inductor compiles as
it compiles the baseline. Where it is verified, the plan itself runs beforehand in guarded memory:
what torch.compile allocates has no guards. Timed calls are looked at like all others.
Not covered: memory inside of a graph and Inductor's own is not spoilt between timed calls.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from kernelwright.tools.candidates import LaunchRefused
from kernelwright.tools.candidates.run import PlanRunner
from kernelwright.tools.candidates.run.arguments import without_gradients
from kernelwright.tools.candidates.run.modes import Operators, Replayed, layout_of, traced
from kernelwright.tools.candidates.run.tensor_maps import TensorMaps
from kernelwright.tools.evaluate.timing.baselines import keep_to_oneself
from kernelwright.tools.evaluate.verify.reference_runtime import tensors
from kernelwright.tools.evaluate.verify.truth import Argument

_LONGEST_MESSAGE = 400
Weights = Mapping[str, Tensor]
Compiled = Callable[..., Sequence[Tensor]]


class CompiledPlan:
    """A plan inside torch.compile, compiled once for each layout of arguments.

    Args:
        runner: The plan with its kernels, allocating by torch.
        owner: The candidate's id.
    """

    def __init__(self, runner: PlanRunner, owner: str) -> None:
        self._runner = runner
        self._operators = Operators(f"{owner} {runner.device}", runner.device.type, TensorMaps())
        self._reads = tuple(dict.fromkeys((*runner.plan.weights, *runner.plan.updates)))
        self._made: dict[object, Compiled] = {}

    def prepare(self, weights: Weights) -> None:
        """Run the plan's set-up."""
        self._runner.prepare(weights)

    def prepare_again(self, weights: Weights) -> None:
        """Run it anew, into the same memory."""
        self._runner.prepare_again(weights)

    def kept(self, weights: Weights) -> dict[str, Tensor]:
        """What the plan prepared of these weights, as it is now."""
        return self._runner.kept(weights)

    def __call__(self, arguments: Sequence[Argument], weights: Weights) -> tuple[Tensor, ...]:
        """The outputs.

        Raises:
            LaunchRefused: torch.compile cannot compile around the launches.
        """
        self._runner.keep_up(weights)
        flat = self._flat(arguments, weights)
        made = self._made.get(layout_of(arguments))
        if made is None:
            made = self.compile(arguments, weights)
        return tuple(without_gradients(made, flat))  # type: ignore[arg-type]

    def compile(self, arguments: Sequence[Argument], weights: Weights) -> Compiled:
        """Compile it for arguments laid out like these; it takes as long as the baseline does.

        Raises:
            LaunchRefused: torch.compile cannot compile around the launches.
        """
        keep_to_oneself()
        flat = self._flat(arguments, weights)

        def forward(*given: Tensor) -> tuple[Tensor, ...]:
            at = iter(given)
            placed = [next(at) if isinstance(value, Tensor) else value for value in arguments]
            named = {name: next(at) for name in self._reads}
            prepared = {name: next(at) for name in self._runner.prepared}
            with self._runner.traceable(self._operators, prepared):
                return self._runner(placed, named)

        try:
            graph = traced(forward, flat)
            made: Compiled = torch._inductor.compile(graph, [*flat])
        except Exception as error:  # torch.compile raises nearly every class there is
            words = " ".join(str(error).split())[:_LONGEST_MESSAGE]
            raise LaunchRefused(
                f"torch.compile cannot compile around the launches: {type(error).__name__}: {words}"
            ) from error
        self._made[layout_of(arguments)] = made
        return made

    def _flat(self, arguments: Sequence[Argument], weights: Weights) -> list[Tensor]:
        named = [weights[name] for name in self._reads]
        return [*tensors(arguments), *named, *self._runner.prepared.values()]


class GuardedFirst:
    """The plan itself in guarded memory, then what torch.compile made, whose answer counts."""

    def __init__(self, plain: PlanRunner, compiled: CompiledPlan) -> None:
        self._plain, self._compiled = plain, compiled

    def prepare(self, weights: Weights) -> None:
        """The set-up of both."""
        self._plain.prepare(weights)
        self._compiled.prepare(weights)

    def kept(self, weights: Weights) -> dict[str, Tensor]:
        """What the plan itself prepared, as it is now."""
        return self._plain.kept(weights)

    def __call__(self, arguments: Sequence[Argument], weights: Weights) -> tuple[Tensor, ...]:
        """The outputs; buffers are updated once."""
        before = {name: weights[name].clone() for name in self._plain.plan.updates}
        self._plain(arguments, weights)
        for name, value in before.items():
            weights[name].copy_(value)
        return self._compiled(arguments, weights)


def replayed(
    runner: PlanRunner, arguments: Sequence[Argument], weights: Weights
) -> Callable[[Sequence[Argument]], tuple[Tensor, ...]]:
    """The plan as the replay of a CUDA graph.

    Raises:
        LaunchRefused: it cannot be captured.
    """
    if not all(tensor.is_cuda for tensor in tensors(arguments)):
        raise LaunchRefused("it cannot be captured in a CUDA graph: it runs on no GPU")
    try:
        replay = Replayed(lambda given: runner(given, weights), arguments)
    except RuntimeError as error:
        torch.cuda.synchronize()
        words = " ".join(str(error).split())[:_LONGEST_MESSAGE]
        raise LaunchRefused(f"it cannot be captured in a CUDA graph: {words}") from error

    def call(given: Sequence[Argument]) -> tuple[Tensor, ...]:
        runner.keep_up(weights)  # what was prepared stays where the graph reads it
        return replay(given)

    return call
