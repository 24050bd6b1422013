"""The device at hand: found by asking the system, its ceilings found by measuring.

`detect` never starts a CUDA context, so the parent process can call it; `measure_ceilings` and
`peaks` do and belong into a worker.
"""

from kernelwright.tools.hardware.ceilings import (
    Ceilings,
    cached_ceilings,
    keep_ceilings,
    measure_ceilings,
    peaks,
)
from kernelwright.tools.hardware.detect import detect

__all__ = [
    "Ceilings",
    "cached_ceilings",
    "detect",
    "keep_ceilings",
    "measure_ceilings",
    "peaks",
]
