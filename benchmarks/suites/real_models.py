"""Eleven runs over ten real models, from the package that they live in, each to its own end.

Every model is a fresh `kernelwright optimize --build zoo.NAME:FUNCTION` in a copy of the project
`real_models/` (an `src/` layout with relative imports and a data file; half of the models are
transformers'), with an export where something is faster, which then checks itself in a process of
its own. Weights are random. One JSON line a run goes to `--out`: what the command printed, how it
ended, and `end`, which is one of

    exported        faster than every baseline, and the export's own verify.py agrees
    no_improvement  (or not_settled, faster_than_eager, nothing_correct): nothing was exported
    refused         one sentence says why
    DEFECT          anything else: a traceback, a hang, an export that does not verify

A run that is in `--out` already is not repeated, and none begins that `--limit-s` has no room for,
so that the same call goes on where the last one was cut off:

    python benchmarks/suites/real_models.py --target cuda --size real --dtype float32 bfloat16
        --seconds 240 --limit-s 580 --out benchmarks/results/h200/real_models.jsonl
    python benchmarks/suites/real_models.py --target cpu --search quick --out FILE
    python benchmarks/suites/real_models.py --summary FILE
"""

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = Path(__file__).with_suffix("")
MODELS = {
    "gpt": "gpt:make_model",
    "vit": "vit:make_model",
    "convnext": "convnext:make_model",
    "resnet_train": "resnet_stage:trained",
    "resnet_eval": "resnet_stage:evaluated",
    "unet": "unet:make_model",
    "efficientnet": "efficientnet:make_model",
    "tagger": "tagger:make_model",
    "experts": "experts:make_model",
    "encoder": "encoder:make_model",
    "diffusion": "diffusion:make_model",
}
NOTHING = ("no_improvement", "not_settled", "faster_than_eager", "nothing_correct")
HANGS_S = 900.0  # beside its seconds of search


def once(name: str, dtype: str, asked: argparse.Namespace, scratch: Path) -> dict:
    """One model's search, and its export's own check."""
    project, export, answer = scratch / "project", scratch / "faster", scratch / "answer.json"
    shutil.copytree(PROJECT, project)
    settings = {"size": asked.size, "dtype": dtype}
    (project / "src" / "zoo" / "settings.json").write_text(json.dumps(settings))
    command = [
        sys.executable, "-m", "kernelwright", "optimize", "--build", f"zoo.{MODELS[name]}",
        "--target", asked.target, "--search", asked.search, "--regions", asked.regions, "--fresh",
        "--json", str(answer), "--export", str(export), "--run-dir", str(scratch / "runs"),
    ]  # fmt: skip
    command += ["--seconds", str(asked.seconds)] if asked.seconds else []
    row = {"model": name, "dtype": dtype, "size": asked.size, "target": asked.target}
    row |= {"search": asked.search, "seconds_given": asked.seconds, "regions_asked": asked.regions}
    began = time.time()
    said = ended(command, project, HANGS_S + (asked.seconds or 0))
    row |= {"wall_s": round(time.time() - began, 1), "exit": said["exit"], "words": said["words"]}
    if answer.exists():
        row |= json.loads(answer.read_text())
    if said["exit"] == 0 and export.is_dir():
        checked = ended([sys.executable, "verify.py", "--seconds", "5"], export, HANGS_S)
        row["verify"] = {"exit": checked["exit"], "words": checked["printed"] or checked["words"]}
    return row | {"end": end_of(row)}


def ended(command: list[str], folder: Path, limit_s: float) -> dict:
    """How a command ended, and its last words on both streams."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired as late:
        words = late.stderr.decode() if isinstance(late.stderr, bytes) else late.stderr or ""
        return {"exit": None, "words": f"no end in {limit_s:.0f} s: {words[-600:]}", "printed": ""}
    return {
        "exit": done.returncode,
        "words": done.stderr.strip()[-1500:],
        "printed": done.stdout.strip()[-1500:],
    }


def end_of(row: dict) -> str:
    """Which of the honest ends a run came to, or that it came to none."""
    words = row["words"]
    if row["exit"] in (2, 3) and words and "Traceback" not in words:
        return "refused"
    if row["exit"] != 0 or "Traceback" in words:
        return "DEFECT"
    if "verify" in row:
        return "exported" if row["verify"]["exit"] == 0 else "DEFECT"
    return row["status"] if row.get("status") in NOTHING else "DEFECT"


def done_before(out: Path | None) -> set[tuple[str, str]]:
    """Models and types that stand in the file already."""
    if out is None or not out.exists():
        return set()
    rows = map(json.loads, out.read_text().splitlines())
    return {(row["model"], row["dtype"]) for row in rows if "model" in row}


def conditions(asked: argparse.Namespace) -> dict:
    """The first line of a file: where and with what it was made."""
    asking = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=9"]
    commit = subprocess.run(asking, capture_output=True, text=True).stdout.strip()
    reading = "import torch, transformers as t; print(torch.__version__, t.__version__)"
    versions = subprocess.run([sys.executable, "-c", reading], capture_output=True, text=True)
    return {
        "commit": commit,
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "torch_and_transformers": versions.stdout.split(),
        "asked": {key: value for key, value in vars(asked).items() if key != "out"},
    }


def tell(line: dict, out: Path | None) -> None:
    """Keep a line and print it."""
    if out is not None:
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    shown = {key: line[key] for key in ("model", "dtype", "wall_s", "end", "words") if key in line}
    sys.stdout.write(json.dumps(shown or line) + "\n")
    sys.stdout.flush()


def table(rows: list[dict]) -> str:
    """Every run in a line, then what all of them came to."""
    lines = [
        "| model | type | end | x best baseline | 95 % | seconds |",
        "|---|---|---|---|---|---|",
    ]
    ratios: dict[str, list[float]] = {}
    for row in rows:
        best = row.get("best") or {}
        ratio, ci95 = best.get("speedup_vs_best_baseline"), best.get("ci95") or ("", "")
        shown = f"{ratio:.2f} | {ci95[0]:.2f} to {ci95[1]:.2f}" if ratio and ci95[0] else "- | -"
        lines.append(
            f"| {row['model']} | {row['dtype']} | {row['end']} | {shown} | {row['wall_s']:.0f} |"
        )
        if row["end"] == "exported":
            ratios.setdefault(row["dtype"], []).append(ratio)
    for dtype, found in ratios.items():
        mean = math.exp(sum(map(math.log, found)) / len(found))
        lines.append(f"\n{dtype}: {len(found)} exported, geometric mean {mean:.3f}x")
    return "\n".join(lines)


def main() -> None:
    """Every model and type in turn, as far as the time goes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}; all by default")
    parser.add_argument("--target", default="auto")
    parser.add_argument("--size", choices=["small", "real"], default="small")
    parser.add_argument("--dtype", nargs="+", default=["float32"])
    parser.add_argument("--search", default="quick")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--regions", default="auto")
    parser.add_argument("--limit-s", type=float, default=math.inf, help="of the whole call")
    parser.add_argument("--beside-s", type=float, default=240, help="of a run, beside its search")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--summary", type=Path)
    asked = parser.parse_args()
    if asked.summary is not None:
        rows = map(json.loads, asked.summary.read_text().splitlines())
        sys.stdout.write(table([row for row in rows if "model" in row]) + "\n")
        return
    ends_s, known = time.time() + asked.limit_s, done_before(asked.out)
    tell(conditions(asked), asked.out)
    for dtype in asked.dtype:
        for name in asked.models or MODELS:
            if (name, dtype) in known:
                continue
            if time.time() + asked.beside_s + (asked.seconds or 0) > ends_s:
                sys.stdout.write("the time is over; the same call goes on\n")
                return
            with tempfile.TemporaryDirectory(prefix="kernelwright-model-") as scratch:
                tell(once(name, dtype, asked, Path(scratch)), asked.out)


if __name__ == "__main__":
    main()
