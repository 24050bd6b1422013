"""The candidate contract: device code plus a plan, and nothing else.

A kernel declares what it exports and what can be tuned; a plan, in a small subset of Python
checked by an allow-list, allocates and launches. Nothing here compiles, judges or times.
Carrying a plan out needs torch and is in `tools.candidates.run` (`PlanRunner`), for workers.
"""

from tools.candidates.candidate import implementation_key, new_candidate, with_settings
from tools.candidates.errors import ContractError, DeviceError, LaunchRefused
from tools.candidates.plan import ADMITTED, Plan, validate_plan
from tools.candidates.settings import complete_settings, valid_settings
from tools.candidates.signature import parse_kernel
from tools.candidates.source import (
    KernelFunction,
    KernelSource,
    Parameter,
    Requirement,
    Tunable,
)

__all__ = [
    "ADMITTED",
    "ContractError",
    "DeviceError",
    "KernelFunction",
    "KernelSource",
    "LaunchRefused",
    "Parameter",
    "Plan",
    "Requirement",
    "Tunable",
    "complete_settings",
    "implementation_key",
    "new_candidate",
    "parse_kernel",
    "valid_settings",
    "validate_plan",
    "with_settings",
]
