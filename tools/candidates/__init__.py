"""The candidate contract: device code plus a plan, and nothing else.

A kernel declares what it exports and what can be tuned; a plan (`tools.candidates.plan`), in a
small subset of Python checked by an allow-list, allocates and launches. Nothing here knows a
language, compiles, judges or times. Carrying a plan out needs torch and is in
`tools.candidates.run` (`PlanRunner`), for workers.
"""

from kernelwright.tools.candidates.arithmetic import ContractError, DeviceError, LaunchRefused
from kernelwright.tools.candidates.kernel_source import (
    KernelFunction,
    KernelSource,
    Parameter,
    Requirement,
    Tunable,
    complete_settings,
    implementation_key,
    valid_settings,
)

__all__ = [
    "ContractError",
    "DeviceError",
    "KernelFunction",
    "KernelSource",
    "LaunchRefused",
    "Parameter",
    "Requirement",
    "Tunable",
    "complete_settings",
    "implementation_key",
    "valid_settings",
]
