"""The device at hand: found by asking the system, its ceilings found by measuring.

`detect` never starts a CUDA context, so the parent process can call it; `measure_ceilings` does
and belongs into a worker.
"""

from tools.hardware.ceilings import cached_ceilings, measure_ceilings
from tools.hardware.detect import detect

__all__ = ["cached_ceilings", "detect", "measure_ceilings"]
