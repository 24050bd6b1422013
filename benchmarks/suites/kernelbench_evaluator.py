"""Runs KernelBench's own evaluator over files that we exported in its format.

    python benchmarks/suites/kernelbench_evaluator.py --kernelbench CHECKOUT EXPORT... [--json PATH]

CHECKOUT is a clone of ScalingIntelligence/KernelBench; nothing of it is copied here. The reference
that an export is compared with is the text above the export's separator, which is the task's file
as it was. Needs a CUDA device, as the evaluator does; without one its static checks run, its
evaluator is loaded, and the result says what could not be run.

What is not covered: its timing is switched on, but our figures never come from it.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from kernelwright.tools.export.render import SEPARATOR

TRIALS = 5  # as its own scripts do
TIMED = 100
# Its static checker asks for a certain way of building under each of these names; under any other
# one it looks for what it forbids and no more.
BACKENDS = ("cuda", "triton", "cute", "tilelang", "thunderkittens", "hip")
OTHER = "any other name"


def nothing(*_: object, **__: object) -> bool:
    """What needs no doing: there is no file of settings to read."""
    return False


def silently(items: Iterable[object] = (), *_: object, **__: object) -> Iterable[object]:
    """A bar of progress that nobody sees."""
    return items


def no_model(*_: object, **__: object) -> None:
    """Asking a language model, which judging a file never does."""
    raise RuntimeError("asking a language model needs a package that is not installed here")


# It imports them, for asking language models mostly; judging a file needs none of it.
NOT_NEEDED: dict[str, dict[str, Callable[..., object]]] = {
    "dotenv": {"load_dotenv": nothing},
    "tqdm": {"tqdm": silently},
    "openai": {"OpenAI": no_model},
    "litellm": {"completion": no_model},
    "requests": {},
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
    reference, separator, _ = text.partition(SEPARATOR)
    if not separator:
        return {"export": path.name, "passed": False, "error": "no export of ours"}
    checker = importlib.import_module("kernelbench.kernel_static_checker")
    static = {name: _static(checker, text, name) for name in (*BACKENDS, OTHER)}
    admitted = [name for name, said in static.items() if said["valid"]]
    found: dict[str, object] = {
        "export": path.name,
        "static": static,
        "admitted_by": admitted,
        "passed": bool(admitted),
    }
    judge = importlib.import_module("kernelbench.eval")
    importlib.import_module("kernelbench.utils")
    if not torch.cuda.is_available():
        missing = "compiling, correctness and timing by its evaluator: there is no CUDA device"
        return {**found, "evaluated": False, "not_run": missing}
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
        "passed": bool(admitted) and result.compiled and result.correctness,
        "compiled": result.compiled,
        "correctness": result.correctness,
        "runtime_ms": result.runtime,
        "reference_ms": result.ref_runtime,
        "metadata": {name: str(value) for name, value in result.metadata.items()},
    }


def _static(checker: ModuleType, text: str, backend: str) -> dict[str, object]:
    valid, errors, warnings = checker.validate_kernel_static(text, backend, "fp32")
    return {"valid": valid, "errors": sorted(errors), "warnings": sorted(warnings)}


def _placeholder(name: str, contents: dict[str, Callable[..., object]]) -> ModuleType:
    """A module under that name; it can be imported and used as far as judging goes."""
    made = ModuleType(name)
    for item, stand_in in contents.items():
        setattr(made, item, stand_in)
    return made


if __name__ == "__main__":
    sys.exit(main())
