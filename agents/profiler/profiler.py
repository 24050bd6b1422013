"""The profiler: reads what bounds an elite, and names the symptoms.

The playbook's mind computes both from what is known without counters. A language model adds words
that explain the readings; it never changes one.
"""

from typing import Protocol

from kernelwright.profiles.load import Hardware
from kernelwright.tools.profile import evidence_for, symptoms, tensor_roof
from kernelwright.tools.profile.measured import NSIGHT
from kernelwright.tools.profile.readings import PERF
from kernelwright.tools.types import Candidate, Evaluation, Evidence, Symptom, Task, Value


class ProfileReading(Value):
    """What bounds one candidate; `explanation` in words where somebody was asked for them.

    `notes` say what went wrong on the way, an answer that the numbers did not bear out included.
    """

    candidate: str
    evidence: tuple[Evidence, ...]
    symptoms: tuple[Symptom, ...]
    explanation: str = ""
    notes: tuple[str, ...] = ()


class Profiler(Protocol):
    """Says what bounds a candidate."""

    async def profile(
        self,
        candidate: Candidate,
        evaluation: Evaluation,
        task: Task,
        hardware: Hardware,
        *,
        measured: tuple[Evidence, ...] = (),
        closely: bool = False,
        round: int = 0,
    ) -> ProfileReading:
        """Read one evaluated candidate; `closely` asks for an explanation in words too.

        `measured` is what a profiler of the device has measured of it, if one was asked.
        """
        ...


class PlaybookProfiler:
    """Reads the roofline, the compiler's report and telemetry."""

    async def profile(
        self,
        candidate: Candidate,
        evaluation: Evaluation,
        task: Task,
        hardware: Hardware,
        *,
        measured: tuple[Evidence, ...] = (),
        closely: bool = False,
        round: int = 0,
    ) -> ProfileReading:
        """See the class; its symptoms are words already, so it looks no closer."""
        known = evidence_for(evaluation, candidate, task, hardware)
        evidence = (*_without_absent(known, measured), *measured)
        evidence = (*evidence, *tensor_roof(evidence, hardware))
        return ProfileReading(
            candidate=candidate.id, evidence=evidence, symptoms=symptoms(evidence, hardware)
        )


def _without_absent(
    known: tuple[Evidence, ...], measured: tuple[Evidence, ...]
) -> tuple[Evidence, ...]:
    """Where a profiler was asked for counters, it says itself whether there are any."""
    counted = (NSIGHT, PERF)
    asked = any(item.name == "counters" or item.source.startswith(counted) for item in measured)
    return tuple(item for item in known if not asked or item.name != "counters")
