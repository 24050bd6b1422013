"""Prints the results of `kernelwright bench` as a table in Markdown, a row a file.

    python benchmarks/suites/suite_table.py results.jsonl [more.jsonl] [--match 1-53 --match 88-100]

Of several result files a later one's row counts. Times are those of the pairs in which ratios were
taken, in turns in one process; "ours" is the time beside the baseline that was hardest to beat.
"Of roof" is the share of the least time by bytes, or by operations in the task's own precision (of
the floor in results from before there were roofs). A file whose badge says that being right on it
proves little has a star. Under the table stand the means of its rows; the rest of what sums up a
suite is `kernelwright bench summary`'s.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from kernelwright.graphs.suite.outcome import COMPILE, EAGER, Outcome, fits, natural, read

HEAD = (
    "| file | eager ms | compile ms | ours ms | over eager | over the better [95 %] | of roof "
    "| who did the work |\n|---|---|---|---|---|---|---|---|"
)
LONGEST_NAME = 44


def main() -> None:
    """Print the table."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("results", nargs="+", type=Path)
    words.add_argument("--match", action="append", default=[], help="as of `kernelwright bench`")
    asked = words.parse_args()
    known = {one.file: one for path in asked.results for one in read(path)}
    print(HEAD)
    paths = sorted(map(Path, known), key=natural)
    chosen = [
        known[path.name]
        for path in paths
        if not asked.match or any(fits(path.stem, words) for words in asked.match)
    ]
    print("\n".join(map(row, chosen)))
    print("\n" + means(chosen))


def means(rows: Sequence[Outcome]) -> str:
    """What the rows come to, over eager and over the hardest baseline of each."""
    hardest = [one.hardest for one in rows if one.hardest is not None]
    eager = [ratio for one in rows if (ratio := one.over(EAGER)) is not None]
    if not hardest:
        return f"{len(rows)} files, none with a candidate"
    ratios = [against.ratio for against in hardest]
    above = sum(against.ci95[0] > 1 for against in hardest)
    return (
        f"{len(rows)} files, {len(ratios)} with a candidate; over the better: geometric mean "
        f"{geometric_mean(ratios):.2f}, median {median(ratios):.2f}, {min(ratios):.3f} to "
        f"{max(ratios):.1f}, interval above 1 in {above}; over eager: {geometric_mean(eager):.2f}, "
        f"median {median(eager):.2f}; {sum(one.seconds for one in rows) / 60:.1f} minutes"
    )


def row(one: Outcome) -> str:
    """A file's line."""
    name = Path(one.file).stem.replace("_", " ").strip()
    name = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"
    name += "*" if one.doubt else ""
    hardest, best = one.hardest, one.summary.best if one.summary else None
    if hardest is None or best is None:
        cells = [_alone(one, EAGER), _alone(one, COMPILE), *["-"] * 4, _end(one)]
    else:
        low, high = hardest.ci95
        cells = [
            _beside(one, EAGER),
            _beside(one, COMPILE),
            f"{hardest.candidate_ms:.3g}",
            _ratio(one.over(EAGER)),
            f"{hardest.ratio:.2f} [{low:.2f}, {high:.2f}]",
            "-" if (share := best.limit_fraction) is None else f"{share:.0%}",
            _who(best.method, best.precision) + "".join(f", no {name}" for name in one.absent),
        ]
    return f"| {name} | {' | '.join(cells)} |"


def _beside(one: Outcome, baseline: str) -> str:
    found = next((item for item in one.against if item.baseline == baseline), None)
    return "-" if found is None else f"{found.baseline_ms:.3g}"


def _alone(one: Outcome, baseline: str) -> str:
    known = dict(one.baselines_ms)
    if one.summary is not None:
        known |= {name: found.median_ms for name, found in one.summary.baselines.items()}
    found = known.get(baseline)
    return "-" if found is None else f"{found:.3g}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _who(method: str, precision: str) -> str:
    """Whose kernels, and a lower precision where there is one."""
    short = method.replace("own kernels with library operators", "own and library")
    short = short.replace("own kernels", "own").replace("library rearrangement", "library")
    return short if precision in ("", "fp32", "int") else f"{short}, {precision}"


def _end(one: Outcome) -> str:
    """Why there is no time of ours."""
    if one.ended != "searched":
        return one.ended.replace("_", " ")
    return "nothing correct" if one.rejected else "left to the library"


if __name__ == "__main__":
    main()
