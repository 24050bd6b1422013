"""Tells recorded searches as a table: where each round stood against eager, compile and the floor.

Reads run folders (of any executor and any mind) and computes nothing anew: every figure is one that
the run recorded. Round by round it gives the best candidate's time over the run's baselines; the
last line is the certified comparison, pair by pair.

    python benchmarks/models/model_runs.py RUN... --out benchmarks/results/h200/model_runs.json
    python benchmarks/models/model_runs.py --summary benchmarks/results/h200/model_runs.json
"""

import argparse
import json
from pathlib import Path

from kernelwright.graphs.run_view.events import EVENT, BestImproved, ModelCalled, RoundFinished
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Verdict

# Stanford's published ratios, reference over generated, fp32 tasks on an L40S:
# https://crfm.stanford.edu/2025/05/28/fast-kernels.html (28 May 2025). Their matrix product and
# convolutions compute in half precision inside, within the tolerance of 1e-2 that they used.
STANFORD = {
    "softmax": "1.12x eager",
    "layer_norm": "4.84x eager",
    "conv_relu_pool": "2.90x eager, 1.89x compile",
    "matmul": "1.01x eager",
}


def told(folder: Path) -> dict:
    """One run as a record."""
    archive = Archive.open(folder)
    try:
        record = archive.record()
        events = [EVENT.validate_json(item.payload) for item in archive.events()]
        origin = {item.candidate.id: item.candidate.origin for item in archive.candidates()}
        calls = [event for event in events if isinstance(event, ModelCalled)]
        summary = record.summary
        return {
            "run": record.id,
            "task": Path(record.task.path).stem,
            "hardware": record.hardware.name,
            "profile": record.profile.name,
            "rounds": rounds(archive, events),
            "calls": len(calls),
            "failed_calls": sum(bool(event.failure) for event in calls),
            "candidates_by_model": sum(of == "model" for of in origin.values()),
            "best_by": origin.get(summary.best.candidate) if summary and summary.best else None,
            "summary": json.loads(summary.model_dump_json()) if summary else None,
        }
    finally:
        archive.close()


def rounds(archive: Archive, events: list) -> list[dict]:
    """What each round tried and where it ended."""
    found = []
    best_ms: float | None = None
    for event in events:
        if isinstance(event, BestImproved):
            best_ms = event.median_ms
        if isinstance(event, RoundFinished):
            of = [item for item in archive.standings() if item.round == event.round]
            found.append({
                "round": event.round,
                "ideas": [idea.title for idea in archive.ideas(event.round)],
                "candidates": len(of),
                "correct": sum(item.evaluation.verdict is Verdict.CORRECT for item in of),
                "best_ms": best_ms,
                "why_stop": event.why_stop,
            })  # fmt: skip
    return found


def table(records: list[dict]) -> str:
    """Markdown: one line a run; trajectories are eager's own time over the best of each round."""
    lines = [
        "| task | eager ms | compile ms | floor ms | rounds (best ms) | best ms | vs eager "
        "| vs best baseline (95 %) | of floor | judged, correct | model calls | Stanford, L40S |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join(lines + [line(record) for record in records])


def line(record: dict) -> str:
    """One run."""
    summary = record["summary"] or {}
    best, base = summary.get("best") or {}, summary.get("baselines", {})
    low, high = best.get("ci95", (None, None))
    judged = sum(item["candidates"] for item in record["rounds"])
    correct = sum(item["correct"] for item in record["rounds"])
    cells = [
        record["task"],
        number(base.get("eager", {}).get("median_ms")),
        number(base.get("compile", {}).get("median_ms")),
        number(summary.get("task", {}).get("floor_ms")),
        ", ".join(number(item["best_ms"]) for item in record["rounds"]),
        number(best.get("median_ms")),
        number(best.get("speedup_vs_eager"), "x"),
        f"{number(best.get('speedup_vs_best_baseline'), 'x')} ({number(low)} to {number(high)})",
        f"{best['floor_fraction']:.0%}" if best.get("floor_fraction") else "-",
        f"{judged}, {correct}",
        str(record["calls"]),
        STANFORD.get(record["task"], "-"),
    ]
    return f"| {' | '.join(cells)} |"


def number(value: float | None, unit: str = "") -> str:
    """Three significant digits."""
    return "-" if value is None else f"{value:.3g}{unit}"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--summary", type=Path)
    arguments = parser.parse_args()
    if arguments.summary:
        print(table(json.loads(arguments.summary.read_text())))
        return
    records = [told(folder) for folder in arguments.runs]
    if arguments.out:
        arguments.out.write_text(json.dumps(records, indent=1) + "\n")
    print(table(records))


if __name__ == "__main__":
    main()
