"""Loads a built candidate into this process, ready to be called. For workers: it imports torch."""

import torch

from kernelwright.tools.candidates.plan import ADMITTED
from kernelwright.tools.candidates.run import Allocator, PlanRunner
from kernelwright.tools.languages.base.compilers import Built
from kernelwright.tools.languages.registry import language_of
from kernelwright.tools.types import Candidate


def load_candidate(
    candidate: Candidate,
    built: Built,
    device: str | torch.device,
    allocator: Allocator | None = None,
    *,
    operators: frozenset[str] = ADMITTED,
) -> PlanRunner:
    """A candidate on a device: `runner(args, weights)` gives the outputs.

    Args:
        candidate: Its plan is validated again here.
        built: The object that `compile_candidate` made of it.
        device: As torch names it ("cuda:0", "cpu").
        allocator: Where the plan's memory comes from; torch's own when None.
        operators: Library operators admitted.

    Raises:
        ContractError: When kernel or plan break the contract.
        LaunchRefused: When the object lacks a function.
        DeviceError: When the device cannot load the object.
    """
    language = language_of(candidate)
    return PlanRunner(
        candidate,
        language.parse(candidate.kernel),
        lambda source, on: language.load(source, built.artifact, on),
        device,
        allocator,
        operators=operators,
    )
