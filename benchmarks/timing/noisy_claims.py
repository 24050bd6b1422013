"""Whether a headline ever turns round when it is measured again, on machines that are made noisy.

    python benchmarks/timing/noisy_claims.py [--runs 50]
        [--out benchmarks/results/cpu/noisy_claims.json]

A run is a candidate and two baselines whose true times are drawn (a third of the candidates is no
faster than the best baseline), on a clock that is made up: heavy-tailed noise, drift, bursts of
other programs that slow one side and not the other, and a baseline that was drawn slow this time.
What takes the pairs, when it stops, and what may be claimed are the judge's own. Each run is
certified twice, with noise of its own. Counted are headlines ("faster") whose repetition has its
interval on the other side of 1, headlines of candidates that are not faster, and runs that settle
nothing. Not covered: clocks of real machines, which `aa.py` takes.
"""

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.timing.statistics import take_pairs
from kernelwright.tools.types import (
    Comparison,
    Conditions,
    Evaluation,
    ModeTiming,
    Verdict,
    Verification,
)


class Machine:
    """A clock whose noise is drawn: how heavy, how it drifts, how often others come and go."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.spread = self._random.choice((0.002, 0.02, 0.1, 0.35))
        self._burst = self._random.choice((0.0, 0.0, 0.02, 0.2))
        self._drift = self._random.uniform(-0.002, 0.002)
        # As many as fit into the time of a finalist; calls of a long module are few.
        self.rules = Rules(pairs_max=self._random.choice((10, 12, 20, 40, 200)))
        self._taken = 0

    def sampler(self, true_ms: float) -> Callable[[], float]:
        """One call's time, slower by what happens to be going on."""

        def sample() -> float:
            self._taken += 1
            noise = 1 + self.spread * (self._random.paretovariate(2.5) - 1)
            burst = 1 + self._random.random() if self._random.random() < self._burst else 1.0
            return true_ms * noise * burst * max(0.2, 1 + self._drift * self._taken)

        return sample


def compared(machine: Machine, baseline: str, base_ms: float, own_ms: float) -> Comparison:
    """One comparison as the judge takes it for a finalist, with as many pairs as the time has."""
    pairs = take_pairs(
        machine.sampler(base_ms),
        machine.sampler(own_ms),
        device="cpu",
        rules=machine.rules,
        seconds=60.0,
        noise=0.005,
    )
    conditions = Conditions(device="made up", l2_flushed=True, input_sets=1)
    return pairs.beside(baseline, conditions, "device", noise=0.005)


def certified(seed: int, times_ms: dict[str, float]) -> Evaluation:
    """A finalist beside both baselines, and beside the better one under the other loads."""
    machine = Machine(seed)
    found = [compared(machine, n, ms, times_ms["own"]) for n, ms in times_ms.items() if n != "own"]
    best = min((name for name in times_ms if name != "own"), key=times_ms.__getitem__)
    modes = tuple(
        ModeTiming(mode=mode, comparison=compared(machine, best, times_ms[best], times_ms["own"]))
        for mode in ("offline", "server")
    )
    right = Verification(verdict=Verdict.CORRECT, reason="made up")
    return Evaluation(candidate="c", verification=right, comparisons=tuple(found), modes=modes)


def main() -> None:
    """Draw runs, certify each twice, and count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows, before = [], Counter()
    for run in range(given.runs):
        chance = random.Random(run)
        gain = 1.0 if chance.random() < 1 / 3 else chance.uniform(1.0, 2.0)
        times_ms = {"own": 1.0, "eager": gain * chance.uniform(1.0, 3.0), "compile": gain}
        first, second = (certified(1000 * (1 + n) + run, times_ms) for n in range(2))
        one, two = first.claim, second.claim
        again = second.hardest
        assert one is not None
        assert two is not None
        assert again is not None
        hardest = first.hardest
        assert hardest is not None
        before[hardest.outcome] += 1
        rows.append(
            {
                "true_ratio": gain,
                "first": one.outcome,
                "second": two.outcome,
                "interval": [hardest.ci95_low, hardest.ci95_high],
                "turned": one.outcome == "faster" and again.ci95_high < 1.0,
                "false": one.outcome == "faster" and gain <= 1.0,
            }
        )
    told = {
        "runs": len(rows),
        "claims": Counter(row["first"] for row in rows),
        "by_the_interval_alone": before,
        "headlines_that_turned_round": sum(row["turned"] for row in rows),
        "headlines_of_what_is_not_faster": sum(row["false"] for row in rows),
        "rows": rows,
    }
    print(json.dumps({key: value for key, value in told.items() if key != "rows"}, indent=1))
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
