"""Prints the results of `kernelwright bench` as a table in Markdown, a row a file.

    python benchmarks/suites/suite_table.py results.jsonl [more.jsonl] [--match 1-53 --match 88-100]

Of several result files a later one's row counts. Times are those of the pairs in which ratios were
taken, in turns in one process; "ours" is the time beside the baseline that was hardest to beat.
A file whose badge says that being right on it proves little has a star. Geometric means and the
rest of what sums up are `kernelwright bench summary`'s.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from kernelwright.graphs.suite.outcome import COMPILE, EAGER, Outcome, fits, natural, read

HEAD = (
    "| file | eager ms | compile ms | ours ms | over eager | over the better [95 %] | of floor "
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
    for path in sorted(map(Path, known), key=natural):
        if not asked.match or any(fits(path.stem, words) for words in asked.match):
            print(row(known[path.name]))


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
            "-" if best.floor_fraction is None else f"{best.floor_fraction:.0%}",
            _who(best.method, best.precision),
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
