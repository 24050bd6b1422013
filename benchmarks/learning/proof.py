"""The small proof of `kernelwright learn` on one GPU that is lent for minutes at a time.

    python benchmarks/learning/proof.py split MODEL.gguf     # here: build/learn/parts, 38 MiB each
    python benchmarks/learning/proof.py next [--minutes 9]   # there, again and again
    python benchmarks/learning/proof.py next --stage data    # or one stage at a time
    python benchmarks/learning/proof.py bring                # what is there so far into $OUT

The stages: `data` (the playbook writes and verifies its examples), `unpack` (the model's parts are
joined), `before` (the untrained model on held-out families), `sft`, `after-sft`, `rl`, `after-rl`.
`next` does what can be done in its minutes; without a model's part it goes as far as `data`, so a
call can bring a part and write meanwhile. Every stage goes on where a call was cut off, ends with a
line of its figures, and appends what its command says to build/learn/log.txt. Stages inherit the
environment, CUDA_VISIBLE_DEVICES too, and a `setsid` before the command takes them along. What is
worth keeping (reports, verdicts, steps, curves, adapters in bfloat16) is put into $OUT as one
archive in pieces of 15 MiB. Defaults are made for 22 minutes of an H200. Run on a CPU with a tiny
model, on an H200 as far as benchmarks/results/h200/learning.md says.
"""

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from figures import figures

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "learn"  # which git ignores
PARTS, LOG = HOME / "parts", HOME / "log.txt"
MODEL, DATA = HOME / "model", HOME / "data"
PART_BYTES, PIECE_BYTES, PIECES = 38 << 20, 15 << 20, 7
LEFT_FOR_BRINGING_S = 20
EVALUATIONS = {"before": ("", ""), "after-sft": ("sft", "before"), "after-rl": ("rl", "after-sft")}


@dataclass(frozen=True)
class Stage:
    """A command of `kernelwright learn`, and the file that is there once it is done.

    `asks` says whether it needs the model's folder. Where the command writes a folder whose files
    do not tell when it is whole, it writes into `scratch`, which becomes the folder of `done`.
    """

    name: str
    done: Path
    words: Callable[[float], list[str]]
    least_s: float = 30.0
    asks: bool = True
    scratch: Path | None = None


def stages(options: argparse.Namespace) -> list[Stage]:
    """All of them, in order."""
    trained = [*training("sft", options), *training("rl", options)]
    asked = [evaluation(name, options) for name in EVALUATIONS]
    data = Stage("data", DATA / "summary.json", lambda left: dataset(options, left), 90.0, False)
    begun = HOME / "model.part"
    unpack = Stage(
        "unpack", MODEL / "config.json", lambda left: unpacking(begun), 60.0, False, begun
    )
    return [data, unpack, asked[0], trained[0], asked[1], trained[1], asked[2]]


def dataset(options: argparse.Namespace, left_s: float) -> list[str]:
    """The command that writes examples, for no longer than there is time."""
    words = ["dataset", "--out", str(DATA), "--run-dir", str(HOME / "home"), "--no-breaks"]
    words += ["--write", str(options.write), "--held-out", str(options.held_out)]
    words += ["--answers", str(options.answers)]
    words += ["--seconds", str(int(max(30, min(options.writing_s, left_s - 60))))]
    words += ["--small"] if options.small else []
    return [*words, "--target", options.target]


def unpacking(folder: Path) -> list[str]:
    """The command that unpacks the model into that folder, whose parts are joined now."""
    return ["unpack", str(joined()), "--out", str(folder)]


def evaluation(name: str, options: argparse.Namespace) -> Stage:
    """An evaluation on the held-out tasks."""
    adapter, against = EVALUATIONS[name]
    words = ["evaluate", "--data", str(DATA), "--model", str(MODEL), "--out", str(HOME / name)]
    words += ["--samples", str(options.samples), "--batch", str(options.batch), "--eager-only"]
    words += ["--tokens", str(options.tokens), "--target", options.target]
    words += ["--adapter", str(HOME / adapter / "adapter")] if adapter else []
    words += ["--against", str(HOME / against)] if against else []
    return Stage(name, HOME / name / "report.json", lambda left: words)


def training(name: str, options: argparse.Namespace) -> list[Stage]:
    """A training, whose adapter is there when it is done."""
    words = [name, "--data", str(DATA), "--model", str(MODEL), "--out", str(HOME / name)]
    if name == "sft":
        words += ["--epochs", str(options.epochs), "--batch", "16"]
    else:
        words += ["--adapter", str(HOME / "sft" / "adapter"), "--target", options.target]
        words += ["--steps", str(options.steps), "--group", str(options.group)]
        words += ["--tokens", str(options.tokens), "--rate", "1e-4", "--contrast", "0.25"]
        words += ["--write", "200"]  # others than those that sft learnt by heart
    done = HOME / name / "adapter" / "adapter_config.json"
    return [Stage(name, done, lambda left: words)]


def split(file: Path, folder: Path) -> None:
    """Cut a file into parts that can be carried, with a sum of each."""
    shutil.rmtree(folder, ignore_errors=True)
    sums: list[str] = []
    with file.open("rb") as source:
        while block := source.read(PART_BYTES):
            name = f"part-{len(sums):02d}"
            # A folder each, so that each can be named as what is carried.
            (folder / name).mkdir(parents=True)
            (folder / name / "bytes").write_bytes(block)
            sums.append(f"{hashlib.sha256(block).hexdigest()} {name}\n")
    (folder / "sums.txt").write_text("".join(sums))
    print(f"{len(sums)} parts in {folder}; carry sums.txt with each of them")


def missing() -> list[str]:
    """The parts that are not here, or not whole; everything where the sums are not."""
    sums = PARTS / "sums.txt"
    if (MODEL / "config.json").exists():
        return []
    if not sums.exists():
        return ["sums.txt"]
    found = []
    for line in sums.read_text().splitlines():
        wanted, name = line.split()
        path = PARTS / name / "bytes"
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != wanted:
            found.append(name)
    return found


def joined() -> Path:
    """The parts as one file again."""
    path = HOME / "model.gguf"
    with path.open("wb") as out:
        for line in (PARTS / "sums.txt").read_text().splitlines():
            out.write((PARTS / line.split()[1] / "bytes").read_bytes())
    return path


def say(words: str) -> None:
    """A line for whoever called, and for whoever reads the log."""
    print(words, flush=True)
    HOME.mkdir(parents=True, exist_ok=True)
    with LOG.open("a") as log:
        log.write(words + "\n")


def learn(words: list[str], left_s: float) -> bool:
    """Run a command of `kernelwright learn` for at most so long; whether it came to its end."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    told = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "COLUMNS": "160"}
    with LOG.open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "kernelwright", "learn", *words],
            env={**os.environ, **told}, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        status = process.wait(timeout=left_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # so that it ends its workers
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return False
    if status:
        last = "\n".join(LOG.read_text(errors="replace").splitlines()[-20:])
        raise SystemExit(f"learn {words[0]} ended with {status}:\n{last}")
    return True


def advance(options: argparse.Namespace) -> None:
    """Go through the stages for as long as there are minutes."""
    end = time.monotonic() + 60 * options.minutes - LEFT_FOR_BRINGING_S
    known = stages(options)
    wanted = [one for one in known if options.stage in (None, one.name)]
    if not wanted:
        raise SystemExit(f"there is no stage {options.stage}: {', '.join(s.name for s in known)}")
    try:
        for stage in wanted:
            if not gone_through(stage, end):
                break
        else:
            say("all stages are done" if options.stage is None else f"{options.stage} is done")
    finally:
        bring()


def gone_through(stage: Stage, end: float) -> bool:
    """Do a stage, or find it done; whether the next one can be."""
    left = end - time.monotonic()
    if stage.done.exists():
        say(f"{stage.name}: done before; {figures(HOME, stage.name)}")
        return True
    if (stage.asks or stage.name == "unpack") and (lacking := missing()):
        say(f"{stage.name} waits for: {', '.join(lacking)}")
        return False
    if stage.asks and not (MODEL / "config.json").exists():
        say(f"{stage.name} waits for unpack")
        return False
    if left < stage.least_s:
        say(f"no time is left for {stage.name}; call again")
        return False
    begin = time.monotonic()
    say(f"{stage.name} begins")
    if stage.scratch is not None:
        shutil.rmtree(stage.scratch, ignore_errors=True)  # of a call that was cut off
    whole = learn(stage.words(left), left)
    if whole and stage.scratch is not None:
        replaced(stage.scratch, stage.done.parent)
    passed_s = time.monotonic() - begin
    say(f"{stage.name}: {passed_s:.0f} s{'' if whole else ', cut off'}; "
        f"{figures(HOME, stage.name)}")  # fmt: skip
    return whole


def replaced(scratch: Path, folder: Path) -> None:
    """Let a folder that is whole stand where an older one may be."""
    shutil.rmtree(folder, ignore_errors=True)
    scratch.rename(folder)


KEPT = ("report.json", "gain.json", "results.jsonl", "samples.jsonl", "verdicts.jsonl",
        "steps.jsonl", "curves.svg", "settings.json", "summary.json", "attempts.jsonl",
        "held_out.jsonl", "log.txt")  # fmt: skip


def bring() -> None:
    """Put what is worth keeping into $OUT, in pieces."""
    out = os.environ.get("OUT")
    if not out:
        return
    for name in ("sft", "rl"):
        halved(HOME / name / "adapter", HOME / f"{name}-half")
    archive = HOME / "proof.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(HOME.rglob("*")):
            inside = path.relative_to(HOME)
            if path.name in KEPT or inside.parts[0].endswith("-half"):
                tar.add(path, inside, recursive=False)
    data = archive.read_bytes()
    Path(out).mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, len(data), PIECE_BYTES)):
        if number < PIECES:
            Path(out, f"proof-{number}").write_bytes(data[first : first + PIECE_BYTES])
    print(f"{len(data)} bytes in {out}; together: cat proof-* | tar xz")


def halved(adapter: Path, folder: Path) -> None:
    """A finished adapter in bfloat16; the model that it is for need not be loaded."""
    brought = folder / "adapter_model.safetensors"
    if not (adapter / "adapter_config.json").exists() or brought.exists():
        return
    import torch
    from safetensors.torch import load_file, save_file

    scratch = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    weights = load_file(adapter / "adapter_model.safetensors")
    small = {name: weight.to(torch.bfloat16) for name, weight in weights.items()}
    save_file(small, scratch / "adapter_model.safetensors", {"format": "pt"})
    shutil.copy(adapter / "adapter_config.json", scratch)
    replaced(scratch, folder)


def main() -> None:
    """Read the command line."""
    words = argparse.ArgumentParser(description="The small proof of learning, minutes at a time.")
    kinds = words.add_subparsers(dest="what", required=True)
    cut = kinds.add_parser("split")
    cut.add_argument("file", type=Path)
    cut.add_argument("--out", type=Path, default=PARTS)
    kinds.add_parser("bring")
    run = kinds.add_parser("next")
    run.add_argument("--stage", help="This one alone.")
    run.add_argument("--minutes", type=float, default=9.0)
    run.add_argument("--write", type=int, default=1500, help="Modules, if there is time.")
    run.add_argument("--writing-s", type=float, default=200.0)
    run.add_argument("--answers", type=int, default=3, help="To each of these modules.")
    run.add_argument("--held-out", type=int, default=60)
    run.add_argument("--samples", type=int, default=8, help="Answers to a held-out task.")
    run.add_argument("--batch", type=int, default=240, help="Sequences sampled together.")
    run.add_argument("--tokens", type=int, default=640, help="The playbook's longest have 610.")
    run.add_argument("--epochs", type=float, default=3.0)
    run.add_argument("--steps", type=int, default=9)
    run.add_argument("--group", type=int, default=16)
    run.add_argument("--target", default="cuda")
    run.add_argument("--small", action="store_true", help="Modules of sizes for a test.")
    options = words.parse_args()
    if options.what == "split":
        split(options.file, options.out)
    elif options.what == "bring":
        bring()
    else:
        advance(options)


if __name__ == "__main__":
    main()
