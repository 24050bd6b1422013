"""Runs KernelBench's own evaluator over files that we exported in its format.

    python benchmarks/kernelbench_evaluator.py --kernelbench CHECKOUT EXPORT... [--json PATH]

CHECKOUT is a clone of ScalingIntelligence/KernelBench; nothing of it is copied here. The reference
that an export is compared with is the text above the export's separator, which is the task's file
as it was. Needs a CUDA device, as the evaluator does; without one only its static checks run.

What is not covered: its timing is switched on, but our figures never come from it.
"""

import argparse
import importlib
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from tools.export.render import SEPARATOR

TRIALS = 5  # as its own scripts do
TIMED = 100
# It imports them for asking language models; judging a file needs none.
NOT_NEEDED = {
    "dotenv": ("load_dotenv",),
    "tqdm": ("tqdm",),
    "openai": ("OpenAI",),
    "litellm": ("completion",),
    "requests": (),
}


def main() -> int:
    """Evaluate every export; the exit status is 1 when one does not pass."""
    words = argparse.ArgumentParser(description="KernelBench's evaluator over our exports.")
    words.add_argument("exports", nargs="+", type=Path)
    words.add_argument("--kernelbench", required=True, type=Path, help="a checkout")
    words.add_argument("--json", type=Path)
    asked = words.parse_args()
    source = asked.kernelbench / "src"
    if not (source / "kernelbench" / "eval.py").is_file():
        sys.stderr.write(f"{asked.kernelbench} is no checkout of KernelBench\n")
        return 2
    sys.path.insert(0, str(source))
    for name, contents in NOT_NEEDED.items():
        if find_spec(name) is None:
            sys.modules[name] = _placeholder(name, contents)
    results = [evaluate(path) for path in asked.exports]
    text = json.dumps(results, indent=2)
    sys.stdout.write(text + "\n")
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")
    return 0 if all(result["passed"] for result in results) else 1


def evaluate(path: Path) -> dict[str, object]:
    """What its static checks and, with a device, its evaluator say about one export."""
    import torch

    text = path.read_text(encoding="utf-8")
    reference, separator, ours = text.partition(SEPARATOR)
    if not separator:
        return {"export": path.name, "passed": False, "error": "no export of ours"}
    checker = importlib.import_module("kernelbench.kernel_static_checker")
    valid, errors, warnings = checker.validate_kernel_static(ours, "cuda", "fp32")
    found: dict[str, object] = {
        "export": path.name,
        "static": {"valid": valid, "errors": errors, "warnings": warnings},
        "passed": valid,
    }
    if not torch.cuda.is_available():
        return {**found, "evaluated": False}
    judge = importlib.import_module("kernelbench.eval")
    result = judge.eval_kernel_against_ref(
        original_model_src=reference,
        custom_model_src=text,
        num_correct_trials=TRIALS,
        num_perf_trials=TIMED,
        measure_performance=True,
        device=torch.device("cuda:0"),
        backend="cuda",
        precision=torch.float32,
    )
    if result is None:
        return {**found, "passed": False, "error": "the evaluator gave no result"}
    return {
        **found,
        "evaluated": True,
        "passed": valid and result.compiled and result.correctness,
        "compiled": result.compiled,
        "correctness": result.correctness,
        "runtime_ms": result.runtime,
        "reference_ms": result.ref_runtime,
        "metadata": {name: str(value) for name, value in result.metadata.items()},
    }


def _placeholder(name: str, contents: tuple[str, ...]) -> ModuleType:
    """A module under that name whose contents cannot be used."""

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError(f"{name} is not installed here")

    made = ModuleType(name)
    for item in contents:
        setattr(made, item, refuse)
    return made


if __name__ == "__main__":
    sys.exit(main())
