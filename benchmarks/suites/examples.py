"""Runs the main job over every example, as a person would, and prints one table.

Each example is a fresh `kernelwright optimize` process; its figures are those it reports itself,
plus the time from the command to the first verified candidate that beats every baseline.

    python benchmarks/suites/examples.py --target cpu --out benchmarks/results/cpu/examples.json
    python benchmarks/suites/examples.py --summary benchmarks/results/cpu/examples.json
    python benchmarks/suites/examples.py --target cuda --seconds 8 --beside ../before --out FILE

With `--beside` another checkout does each example in turns with this one, so that a change that
should change nothing can be seen to; the table then has both times and their ratio.

Not covered: repeated runs. Ratios come from interleaved timing inside each run; run the script
again to see how far they move from run to run.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 900.0


def optimize(
    example: Path, arguments: argparse.Namespace, scratch: Path, checkout: Path = ROOT
) -> dict:
    """One run of the command; the object it prints, with what a person would have waited."""
    scratch = scratch / ("this" if checkout == ROOT else "other")
    scratch.mkdir(exist_ok=True)
    answer = scratch / f"{example.stem}.json"
    # Before there was one installed name the command was a module of the checkout's.
    module = "kernelwright" if (checkout / "kernelwright").is_dir() else "ui.cli"
    command = [
        sys.executable, "-m", module, "optimize", str(example),
        "--target", arguments.target,
        "--search", arguments.search, "--seed", str(arguments.seed), "--json", str(answer),
        "--run-dir", str(scratch / "runs"), "--export", str(scratch / "exports" / example.stem),
    ]  # fmt: skip
    if arguments.seconds is not None:
        command += ["--seconds", str(arguments.seconds)]
    paths = [str(checkout), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    started = time.time()
    done = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    record: dict = {
        "example": example.stem,
        "exit": done.returncode,
        "wall_s": time.time() - started,
    }
    if not answer.exists():
        return record | {"status": "failed", "words": done.stderr.strip()[-400:]}
    record |= json.loads(answer.read_text())
    if checkout != ROOT:
        return record
    to_beat_ms = min(v["median_ms"] for v in record["baselines"].values() if v["median_ms"])
    record["first_faster_s"] = first_faster_s(record["run"], scratch / "runs", started, to_beat_ms)
    return record


def first_faster_s(run: str, home: Path, started: float, to_beat_ms: float) -> float | None:
    """Seconds from the command to the first verified candidate ahead of the best baseline.

    The best baseline of the whole run, although torch.compile's time may become known later.
    """
    from kernelwright.tools.archive import Archive

    folder = next((path for path in home.rglob(run) if path.is_dir()), None)
    if folder is None:
        return None
    archive = Archive.open(folder)
    try:
        for event in archive.events():
            payload = json.loads(event.payload)
            if event.kind == "best_improved" and payload["median_ms"] < to_beat_ms:
                return datetime.fromisoformat(payload["at"]).timestamp() - started
    finally:
        archive.close()
    return None


def row(record: dict) -> str:
    """One line of the table, in Markdown."""
    if record.get("best") is None:
        return f"| {record['example']} | - | - | - | - | - | {record.get('status')} |"
    best, baselines = record["best"], record["baselines"]
    shown = {name: value["median_ms"] for name, value in baselines.items()}
    low, high = best["ci95"]
    floor = best["floor_fraction"]
    return (
        f"| {record['example']} | {shown.get('eager') or float('nan'):.3f} "
        f"| {shown.get('compile') or float('nan'):.3f} | {best['median_ms']:.3f} "
        f"| {best['speedup_vs_eager'] or float('nan'):.2f} "
        f"| {best['speedup_vs_best_baseline']:.2f} [{low:.2f}, {high:.2f}] "
        f"| {f'{floor:.0%}' if floor else '-'} | {record['status']} |"
    )


def beside_row(record: dict) -> str:
    """Both checkouts' best times, and how they compare."""
    ours, others = record.get("best"), record["beside"]
    if ours is None or others is None:
        return f"| {record['example']} | no candidate |"
    share = ours["median_ms"] / others["median_ms"]
    return (
        f"| {record['example']} | {others['median_ms']:.4f} | {ours['median_ms']:.4f} "
        f"| {share:.3f} |"
    )


def table(records: list[dict]) -> str:
    """All lines, with the counts that the project's goals ask for."""
    head = (
        "| example | eager ms | compile ms | ours ms | over eager | over the better [95 %] "
        "| of floor | status |\n|---|---|---|---|---|---|---|---|"
    )
    bests = [record["best"] for record in records if record.get("best")]
    ahead = sum(best["ci95"][0] > 1.0 for best in bests)
    eager = sum((best["speedup_vs_eager"] or 0) > 1.5 for best in bests)
    foot = (
        f"\n{ahead} of {len(records)} ahead of the better of eager and compile (interval above 1); "
        f"{eager} of {len(records)} above 1.5x over eager."
    )
    return "\n".join([head, *map(row, records), foot])


def main() -> int:
    """Run, write after every example, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="auto")
    parser.add_argument("--search", default="quick")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--beside", type=Path, default=None, help="another checkout")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--summary", type=Path, default=None)
    arguments = parser.parse_args()
    if arguments.summary:
        print(table(json.loads(arguments.summary.read_text())["records"]))
        return 0
    examples = sorted((ROOT / "examples").glob("*.py"))
    if arguments.only:
        examples = [path for path in examples if path.stem in arguments.only]
    records: list[dict] = []
    with tempfile.TemporaryDirectory() as scratch:
        for example in examples:
            record = optimize(example, arguments, Path(scratch))
            if arguments.beside:
                other = optimize(example, arguments, Path(scratch), arguments.beside.resolve())
                record["beside"] = other.get("best")
                print(beside_row(record), flush=True)
            records.append(record)
            print(row(record), flush=True)
            if arguments.out:
                write(arguments, records)
    print(table(records))
    return 0


def write(arguments: argparse.Namespace, records: list[dict]) -> None:
    """Everything so far, with the conditions."""
    conditions = {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "search": arguments.search,
        "seed": arguments.seed,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps({"conditions": conditions, "records": records}, indent=1))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
