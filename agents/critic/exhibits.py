"""What a critic is shown of a round: exemplars with names, and where they differ.

An exemplar is shown with a name, every number that is known, and its source: the fastest in full;
of the others, what differs from the exemplar before where that is shorter. Names (`K1` is the
fastest) are easier to copy than ids of twelve digits, and what a model says of them is turned back
into ids before anyone else reads it.
"""

import re
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from itertools import chain, combinations

from kernelwright.agents.critic.contrast import Difference, Sample
from kernelwright.agents.critic.critic import CriticInput
from kernelwright.agents.prompting.cards import fenced
from kernelwright.agents.shared.noise import Noise, overlap
from kernelwright.tools.archive import Standing
from kernelwright.tools.archive.elites import REGISTER_STEPS, SHARED_STEPS_BYTES
from kernelwright.tools.types import (
    Candidate,
    Evidence,
    Value,
)

# Enough for every kernel that a person would write by hand; longer ones lose their middle.
SOURCE_CHARACTERS = 9000
TABLE_ROWS = 12


class Exhibit(Value):
    """One exemplar. `source` is whole or a diff against `against`, which then names an exhibit."""

    name: str
    standing: Standing
    sample: Sample
    facts: tuple[Evidence, ...]
    idea: str = ""
    explanation: str = ""
    source: str = ""
    against: str = ""

    @property
    def candidate(self) -> str:
        """Its candidate's id."""
        return self.standing.candidate.id

    @property
    def shown(self) -> str:
        """The source between fences that it cannot close; "" where only settings differ."""
        return fenced("diff" if self.against else "", self.source) if self.source else ""


class Contrast(Value):
    """What there is to contrast in a round: exhibits, the fastest first, and medians.

    `limits_ms` are the best baseline and the floor, where they are known.
    """

    exhibits: tuple[Exhibit, ...]
    differences: tuple[Difference, ...]
    values: tuple[tuple[str, tuple[str, ...]], ...]
    limits_ms: tuple[float, ...] = ()
    noise: Noise | None = None

    @property
    def alike(self) -> tuple[str, ...]:
        """Of every two exhibits whose times overlap, that they cannot be told apart."""
        pairs = [
            (one, other, self.noise.between(one.sample, other.sample))
            for one, other in combinations(self.exhibits, 2)
            if self.noise is not None
        ]
        return tuple(overlap(a.name, b.name, gap) for a, b, gap in pairs if not gap.is_clear)

    @property
    def ratios(self) -> tuple[float, ...]:
        """Between medians of the table, and of exhibits to baseline and floor."""
        medians = (item.slower_ms / item.faster_ms for item in self.differences)
        limits = (
            max(limit, ms) / min(limit, ms)
            for item in self.exhibits
            for limit in self.limits_ms
            if (ms := item.sample.median_ms) > 0 and limit > 0
        )
        return (*medians, *limits)

    @property
    def facts(self) -> Mapping[str, tuple[Evidence, ...]]:
        """Every number by exhibit."""
        return {item.name: item.facts for item in self.exhibits}

    def named(self, word: str) -> Exhibit | None:
        """The exhibit of that name, or of the candidate whose id begins so."""
        called = re.search(r"\bK\d+\b", word)
        wanted = called[0] if called else word.strip().strip("`")
        for item in self.exhibits:
            if item.name == wanted or (len(wanted) >= 4 and item.candidate.startswith(wanted)):
                return item
        return None

    def with_ids(self, text: str) -> str:
        """A text with ids instead of the exhibits' names."""
        ids = {item.name: item.candidate for item in self.exhibits}
        return re.sub(r"\bK\d+\b", lambda found: ids.get(found[0], found[0]), text)

    def spelled(self, name: str, value: str) -> str:
        """A value as the candidates spell it, where only case and blanks differ."""
        plain = _plain(value)
        known = dict(self.values).get(name, ())
        return next((item for item in known if _plain(item) == plain), value.strip())


def contrast(critic_input: CriticInput) -> Contrast:
    """Lay out everything that is known of a critic input's exemplars."""
    standings = {item.candidate.id: item for item in critic_input.standings}
    ideas = {idea.id: f"{idea.title}: {idea.mechanism}" for idea in critic_input.ideas}
    told = dict(critic_input.explained)
    shown: list[Exhibit] = []
    for number, sample in enumerate(critic_input.exhibited, start=1):
        standing = standings[sample.candidate]
        source, against = _source(standing.candidate, shown)
        shown.append(
            Exhibit(
                name=f"K{number}",
                standing=standing,
                sample=sample,
                facts=critic_input.facts(standing),
                idea=ideas.get(standing.candidate.idea, ""),
                explanation=told.get(sample.candidate, ""),
                source=source,
                against=against,
            )
        )
    return Contrast(
        exhibits=tuple(shown),
        differences=critic_input.differences[:TABLE_ROWS],
        noise=critic_input.noise,
        values=_values(critic_input.samples),
        limits_ms=tuple(ms for ms in (critic_input.baseline_ms, critic_input.floor_ms) if ms),
    )


def whole(candidate: Candidate) -> str:
    """Kernel and plan as one text; settings stand in the exhibit's table."""
    return f"{candidate.kernel.strip()}\n\n# plan\n{candidate.plan.strip()}\n"


def _source(candidate: Candidate, shown: Sequence[Exhibit]) -> tuple[str, str]:
    """The shortest honest account: nothing new, a diff against one shown before, or all of it."""
    text = whole(candidate)
    best, against = _shortened(text), ""
    for other in shown:
        before = whole(other.standing.candidate)
        if before == text:
            return "", other.name
        lines = unified_diff(
            before.splitlines(), text.splitlines(), other.name, candidate.id, n=2, lineterm=""
        )
        difference = "\n".join(lines)
        if len(difference) < len(best) * 0.7:
            best, against = _shortened(difference), other.name
    return best, against


def _shortened(text: str) -> str:
    if len(text) <= SOURCE_CHARACTERS:
        return text
    head, tail = text[: SOURCE_CHARACTERS * 2 // 3], text[-SOURCE_CHARACTERS // 3 :]
    left_out = text.count("\n") - head.count("\n") - tail.count("\n")
    return f"{head}\n... {left_out} lines left out ...\n{tail}"


def _values(found: Sequence[Sample]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Every attribute that candidates have, with its values."""
    seen: dict[str, dict[str, None]] = {}
    for name, value in dict.fromkeys(chain.from_iterable(item.attributes for item in found)):
        seen.setdefault(name, {})[value] = None
    return tuple((name, tuple(values)) for name, values in sorted(seen.items()))


def _plain(text: str) -> str:
    return " ".join(text.replace("_", " ").lower().split())


# What a compiler reports in steps, as `tools.archive.elites` names them.
STEPS = {
    "registers": (*(f"<= {step}" for step in REGISTER_STEPS), f"> {REGISTER_STEPS[-1]}"),
    "shared": (*(f"<= {step}" for step in SHARED_STEPS_BYTES), f"> {SHARED_STEPS_BYTES[-1]}"),
    "spills": ("yes", "no"),
}
