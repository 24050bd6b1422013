"""The tuner: explores the declared tunables of one implementation.

An optuna study over the tunables is asked for settings and told times; every measurement made
before is told first. What it suggests may be invalid or known: the nearest open settings are taken
then. It is seeded and asked one question at a time, so the same measurements
lead to the same questions. It is no role of its own: it needs a sampler, and no model or rules.
"""

from collections.abc import Iterable, Sequence
from math import log

import optuna

from kernelwright.agents.shared.facts import agreement
from kernelwright.tools.languages import parse_kernel, settings_to_try, with_settings
from kernelwright.tools.types import Analysis, Candidate, Setting

Settings = tuple[Setting, ...]

# What a failed setting is told as: worse than anything that ran, on the scale of log times.
FAILED = log(1e6)

optuna.logging.set_verbosity(optuna.logging.WARNING)


class Tuning:
    """One implementation being tuned.

    Args:
        candidate: Any candidate of the implementation.
        known: Settings measured before, with their time in ms, None where they failed.
        analysis: The critic's word: what it prefers is asked first, what it avoids last.
        seed: Of the sampler.
    """

    def __init__(
        self,
        candidate: Candidate,
        known: Sequence[tuple[Settings, float | None]],
        analysis: Analysis | None = None,
        seed: int = 0,
    ) -> None:
        self._candidate = candidate
        self._source = parse_kernel(candidate.kernel, candidate.language)
        self._distributions = {
            tunable.name: optuna.distributions.CategoricalDistribution(tunable.values)
            for tunable in self._source.tunables
            if len(tunable.values) > 1
        }
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=6, multivariate=True)
        self._study = optuna.create_study(sampler=sampler)
        self._open = dict.fromkeys(settings_to_try(candidate.kernel, candidate.language))
        for settings, median_ms in known:
            self.tell(settings, median_ms)
        self._preferred = _preferred(self._open, analysis)
        self._avoided = set(analysis.avoid) if analysis is not None else set()

    @property
    def exhausted(self) -> bool:
        """Whether every valid setting was measured."""
        return not self._open

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
        self._study.add_trial(
            optuna.trial.create_trial(
                params={s.name: s.value for s in settings if s.name in self._distributions},
                distributions=self._distributions,
                value=log(median_ms) if median_ms is not None else FAILED,
            )
        )

    def _next(self) -> Settings | None:
        while self._preferred:
            preferred = self._preferred.pop(0)
            if preferred in self._open:
                return preferred
        if not self._open:
            return None
        trial = self._study.ask(self._distributions)
        self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        # Asked for once: a trial makes the mapping anew each time.
        suggested = trial.params
        return min(self._open, key=lambda settings: self._distance(settings, suggested))

    def _distance(self, settings: Settings, suggested: dict[str, int]) -> tuple[bool, int]:
        """How far settings are from the sampler's; what the critic advises against comes last."""
        differing = sum(item.value != suggested.get(item.name, item.value) for item in settings)
        return self._is_avoided(settings), differing

    def _is_avoided(self, settings: Settings) -> bool:
        return agreement({s.name: str(s.value) for s in settings}, self._avoided) > 0


def _preferred(valid: Iterable[Settings], analysis: Analysis | None) -> list[Settings]:
    """The settings that agree most with what the critic prefers, two at most."""
    prefer = analysis.prefer if analysis is not None else ()

    def liked(settings: Settings) -> int:
        return agreement({s.name: str(s.value) for s in settings}, prefer)

    return sorted((s for s in valid if liked(s)), key=liked, reverse=True)[:2]
