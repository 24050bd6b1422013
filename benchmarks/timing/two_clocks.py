"""Holds the judge's two clocks against an independent script's, on calls of tens of microseconds.

    python benchmarks/timing/two_clocks.py --out benchmarks/results/h200/two_clocks.json

Each file of `benchmarks/tasks/clocks` is searched as a person would (`kernelwright optimize`), its
best candidate certified and exported, and the export timed by `independent_clock.py` in a process
of its own that imports nothing of ours: `triton.testing.do_bench` for device time, two events on an
idle device for single calls. The table says by what share the ratios over eager and torch.compile
differ. Not covered: what an export's own guards take (they are in the independent single call, and
not in the judge's), and CUDA-graph baselines, which the independent script does not make.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
TASKS = ROOT / "benchmarks" / "tasks" / "clocks"


def searched(file: Path, scratch: Path) -> dict:
    """The command's own summary, and the winner's certified comparisons."""
    from kernelwright.tools.archive import Archive

    answer, home = scratch / f"{file.stem}.json", scratch / "runs"
    command = [
        sys.executable, "-m", "kernelwright", "optimize", str(file), "--target", "cuda",
        "--search", "quick", "--json", str(answer), "--run-dir",
        str(home), "--export", str(scratch / file.stem), "--force",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    if not answer.exists():
        raise SystemExit(f"{file.stem}: {done.stderr[-600:]}")
    summary = json.loads(answer.read_text())
    folder = next(path for path in home.rglob(summary["run"]) if path.is_dir())
    archive = Archive.open(folder)
    try:
        evaluation = archive.evaluation(summary["best"]["candidate"])
        assert evaluation is not None
        comparisons = {
            item.baseline: item.model_dump(
                mode="json", exclude={"candidate_samples_ms", "baseline_samples_ms"}
            )
            for item in evaluation.comparisons
        }
    finally:
        archive.close()
    return {"summary": summary, "comparisons": comparisons, "claim": evaluation.claim.model_dump()}


def independent(export: Path, scratch: Path) -> dict:
    """The other script's figures, without this repository on Python's path."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [path for path in paths if path and Path(path).resolve() != ROOT]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(kept)}
    out = scratch / f"{export.name}.independent.json"
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "timing" / "independent_clock.py"),
        str(export),
    ]
    done = subprocess.run(
        [*command, "--out", str(out)],
        cwd=scratch, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    if not out.exists():
        return {"failure": done.stderr[-800:]}
    return json.loads(out.read_text())


def row(name: str, found: dict) -> str:
    """One file's ratios by both, and by what share they differ."""
    other, cells = found["independent"], []
    for baseline in ("eager", "compile"):
        ours = found["comparisons"].get(baseline)
        if ours is None or "ratios" not in other:
            cells.append("| - | - | - | - ")
            continue
        theirs, latency = other["ratios"][baseline], ours["latency"]
        alone = f"{latency['ratio']:.2f}" if latency else "-"
        cells.append(
            f"| {ours['ratio']:.3f} | {theirs['queued']:.3f} "
            f"({ours['ratio'] / theirs['queued'] - 1:+.1%}) | {alone} | {theirs['single']:.2f} "
        )
    return f"| {name} {''.join(cells)}| {found['claim']['outcome']} |"


def main() -> None:
    """Search, time again, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    found: dict[str, dict] = {}
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        for file in sorted(TASKS.glob("*.py")):
            if given.only and file.stem not in given.only:
                continue
            found[file.stem] = searched(file, scratch)
            found[file.stem]["independent"] = independent(scratch / file.stem, scratch)
            print(row(file.stem, found[file.stem]), flush=True)
            if given.out:
                given.out.parent.mkdir(parents=True, exist_ok=True)
                given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
