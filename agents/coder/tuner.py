"""The tuner: explores the declared tunables of one implementation.

A model of the times that were measured (`surrogate`) says which settings to try next; every
measurement made before is told first. It is no role of its own: it needs a model of settings, and
no language model or rules. The same measurements lead to the same questions.
"""

import random
from collections.abc import Collection, Iterable, Sequence
from math import inf, log
from typing import Literal, Protocol

import numpy as np

from kernelwright.agents.coder.surrogate import Array, Surrogate
from kernelwright.agents.shared.facts import agreement, loop_of
from kernelwright.tools.candidates import KernelSource, Tunable
from kernelwright.tools.languages import parse_kernel, settings_to_try, with_settings
from kernelwright.tools.types import Analysis, Candidate, Setting, Symptom

Settings = tuple[Setting, ...]
# What suggests settings; runs from before the surrogate have Optuna's sampler.
By = Literal["surrogate", "sampler"]


class Suggests(Protocol):
    """Says which settings to measure next."""

    def tell(self, settings: Settings, median_ms: float | None) -> None:
        """Take note of a measurement; None for settings that did not run."""
        ...

    def choose(self, left: Sequence[Settings]) -> Settings:
        """One of the settings that nobody measured or was given yet."""
        ...


class Tuning:
    """One implementation being tuned.

    Args:
        candidate: Any candidate of the implementation.
        known: Settings measured before, with their time in ms, None where they failed.
        analysis: The critic's word: what it prefers is asked first, what it avoids last.
        seed: Of what is drawn by chance.
        by: What suggests settings.
        symptoms: What bounds the candidate: settings that counters point to are tried early.
    """

    def __init__(
        self,
        candidate: Candidate,
        known: Sequence[tuple[Settings, float | None]],
        analysis: Analysis | None = None,
        seed: int = 0,
        by: By = "surrogate",
        symptoms: Sequence[Symptom] = (),
    ) -> None:
        self._candidate = candidate
        source = parse_kernel(candidate.kernel, candidate.language)
        self._open = dict.fromkeys(settings_to_try(candidate.kernel, candidate.language))
        self._suggests = _suggesting(by, source, seed)
        for settings, median_ms in known:
            self.tell(settings, median_ms)
        prefer, avoid = analysis.heeded if analysis is not None else ((), ())
        turned = _turned(self._candidate, source, symptoms, self._open)
        self._preferred = [*turned, *_preferred(self._open, prefer)]
        self._avoided = set(avoid)

    def ask(self) -> Candidate | None:
        """The next candidate to measure; None when all settings are known."""
        settings = self._next()
        if settings is None:
            return None
        # Several may be asked for before the first is told: none is asked for twice.
        self._open.pop(settings)
        candidate = with_settings(self._candidate, settings, note="tuned settings")
        return candidate.model_copy(update={"parents": (self._candidate.id,)})

    def tell(self, settings: Settings, median_ms: float | None) -> None:
        """Take note of a measurement; None for settings that did not run."""
        self._open.pop(settings, None)
        self._suggests.tell(settings, median_ms)

    def _next(self) -> Settings | None:
        while self._preferred:
            preferred = self._preferred.pop(0)
            if preferred in self._open:
                return preferred
        # What the critic advises against comes last.
        advised = [one for one in self._open if not self._is_avoided(one)]
        left = advised or list(self._open)
        return self._suggests.choose(left) if left else None

    def _is_avoided(self, settings: Settings) -> bool:
        if not self._avoided:
            return False
        return agreement({s.name: str(s.value) for s in settings}, self._avoided) > 0


# So many settings are chosen at once, as they are measured side by side.
_AT_ONCE = 4
# What a model is made of at most: the fastest measurements and the latest.
_FASTEST, _LATEST = 96, 32


class Modelled:
    """Suggests by a surrogate of what was measured; by chance while nothing ran."""

    def __init__(self, source: KernelSource, seed: int) -> None:
        self._places = {
            tunable.name: dict(
                zip(sorted(tunable.values), _steps(len(tunable.values)), strict=True)
            )
            for tunable in source.tunables
            if len(tunable.values) > 1
        }
        self._known: list[tuple[Settings, float]] = []
        self._chosen: list[Settings] = []
        self._dice = random.Random(seed)

    def tell(self, settings: Settings, median_ms: float | None) -> None:
        """Take note; what was chosen before is chosen anew."""
        self._known.append((settings, inf if median_ms is None else log(median_ms)))
        self._chosen = []

    def choose(self, left: Sequence[Settings]) -> Settings:
        """The most promising, several chosen together while nothing new is told."""
        if not self._chosen:
            self._chosen = self._promising(left)
        return self._chosen.pop(0)

    def _promising(self, left: Sequence[Settings]) -> list[Settings]:
        if not self._places or all(time == inf for _, time in self._known):
            return [self._dice.choice(left)]
        told = self._telling()
        model = Surrogate(self._rows([settings for settings, _ in told]), [t for _, t in told])
        return [left[at] for at in model.most_promising(self._rows(left), _AT_ONCE)]

    def _telling(self) -> list[tuple[Settings, float]]:
        """What is worth modelling, so that a question stays cheap after hundreds of answers."""
        fastest = sorted(self._known, key=lambda one: one[1])[:_FASTEST]
        return [*fastest, *(one for one in self._known[-_LATEST:] if one not in fastest)]

    def _rows(self, settings: Sequence[Settings]) -> Array:
        places = self._places
        return np.array([
            [places[one.name][one.value] for one in of if one.name in places] for of in settings
        ])  # fmt: skip


def _steps(count: int) -> list[float]:
    return [at / (count - 1) for at in range(count)]


def _suggesting(by: By, source: KernelSource, seed: int) -> Suggests:
    if by == "surrogate":
        return Modelled(source, seed)
    # Optuna takes a while to import, and new runs do without.
    from kernelwright.agents.coder.sampler import Sampler

    return Sampler(source, seed)


# So many settings are tried because of symptoms, once; the model of times has the rest.
_TURNED = 3


def _turned(
    candidate: Candidate,
    source: KernelSource,
    symptoms: Sequence[Symptom],
    valid: Collection[Settings],
) -> list[Settings]:
    """The candidate's settings with one tunable a step further, as counters point, worth first."""
    counted = [item for item in symptoms if item.worth is not None]
    found: dict[Settings, None] = {}
    for symptom in sorted(counted, key=lambda item: -(item.worth or 0.0)):
        for turn in symptom.turns:
            loop = loop_of(symptom.kernel)
            name, up = turn[:-1], turn.endswith("+")
            names = {name, f"{loop}_{name}"} if loop else {name}
            for tunable in (one for one in source.tunables if one.name in names):
                moved = _a_step(candidate.settings, tunable, up)
                found |= {moved: None} if moved in valid else {}
    return list(found)[:_TURNED]


def _a_step(settings: Settings, tunable: Tunable, up: bool) -> Settings:
    """The settings with that tunable's next value; () behind the last one."""
    values = sorted(tunable.values)
    now = next((one.value for one in settings if one.name == tunable.name), None)
    at = values.index(now) + (1 if up else -1) if now in values else -1
    if not 0 <= at < len(values):
        return ()
    changed = Setting(name=tunable.name, value=values[at])
    return tuple(changed if one.name == tunable.name else one for one in settings)


def _preferred(valid: Iterable[Settings], prefer: tuple[str, ...]) -> list[Settings]:
    """The settings that agree most with what the critic prefers, two at most."""

    def liked(settings: Settings) -> int:
        return agreement({s.name: str(s.value) for s in settings}, prefer)

    return sorted((s for s in valid if liked(s)), key=liked, reverse=True)[:2]
