"""Why a candidate is as fast as it is: readings with their rank, and symptoms named from them.

Symptoms are worked out here, before any model reads a number: from the roofline, the compiler's
reports, occupancy, telemetry, and counters where a device shows them.
"""

from kernelwright.tools.profile.evidence import (
    Occupancy,
    evidence_for,
    occupancy,
    reported,
    tensor_roof,
)
from kernelwright.tools.profile.measured import measured_evidence
from kernelwright.tools.profile.symptoms import by_importance, casts_doubt, headline, symptoms

__all__ = [
    "Occupancy",
    "by_importance",
    "casts_doubt",
    "evidence_for",
    "headline",
    "measured_evidence",
    "occupancy",
    "reported",
    "symptoms",
    "tensor_roof",
]
