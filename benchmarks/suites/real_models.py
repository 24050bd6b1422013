"""Eleven runs over ten real models, from the package that they live in, each to its own end.

Every model is a fresh `kernelwright optimize --build zoo.NAME:FUNCTION` in a copy of the project
`real_models/` (an `src/` layout with relative imports and a data file; half of the models are
transformers'), with an export where something is faster, which then checks itself in a process of
its own. Weights are random. One JSON line a run goes to `--out`: what the command printed, how it
ended, and `end`, which is one of

    exported        faster than every baseline, and the export's own verify.py agrees
    no_improvement  (or another of `NOTHING`): nothing was exported
    refused         one sentence says why
    cut_off         interrupted after `--run-limit-s`; what it had by then was not exported
    DEFECT          anything else: a traceback, a hang, an export that does not verify

With `--train` kernels are searched both ways within the same seconds and exported by force, and
verify.py compares gradients with float64 and times whole training steps (forward, backward, AdamW)
in turns with eager's and torch.compile's, then chooses how the export goes. `steps` has every ratio
with its interval, `looks` those of few pairs, `gradients` how many times the reference's own error
each way's was, and `end` is instead of the first, of the chosen way's step beside torch.compile's
by the interval

    faster          it takes less time
    level           neither, and the interval is narrow (a tenth of the ratio)
    slower          it takes longer; `chosen` says which way it is
    open            the interval is too wide to say, or torch.compile could not run the model
    compile         the chosen way is torch.compile of the reference itself
    by_reference    gradients are the reference's alone; `no_gradients` says why

A run that is in `--out` already is not repeated, and none begins that `--limit-s` has no room for,
so that the same call goes on where the last one was cut off. Several processes share the models,
each with a GPU, a `--part` and an `--out` of its own:

    CUDA_VISIBLE_DEVICES=1 python benchmarks/suites/real_models.py --target cuda --size real
        --regions on --search standard --seconds 240 --evidence timing --run-limit-s 400
        --limit-s 580 --dtype float32 bfloat16 --part 2/4 --out part2.jsonl
    python benchmarks/suites/real_models.py --target cpu --models gpt tagger --out FILE
    python benchmarks/suites/real_models.py --target cuda --size real --train --regions off
        --models gpt vit encoder --search standard --seconds 120 --evidence timing
        --run-limit-s 320 --verify-limit-s 230 --limit-s 580 --out steps.jsonl
    python benchmarks/suites/real_models.py --summary part1.jsonl part2.jsonl
"""

import argparse
import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from kernelwright.tools.archive import Archive, RunError
from kernelwright.tools.types import Verdict

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
NOTHING = (
    "no_improvement", "not_settled", "faster_than_eager", "nothing_correct", "timed_out",
)  # fmt: skip
GRACE_S = 20.0  # to keep the best after an interrupt
NOT_TOLD = ("out", "summary", "commit")
WORDS = 8000  # of what a command said, its plan and what came of each region among them
# What verify.py says of gradients and of a training step.
GRADIENT = re.compile(r"gradients '(\w+)', .* error (\S+) times the reference's( {2}WRONG)?")
SETTLED = 0.1  # of a ratio, as verify.py says it
STEP = re.compile(r"against (\S+), GRADIENTS '(\w+)' +(\S+)x, 95 % interval (\S+) to (\S+): (.*)")
LOOK = re.compile(r"a first look at GRADIENTS '(\w+)': (\S+)x eager's")
CHOSEN = re.compile(r"GRADIENTS = '(\w+)' now")
NO_GRADIENTS = re.compile(r"no gradients by kernels: (.*)")


def once(name: str, dtype: str, asked: argparse.Namespace, scratch: Path) -> dict:
    """One model's search, and its export's own check."""
    project, export, answer = scratch / "project", scratch / "faster", scratch / "answer.json"
    shutil.copytree(PROJECT, project)
    settings = {"size": asked.size, "dtype": dtype}
    (project / "src" / "zoo" / "settings.json").write_text(json.dumps(settings))
    row = {"model": name, "dtype": dtype, "size": asked.size, "target": asked.target}
    row |= {"search": asked.search, "seconds_given": asked.seconds, "regions_asked": asked.regions}
    row |= {
        "train": asked.train,
        "evidence": asked.evidence,
        "device": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
    }
    began = time.time()
    said = ended(searching(name, asked, scratch), project, asked.run_limit_s)
    row |= {"wall_s": round(time.time() - began, 1), **said}
    if answer.exists():
        row |= json.loads(answer.read_text())
    try:
        row["tried"] = tried(scratch / "runs")
    except Exception as error:  # of a run that was killed; the row itself took minutes
        row["tried"] = [{"unread": f"{type(error).__name__}: {error}"[:300]}]
    if said["exit"] == 0 and export.is_dir():
        checked = ended(checking(asked), export, asked.verify_limit_s)
        words = checked["printed"] or checked["words"]
        row["verify"] = {"exit": checked["exit"], "late": checked["late"], "words": words}
        row |= steps_of(words) if asked.train else {}
        row["wall_s"] = round(time.time() - began, 1)
    return row | {"end": end_of(row)}


def tried(home: Path) -> list[dict]:
    """Every judged candidate of every run, those of regions and of a step among them."""
    found = []
    for folder in sorted(home.glob("runs/*/")):
        try:
            archive = Archive.open(folder.name, home)
        except RunError:
            continue  # something else than a run
        ideas = {idea.id: idea for idea in archive.ideas()}
        for one in archive.standings():
            idea, judged = ideas.get(one.candidate.idea or ""), one.evaluation
            row = {"run": folder.name, "number": one.number, "round": one.round}
            row |= {"idea": idea.title if idea else "", "effort": one.effort}
            row |= {"predicted_ms": idea.predicted_ms if idea else None, "ms": judged.median_ms}
            told = judged.verification
            why = told.apart if judged.verdict is Verdict.CORRECT else told.reason[:300]
            found.append(row | {"verdict": judged.verdict.value, "why": why})
        archive.close()
    return found


def checking(asked: argparse.Namespace) -> list[str]:
    """The export's own check: of its results and times, or of its training steps."""
    command = [sys.executable, "verify.py", "--seconds", "3"]
    if asked.train:
        return [*command, "--steps", "--choose"]
    return command + ([] if asked.evidence == "full" else ["--no-compile"])


def steps_of(words: str) -> dict:
    """What verify.py said of gradients and training steps, by way and rival."""
    gradients: dict[str, float] = {}
    for choice, error, _ in GRADIENT.findall(words):
        gradients[choice] = max(float(error), gradients.get(choice, 0.0))
    wrong = sorted({choice for choice, _, said in GRADIENT.findall(words) if said})
    steps = [
        {"way": way, "against": rival, "ratio": float(ratio), "ci95": [float(low), float(high)]}
        for rival, way, ratio, low, high, _ in STEP.findall(words)
    ]
    looks = {way: float(ratio) for way, ratio in LOOK.findall(words)}
    chosen = CHOSEN.search(words)
    none = NO_GRADIENTS.search(words)
    found = {"gradients": gradients, "wrong": wrong, "steps": steps, "looks": looks}
    found |= {"no_gradients": none.group(1) if none else ""}
    return found | {"chosen": chosen.group(1) if chosen else ""}


def searching(name: str, asked: argparse.Namespace, scratch: Path) -> list[str]:
    """The command that a person would give."""
    command = [
        sys.executable, "-m", "kernelwright", "optimize", "--build", f"zoo.{MODELS[name]}",
        "--target", asked.target, "--search", asked.search, "--regions", asked.regions, "--fresh",
        "--evidence", asked.evidence, "--json", str(scratch / "answer.json"),
        "--export", str(scratch / "faster"), "--run-dir", str(scratch / "runs"),
    ]  # fmt: skip
    command += ["--train", "--force"] if asked.train else []
    return command + (["--seconds", str(asked.seconds)] if asked.seconds else [])


def ended(command: list[str], folder: Path, limit_s: float) -> dict:
    """How a command ended, and its last words on both streams.

    After its time it is interrupted as by Ctrl-C, and what does not end then is killed, with all
    that it started.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        started = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=err, start_new_session=True
        )
        late = not waited(started, limit_s)
        if late:
            started.send_signal(signal.SIGINT)
            hung = not waited(started, GRACE_S)
        if late and hung:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
        words = [stream.seek(0) or stream.read().strip()[-WORDS:] for stream in (err, out)]
    exit = None if late and hung else started.returncode
    return {"exit": exit, "late": late, "words": words[0], "printed": words[1]}


def waited(process: subprocess.Popen, limit_s: float) -> bool:
    """Whether a process came to its end in that time."""
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def end_of(row: dict) -> str:
    """Which of the honest ends a run came to, or that it came to none."""
    words = row["words"]
    if row["late"] and row["exit"] is not None and "verify" not in row:
        return "cut_off"
    if row["exit"] in (2, 3) and words and "Traceback" not in words:
        return "refused"
    if row["exit"] != 0 or "Traceback" in words:
        return "DEFECT"
    if "verify" in row and row["train"]:
        return end_of_steps(row)
    if "verify" in row:
        return "exported" if row["verify"]["exit"] == 0 else "DEFECT"
    return row["status"] if row.get("status") in NOTHING else "DEFECT"


def end_of_steps(row: dict) -> str:
    """How the chosen way's training step stands beside torch.compile's."""
    if row["verify"]["late"]:
        return "cut_off"
    if row["verify"]["exit"] != 0 or not (row["chosen"] or row["no_gradients"]):
        return "DEFECT"
    if row["no_gradients"]:
        return "by_reference"
    if row["chosen"] == "compile":
        return "compile"
    beside = [step for step in row["steps"] if step["against"] == "torch.compile"]
    of_chosen = [step for step in beside if step["way"] == row["chosen"]]
    return beside_compile(of_chosen[0]) if of_chosen else "open"  # torch.compile could not run it


def beside_compile(step: dict) -> str:
    """What an interval of torch.compile's time over a way's says."""
    low, high = step["ci95"]
    if low > 1:
        return "faster"
    if high < 1:
        return "slower"
    return "level" if high - low <= SETTLED * step["ratio"] else "open"


def done_before(out: Path | None) -> set[tuple[str, str]]:
    """Models and types that stand in the file already."""
    if out is None or not out.exists():
        return set()
    return {(row["model"], row["dtype"]) for row in rows_of([out])}


def rows_of(files: list[Path]) -> list[dict]:
    """The runs in these files."""
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return [line for line in lines if "model" in line]


def conditions(asked: argparse.Namespace) -> dict:
    """The first line of a call: where and with what it was made."""
    asking = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=9"]
    try:
        commit = subprocess.run(asking, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:  # a machine that was lent need not have git
        commit = ""
    return {
        "commit": asked.commit or commit,
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "asked": {key: value for key, value in vars(asked).items() if key not in NOT_TOLD},
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
        if row.get("train"):
            lines += step_lines(row)
            continue
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


def step_lines(row: dict) -> list[str]:
    """Every way's training step beside torch.compile's, the chosen one by name in `end`."""
    begin = f"| {row['model']} | {row['dtype']} |"
    lines = [
        f"{begin} {row['end']}: {step['way']}{' (chosen)' * (step['way'] == row['chosen'])} | "
        f"{step['ratio']:.2f} of {step['against']}'s step | "
        f"{step['ci95'][0]:.2f} to {step['ci95'][1]:.2f} | {row['wall_s']:.0f} |"
        for step in row.get("steps", [])
    ]
    return lines or [f"{begin} {row['end']} | - | - | {row['wall_s']:.0f} |"]


def parsed() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=[*MODELS], default=[*MODELS], metavar="NAME")
    parser.add_argument("--dtype", nargs="+", default=["float32"])
    parser.add_argument("--part", default="1/1", help="K/N: every N-th run, from the K-th on")
    parser.add_argument("--target", default="auto")
    parser.add_argument("--size", choices=["small", "real"], default="small")
    parser.add_argument("--search", default="quick")
    parser.add_argument("--seconds", type=float, help="of a search, all but reading held")
    parser.add_argument("--regions", default="auto", choices=["auto", "on", "off"])
    parser.add_argument("--evidence", default="full", choices=["full", "timing", "autotune"])
    parser.add_argument("--train", action="store_true", help="training steps, kernels both ways")
    parser.add_argument("--run-limit-s", type=float, default=900.0, help="then it is interrupted")
    parser.add_argument("--verify-limit-s", type=float, default=120.0, help="of an export's check")
    parser.add_argument("--limit-s", type=float, default=math.inf, help="of the whole call")
    parser.add_argument("--commit", default="", help="where git cannot tell")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--summary", type=Path, nargs="+")
    return parser.parse_args()


def chosen(asked: argparse.Namespace) -> list[tuple[str, str]]:
    """The runs of this process, in order: models and types."""
    at, of = map(int, asked.part.split("/"))
    known = done_before(asked.out)
    runs = [(name, dtype) for dtype in asked.dtype for name in asked.models]
    return [run for run in runs[at - 1 :: of] if run not in known]


def main() -> None:
    """Every model and type in turn, as far as the time goes."""
    asked = parsed()
    if asked.summary is not None:
        sys.stdout.write(table(rows_of(asked.summary)) + "\n")
        return
    ends_s = time.time() + asked.limit_s
    tell(conditions(asked), asked.out)
    for name, dtype in chosen(asked):
        checks_s = asked.verify_limit_s if asked.train else 0.0
        if time.time() + asked.run_limit_s + GRACE_S + checks_s > ends_s:
            sys.stdout.write("the time is over; the same call goes on\n")
            return
        with tempfile.TemporaryDirectory(
            prefix="kernelwright-model-", ignore_cleanup_errors=True
        ) as scratch:
            tell(once(name, dtype, asked, Path(scratch)), asked.out)


if __name__ == "__main__":
    main()
