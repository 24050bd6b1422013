"""Carries a validated plan out on real tensors. For worker processes only: it imports torch.

The plan's syntax tree is rewritten so that every read that could reach further than the contract
says goes through a guard, then compiled with a namespace that holds the guards and nothing else.
"""

from kernelwright.tools.candidates.run.arguments import Allocator, TorchAllocator
from kernelwright.tools.candidates.run.runner import PlanRunner, device_lost

__all__ = ["Allocator", "PlanRunner", "TorchAllocator", "device_lost"]
