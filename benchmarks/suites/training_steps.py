"""Training steps with kernels both ways beside PyTorch's: searches with `--train`, then verify.py.

For each file: `kernelwright optimize --train`, an export by force, and the export's `verify.py`,
which compares gradients with float64 and times whole steps in turns with the reference, eager and
compiled (of whole models: `real_models.py --train`). Prints one JSON line a file: what the searches
say of a step, and what verify.py said. One call on a GPU:

    python benchmarks/suites/training_steps.py --target cuda --seconds 120
        --out benchmarks/results/h200/training_steps.jsonl
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ("softmax", "layer_norm_gelu", "cross_entropy", "swiglu", "group_norm_swish", "huber_loss")


def once(file: Path, asked: argparse.Namespace, home: Path) -> dict[str, object]:
    """One file's searches and its export's own verdict."""
    export = home / f"faster_{file.stem}"
    command = [
        sys.executable, "-m", "kernelwright", "optimize", str(file), "--train", "--json", "-",
        "--target", asked.target, "--seconds", str(asked.seconds), "--force", "--fresh",
        "--export", str(export),
    ]  # fmt: skip
    environment = {**os.environ, "KERNELWRIGHT_HOME": str(home)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    if done.returncode:
        return {"file": file.stem, "failure": done.stderr.strip().splitlines()[-1:]}
    found = json.loads(done.stdout)
    row = {"file": file.stem, "status": found["status"], "training": found["training"]}
    if found["export"] is None:
        return row
    checked = [sys.executable, "verify.py", "--steps", "--seconds", "5"]
    said = subprocess.run(checked, capture_output=True, text=True, cwd=export, env=environment)
    lines = [line.strip() for line in said.stdout.splitlines()]
    kept = [line for line in lines if "gradients" in line or "GRADIENTS" in line or "WRONG" in line]
    return {**row, "verify": kept, "exit": said.returncode}


def main() -> None:
    """Every file in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--target", default="auto")
    parser.add_argument("--seconds", type=float, default=120.0, help="of search, both ways")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    files = asked.files or [ROOT / "examples" / f"{name}.py" for name in FILES]
    with tempfile.TemporaryDirectory() as home:
        for file in files:
            line = json.dumps(once(file.resolve(), asked, Path(home)))
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
            if asked.out is not None:
                with asked.out.open("a", encoding="utf-8") as out:
                    out.write(line + "\n")


if __name__ == "__main__":
    main()
