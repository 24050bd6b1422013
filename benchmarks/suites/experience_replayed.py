"""What ending a search by earlier searches' trails saves and costs, on recorded ones.

    python benchmarks/suites/experience_replayed.py
        [benchmarks/results/h200/surfaces_parts.jsonl.gz] [--known 20] [--budgets 24 36 48 64]

Every recorded search of the whole policy is followed to where trails of so many searches of other
loops, drawn by chance, would have ended it; it may end after every fourth candidate, as the tuner
asks for four at once. Told of each budget: the share of its evaluations that were spent (median and
quartiles), how far the result is above the one at the budget's end (geometric mean, the worst), and
how many are within 2 % of it. No device is needed, and no seconds are told: evaluations alone.
"""

import argparse
import gzip
import json
import random
from math import exp, inf, log
from pathlib import Path
from statistics import median, quantiles

from kernelwright.graphs.search.options.experience import suffices
from kernelwright.graphs.suite.surface_search import WHOLE, Trail
from kernelwright.tools.memory import Trail as Remembered

RESULTS = Path(__file__).resolve().parents[1] / "results" / "h200" / "surfaces_parts.jsonl.gz"
AT_ONCE, GAIN = 4, 1.02


def main() -> None:
    """Print a line a budget."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("trails", type=Path, nargs="?", default=RESULTS)
    words.add_argument("--known", type=int, default=20, help="searches that are remembered")
    words.add_argument("--budgets", type=int, nargs="+", default=[24, 36, 48, 64])
    words.add_argument("--draws", type=int, default=5, help="how often others are drawn")
    asked = words.parse_args()
    trails = recorded(asked.trails)
    print("| budget | spent (quartiles) | above its end (geometric mean; worst) | within 2 % |")
    print("|---|---|---|---|")
    for budget in asked.budgets:
        print(line(budget, followed(trails, budget, asked.known, asked.draws)))


def recorded(path: Path) -> list[Trail]:
    """The searches of the whole policy."""
    with gzip.open(path, "rt") as lines:
        found = [Trail.model_validate(read(text)) for text in lines]
    return [trail for trail in found if trail.policy == WHOLE]


def read(text: str) -> dict[str, object]:
    """A line, its infinite times as numbers again."""
    row = json.loads(text)
    for name in ("times_ms", "told_ms"):
        row[name] = [inf if value is None else float(value) for value in row[name]]
    return row


def followed(trails: list[Trail], budget: int, known: int, draws: int) -> list[tuple[float, float]]:
    """Of every search the share that it spent, and its result over the one of the budget."""
    found = []
    for number in range(draws):
        for trail in trails:
            others = [one for one in trails if one.loop != trail.loop]
            chosen = random.Random(f"{number}:{trail.loop}:{trail.seed}").sample(others, known)
            at = end([remembered(one, budget) for one in chosen], trail, budget)
            found.append((at / budget, trail.best_ms(at) / trail.best_ms(budget)))
    return found


def remembered(trail: Trail, budget: int) -> Remembered:
    """A search of that budget as the library holds it."""
    times = tuple(None if ms == inf else ms for ms in trail.told_ms[:budget])
    return Remembered(
        device="", depth="", structure=trail.loop, times_ms=times, seconds=1.0, whole=True
    )


def end(others: list[Remembered], trail: Trail, budget: int) -> int:
    """After how many evaluations the search ends."""
    told = [None if ms == inf else ms for ms in trail.told_ms[:budget]]
    for tried in range(AT_ONCE, budget, AT_ONCE):
        if suffices(others, told[:tried], GAIN):
            return tried
    return budget


def line(budget: int, found: list[tuple[float, float]]) -> str:
    """A row of the table."""
    shares, losses = zip(*found, strict=True)
    low, _, high = quantiles(shares, n=4)
    mean = exp(sum(map(log, losses)) / len(losses)) - 1.0
    near = sum(loss <= GAIN for loss in losses) / len(losses)
    spent = f"{median(shares):.0%} ({low:.0%} to {high:.0%})"
    return f"| {budget} | {spent} | {mean:.2%}; {max(losses) - 1.0:.1%} | {near:.0%} |"


if __name__ == "__main__":
    main()
