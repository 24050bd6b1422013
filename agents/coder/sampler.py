"""Optuna's sampler over the tunables of one implementation, as a tuner's source of suggestions.

It is what runs from before the surrogate were tuned by: they are resumed and replayed with it.
"""

from collections.abc import Sequence
from math import log

import optuna

from kernelwright.tools.candidates import KernelSource
from kernelwright.tools.types import Setting

Settings = tuple[Setting, ...]

# What a failed setting is told as: worse than anything that ran, on the scale of log times.
FAILED = log(1e6)

optuna.logging.set_verbosity(optuna.logging.WARNING)


class Sampler:
    """A study over the tunables; one question at a time, seeded."""

    def __init__(self, source: KernelSource, seed: int) -> None:
        self._distributions = {
            tunable.name: optuna.distributions.CategoricalDistribution(tunable.values)
            for tunable in source.tunables
            if len(tunable.values) > 1
        }
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=6, multivariate=True)
        self._study = optuna.create_study(sampler=sampler)

    def tell(self, settings: Settings, median_ms: float | None) -> None:
        """Take note of a measurement; None for settings that did not run."""
        self._study.add_trial(
            optuna.trial.create_trial(
                params={s.name: s.value for s in settings if s.name in self._distributions},
                distributions=self._distributions,
                value=log(median_ms) if median_ms is not None else FAILED,
            )
        )

    def choose(self, left: Sequence[Settings]) -> Settings:
        """The settings nearest to what the sampler suggests."""
        trial = self._study.ask(self._distributions)
        self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        # Asked for once: a trial makes the mapping anew each time.
        suggested = trial.params

        def differing(settings: Settings) -> int:
            return sum(item.value != suggested.get(item.name, item.value) for item in settings)

        return min(left, key=differing)
