"""The critic: what it looks at, how it is asked, and the Protocol of its minds."""

import random
from functools import cached_property
from typing import Protocol

from kernelwright.agents.critic.contrast import Difference, Sample, differences, exemplars, samples
from kernelwright.agents.critic.source_similarity import closest, fastest_settings
from kernelwright.agents.shared.citations import known, reading
from kernelwright.agents.shared.steering import Steering
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import Analysis, Evidence, Idea, LedgerEntry, Symptom, Task, Value

EXEMPLARS = 4


class Manner(Value):
    """How a critic is asked: shown the best's closest relative too, and also after the last round.

    The defaults are those of runs from before it was kept.
    """

    relatives: bool = False
    after_the_last: bool = True


class CriticInput(Value):
    """Everything the critic may look at: all judged candidates and its own earlier words.

    `best` is the fastest by its most trusted time, None where the samples alone tell. `task` and
    `hardware` give readings beside the times; `explained` is what the profiler said of
    candidates, by their id. `last` where no round can follow, so that nobody will act on what is
    said. Times in milliseconds, None where they are not known.
    """

    round: int
    standings: tuple[Standing, ...]
    analyses: tuple[Analysis, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    seed: int = 0
    best: Standing | None = None
    task: Task | None = None
    hardware: Hardware | None = None
    floor_ms: float | None = None
    baseline_ms: float | None = None
    ideas: tuple[Idea, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    explained: tuple[tuple[str, str], ...] = ()
    steering: Steering = Steering()
    manner: Manner = Manner()
    last: bool = False

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """The correct and timed candidates as they are contrasted."""
        return tuple(samples(self.standings))

    @cached_property
    def exemplars(self) -> tuple[Sample, ...]:
        """Samples from distinct buckets, the fastest first; the same hearing has the same."""
        dice = random.Random(f"{self.seed}:critic:{self.round}")
        return tuple(exemplars(self.samples, EXEMPLARS, dice))

    @cached_property
    def exhibited(self) -> tuple[Sample, ...]:
        """What a model is shown: the best, its closest relative, and others of distinct speed.

        Each implementation once, by its fastest settings: slow settings explain nothing new.
        """
        if not self.manner.relatives:
            return self.exemplars
        dice = random.Random(f"{self.seed}:critic:{self.round}")
        sources = {item.candidate.id: item.candidate for item in self.standings}
        fastest = fastest_settings(self.samples)
        related = closest(fastest, sources)
        left = [sample for sample in fastest if sample is not related]
        drawn = exemplars(left, EXEMPLARS - (related is not None), dice)
        shown = (*drawn, related) if related is not None else drawn
        return tuple(sorted(shown, key=lambda sample: sample.median_ms))

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """What sets the faster exemplars apart, the largest difference first."""
        return tuple(differences(self.samples, self.exemplars))

    def facts(self, standing: Standing) -> tuple[Evidence, ...]:
        """Every number that is known of a candidate."""
        return known(standing.candidate, standing.evaluation, self.task, self.hardware)

    def reading(self, standing: Standing, name: str) -> float | None:
        """One number that is known of a candidate, by its name; None where there is none."""
        return reading(self.facts(standing), name)


class Critic(Protocol):
    """Explains the gaps between candidates."""

    async def critique(self, hearing: CriticInput) -> Analysis:
        """Contrast what was measured, and score what was predicted the round before."""
        ...
