"""The small proof of `kernelwright learn` on one GPU that is lent for minutes at a time.

    python benchmarks/learning/proof.py split MODEL.gguf     # here: build/learn/parts, 48 MiB each
    python benchmarks/learning/proof.py next [--minutes 9]   # there, again and again

`next` does what can be done in its minutes and says what is missing. While parts are missing it
only counts them, so each call brings one part. Then: the model is joined and unpacked, the playbook
writes and verifies its examples, the untrained model is evaluated on held-out families, fine-tuned,
evaluated, reinforced, evaluated. Every stage goes on where a call was cut off. What is worth
keeping (reports, steps, curves, adapters in bfloat16) is put into $OUT as one archive in pieces of
15 MiB. Run once on a CPU with a tiny model; not yet on a GPU.
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

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "learn"  # which git ignores
PARTS, SUMS = HOME / "parts", HOME / "parts" / "sums.txt"
MODEL, DATA = HOME / "model", HOME / "data"
PART_BYTES, PIECE_BYTES, PIECES = 48 << 20, 15 << 20, 7
LEFT_FOR_BRINGING_S = 20


@dataclass(frozen=True)
class Stage:
    """A command of `kernelwright learn`, and the file that is there once it is done."""

    name: str
    done: Path
    words: Callable[[float], list[str]]
    least_s: float = 30.0


def evaluation(name: str, adapter: str, against: str) -> Stage:
    """An evaluation on the held-out tasks."""
    words = ["evaluate", "--data", str(DATA), "--model", str(MODEL), "--out", str(HOME / name)]
    words += ["--eager-only", "--batch", "128", "--json", str(HOME / name / "done.json")]
    words += ["--adapter", str(HOME / adapter / "adapter")] if adapter else []
    words += ["--against", str(HOME / against)] if against else []
    return Stage(name, HOME / name / "done.json", lambda left: words)


def stages(options: argparse.Namespace) -> list[Stage]:
    """Everything after the parts are there, in order."""

    def dataset(left: float) -> list[str]:
        words = ["dataset", "--out", str(DATA), "--run-dir", str(HOME / "home")]
        words += ["--write", str(options.write), "--held-out", str(options.held_out)]
        words += ["--seconds", str(int(max(30, min(options.writing_s, left - 60))))]
        words += ["--small"] if options.small else []
        return [*words, "--target", options.target]

    training = ["--data", str(DATA), "--model", str(MODEL)]
    sft = ["sft", *training, "--out", str(HOME / "sft"), "--epochs", str(options.epochs)]
    rl = ["rl", *training, "--out", str(HOME / "rl"), "--adapter", str(HOME / "sft" / "adapter")]
    rl += ["--steps", str(options.steps), "--target", options.target]
    found = [
        Stage("unpack", MODEL / "config.json", lambda left: ["unpack", str(joined()), "--out",
              str(MODEL)], 90.0),
        Stage("data", DATA / "summary.json", dataset, 120.0),
        evaluation("before", "", ""),
        Stage("sft", HOME / "sft" / "adapter" / "adapter_config.json", lambda left: sft),
        evaluation("after-sft", "sft", "before"),
        Stage("rl", HOME / "rl" / "adapter" / "adapter_config.json", lambda left: rl),
        evaluation("after-rl", "rl", "after-sft"),
    ]  # fmt: skip
    return [judged_on(one, options.target) for one in found]


def judged_on(stage: Stage, target: str) -> Stage:
    """An evaluation with the kind of device named."""
    if stage.name not in ("before", "after-sft", "after-rl"):
        return stage
    words = stage.words
    return Stage(stage.name, stage.done, lambda left: [*words(left), "--target", target])


def split(file: Path) -> None:
    """Cut a file into parts that can be carried, with a sum of each."""
    shutil.rmtree(PARTS, ignore_errors=True)
    PARTS.mkdir(parents=True)
    sums = []
    with file.open("rb") as source:
        while block := source.read(PART_BYTES):
            name = f"part-{len(sums):02d}"
            folder = PARTS / name  # a folder each, so that each can be named as what is carried
            folder.mkdir()
            (folder / "bytes").write_bytes(block)
            sums.append(f"{hashlib.sha256(block).hexdigest()} {name}\n")
    SUMS.write_text("".join(sums))
    print(f"{len(sums)} parts in {PARTS}; carry sums.txt with each of them")


def missing() -> list[str]:
    """The parts that are not here, or not whole; everything where the sums are not."""
    if (MODEL / "config.json").exists():
        return []
    if not SUMS.exists():
        return ["sums.txt"]
    found = []
    for line in SUMS.read_text().splitlines():
        wanted, name = line.split()
        path = PARTS / name / "bytes"
        if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != wanted:
            found.append(name)
    return found


def joined() -> Path:
    """The parts as one file again."""
    path = HOME / "model.gguf"
    with path.open("wb") as out:
        for line in SUMS.read_text().splitlines():
            out.write((PARTS / line.split()[1] / "bytes").read_bytes())
    return path


def learn(words: list[str], left_s: float) -> bool:
    """Run a command of `kernelwright learn` for at most so long; whether it came to its end."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelwright", "learn", *words],
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
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
        raise SystemExit(f"learn {words[0]} ended with {status}")
    return True


def advance(options: argparse.Namespace) -> None:
    """Go through the stages for as long as there are minutes."""
    end = time.monotonic() + 60 * options.minutes - LEFT_FOR_BRINGING_S
    lacking = missing()
    if lacking:
        print(f"missing: {', '.join(lacking)}")
        return
    for stage in stages(options):
        left = end - time.monotonic()
        if stage.done.exists():
            continue
        if left < stage.least_s:
            print(f"no time is left for {stage.name}; call again")
            break
        begin = time.monotonic()
        whole = learn(stage.words(left), left)
        print(f"{stage.name}: {time.monotonic() - begin:.0f} s{'' if whole else ', cut off'}")
        if not whole:
            break
    else:
        print("all stages are done")
    bring()


KEPT = ("report.json", "results.jsonl", "samples.jsonl", "steps.jsonl", "curves.svg",
        "settings.json", "summary.json")  # fmt: skip


def bring() -> None:
    """Put what is worth keeping into $OUT, in pieces."""
    out = os.environ.get("OUT")
    if not out:
        return
    for name in ("sft", "rl"):
        if (HOME / name / "adapter" / "adapter_config.json").exists():
            words = ["serve", "--model", str(MODEL), "--adapter", str(HOME / name / "adapter")]
            learn([*words, "--adapter-only", "--out", str(HOME / f"{name}-half")], 60)
    archive = HOME / "proof.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(HOME.rglob("*")):
            inside = path.relative_to(HOME)
            if path.name in KEPT or inside.parts[0].endswith("-half"):
                tar.add(path, inside, recursive=False)
    data = archive.read_bytes()
    for number, first in enumerate(range(0, len(data), PIECE_BYTES)):
        if number < PIECES:
            Path(out, f"proof-{number}").write_bytes(data[first : first + PIECE_BYTES])
    print(f"{len(data)} bytes in {out}; together: cat proof-* | tar xz")


def main() -> None:
    """Read the command line."""
    words = argparse.ArgumentParser(description="The small proof of learning, minutes at a time.")
    kinds = words.add_subparsers(dest="what", required=True)
    kinds.add_parser("split").add_argument("file", type=Path)
    run = kinds.add_parser("next")
    run.add_argument("--minutes", type=float, default=9.0)
    run.add_argument("--write", type=int, default=2000)
    run.add_argument("--writing-s", type=float, default=420.0)
    run.add_argument("--held-out", type=int, default=60)
    run.add_argument("--epochs", type=float, default=2.0)
    run.add_argument("--steps", type=int, default=12)
    run.add_argument("--target", default="cuda")
    run.add_argument("--small", action="store_true", help="Modules of sizes for a test.")
    options = words.parse_args()
    if options.what == "split":
        split(options.file)
    else:
        advance(options)


if __name__ == "__main__":
    main()
