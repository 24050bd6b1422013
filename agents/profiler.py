"""The profiler: reads what bounds an elite, and names the symptoms.

The playbook's mind computes both from what is known without counters; the words that a language
model would add do not change a reading, so it has no second mind yet.
"""

from typing import Protocol

from profiles.load import Hardware
from tools.nouns import Candidate, Evaluation, Evidence, Symptom, Task, Value
from tools.profile import evidence_for, symptoms


class Reading(Value):
    """What bounds one candidate."""

    candidate: str
    evidence: tuple[Evidence, ...]
    symptoms: tuple[Symptom, ...]


class Profiler(Protocol):
    """Says what bounds a candidate."""

    async def profile(
        self, candidate: Candidate, evaluation: Evaluation, task: Task, hardware: Hardware
    ) -> Reading:
        """Read one evaluated candidate."""
        ...


class PlaybookProfiler:
    """Reads the roofline, the compiler's report and telemetry."""

    async def profile(
        self, candidate: Candidate, evaluation: Evaluation, task: Task, hardware: Hardware
    ) -> Reading:
        """See the class."""
        evidence = evidence_for(evaluation, candidate, task, hardware)
        return Reading(
            candidate=candidate.id, evidence=evidence, symptoms=symptoms(evidence, hardware)
        )
