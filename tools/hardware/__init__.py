"""The device at hand: found by asking the system, its ceilings found by measuring.

`detect` never starts a CUDA context, so the parent process can call it; `measure_ceilings` and
`peaks` do and belong into a worker. `floor_ms` says what follows from the ceilings for a task, and
`roof_of` what follows for the precision that it is held to.
"""

from kernelwright.tools.hardware.ceilings import (
    NEAR,
    Ceilings,
    cached_ceilings,
    floor_ms,
    floor_words,
    keep_ceilings,
    measure_ceilings,
    peaks,
    stored_ceilings,
)
from kernelwright.tools.hardware.detect import detect
from kernelwright.tools.hardware.roof import Roof, roof_of

__all__ = [
    "NEAR",
    "Ceilings",
    "Roof",
    "cached_ceilings",
    "detect",
    "floor_ms",
    "floor_words",
    "keep_ceilings",
    "measure_ceilings",
    "peaks",
    "roof_of",
    "stored_ceilings",
]
