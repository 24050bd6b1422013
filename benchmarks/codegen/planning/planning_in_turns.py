"""What two checkouts take to plan large models, in turns: CPU seconds before a first candidate.

    python benchmarks/codegen/planning/planning_in_turns.py OLD NEW PROJECT
        zoo.mobilenet:make_model,... [--hardware h200] [--turns 3] [--output planning.jsonl]

OLD and NEW are checkouts, PROJECT a project that builds the models, in the size wanted
(`zoo/settings.json` of a copy of `benchmarks/suites/real_models/src`). Each turn is a process of
either checkout's `large_model_seconds.py`, one after the other; what counts is the processor time
of that process, so that other work on the machine moves it little. It needs no GPU, and runs the
project's code: use it on code that is trusted.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

STEPS = ("trace", "forms", "options", "plan", "write")
_HEAD = ("model", *STEPS, "without the trace", "of before")


def seconds(checkout: Path, asked: argparse.Namespace, builds: str) -> dict[str, float]:
    """CPU seconds of every step until the first candidate is written, in a process of its own."""
    # An older checkout has it one folder higher.
    script = next((checkout / "benchmarks" / "codegen").rglob("large_model_seconds.py"))
    command = [sys.executable, str(script), str(asked.project.absolute()), builds]
    done = subprocess.run(
        [*command, "--hardware", asked.hardware, "--ideas", "1"],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{builds} at {checkout}: {done.stderr.strip()[-400:]}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["step"]: row["own_s"] for row in rows if row["step"] in STEPS}


def measured(asked: argparse.Namespace) -> Iterator[dict[str, object]]:
    """A row for every turn of every model."""
    checkouts = {"old": asked.old.absolute(), "new": asked.new.absolute()}
    for builds in asked.builds.split(","):
        for turn in range(asked.turns):
            for name, checkout in checkouts.items():
                yield {
                    "model": builds,
                    "turn": turn,
                    "checkout": name,
                    "own_s": seconds(checkout, asked, builds),
                }


def table(rows: list[dict]) -> Iterator[str]:
    """The medians of each model's turns."""
    yield f"| {' | '.join(_HEAD)} |"
    yield "|---" * len(_HEAD) + "|"
    for model in dict.fromkeys(row["model"] for row in rows):
        before = 0.0
        for name in ("old", "new"):
            ours = [row for row in rows if row["model"] == model and row["checkout"] == name]
            mine = [row["own_s"] for row in ours]
            each = [median(row[step] for row in mine) for step in STEPS]
            total = median(sum(row[step] for step in STEPS[1:]) for row in mine)
            share = f"{total / before:.2f}" if before else "-"
            words = " | ".join(f"{value:.2f}" for value in (*each, total))
            yield f"| {model}, {name} | {words} | {share} |"
            before = total


def main() -> None:
    """Measure, keep every turn, and print the table."""
    words = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    words.add_argument("old", type=Path)
    words.add_argument("new", type=Path)
    words.add_argument("project", type=Path)
    words.add_argument("builds", help="package.module:function, with commas between")
    words.add_argument("--hardware", default="h200")
    words.add_argument("--turns", type=int, default=3)
    words.add_argument("--output", type=Path, default=Path("planning.jsonl"))
    asked = words.parse_args()
    rows = []
    with asked.output.open("w", encoding="utf-8") as kept:
        for row in measured(asked):
            rows.append(row)
            kept.write(json.dumps(row) + "\n")
            kept.flush()
    sys.stdout.write("\n".join(table(rows)) + "\n")


if __name__ == "__main__":
    main()
