"""How long float32 products by parts take on a cross entropy's gradients, and how exact they are.

    python benchmarks/codegen/kernels/peaked_gradients.py gradients.jsonl [--tokens 8192]
        [--vocabulary 50257] [--width 768] [--ideas 3] [--hardware h200]

The gradient of a language model's logits is a row of probabilities with one number near minus one:
most are far below the row's largest, so that two 16-bit parts say less of them, and sums that they
could decide are summed again from the factors (`tools/codegen/cuda/contractions/float32/split.py`).
How many those are depends on the values, and the time on how many. Both products of such a gradient
are timed, for the hidden states (G W) and for the weights (G^T X), with logits of several widths,
with normal values, and with nothing but NaN, beside PyTorch's own float32. `error` is the root of
the mean square of what is off, as a part of that of the truth in float64; -1 where that is no
number.
"""

import argparse
import asyncio
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "codegen")]

from module_candidates import first_drafts
from strategies.bench import MODEL_AHEAD_CYCLES, Bench

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.languages import (
    CompileFailure,
    compile_candidate,
    load_candidate,
    shutdown_compilers,
)
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

SOURCE = """import torch


def {name}(gradient, other):
    return {product}


def get_inputs():
    return [torch.randn({tokens}, {vocabulary}), torch.randn({other}, {width})]
"""
PRODUCTS = {"hidden": "gradient @ other", "weights": "gradient.t() @ other"}
# The standard deviation of logits: as a model begins, as it learns, and as it knows.
WIDTHS = (0.5, 1.0, 3.0, 8.0)


def gradient(kind: str, options: argparse.Namespace) -> torch.Tensor:
    """What a cross entropy sends back to its logits, or what `kind` says."""
    shape = (options.tokens, options.vocabulary)
    normal = torch.randn(shape, device="cuda:0", generator=torch.Generator("cuda").manual_seed(3))
    if kind == "normal":
        return normal
    if kind == "nan":
        return normal.fill_(float("nan"))
    probabilities = torch.softmax(normal.mul_(float(kind)), -1)
    # A model that knows is right most of the time: targets are drawn from what it says.
    targets = torch.multinomial(probabilities, 1)
    return probabilities.scatter_add_(1, targets, torch.full(targets.shape, -1.0, device="cuda:0"))


async def measure(options: argparse.Namespace) -> None:
    """Every candidate of both products, on every kind of gradient."""
    hardware = hardware_profile(options.hardware)
    bench = Bench(options.output, hardware)
    for name, product in PRODUCTS.items():
        rows = options.vocabulary if name == "hidden" else options.tokens
        sizes = {key: getattr(options, key) for key in ("tokens", "vocabulary", "width")}
        source = SOURCE.format(name=name, product=product, other=rows, **sizes)
        task = trace(source, f"{name}.py", TracePolicy(entry=name, device="cuda"))
        assert isinstance(task, Task), task
        drafts = await first_drafts(task, hardware, options.ideas)
        made = [
            await compile_candidate(
                one.candidate, architecture=bench.hardware.architecture, timeout_s=90
            )
            for one in drafts
        ]
        other = torch.randn(rows, options.width, device="cuda:0")
        for kind in ("normal", *map(str, WIDTHS), "nan"):
            args = (gradient(kind, options), other)
            left = args[0] if name == "hidden" else args[0].t()
            own = left @ other
            # Sixty-four rows of the truth are enough to tell.
            truth = left[:64].double() @ other.double()
            row = {"product": name, "values": kind}
            took_ms = bench.median_ms(lambda left=left, other=other: left @ other, 5)
            bench.write(**row, way="pytorch", ms=took_ms, error=_error(own, truth))
            for draft, built in zip(drafts, made, strict=True):
                way = " ".join(draft.choices.values())
                if isinstance(built, CompileFailure):
                    bench.write(**row, way=way, failure=built.message[:300])
                    continue
                runner = load_candidate(draft.candidate, built, "cuda:0")
                (got,) = runner(list(args), {})
                took_ms = bench.median_ms(
                    lambda runner=runner, args=args: runner(list(args), {}), 3, MODEL_AHEAD_CYCLES
                )
                bench.write(**row, way=way, ms=took_ms, error=_error(got, truth))
            del args, left
    shutdown_compilers()


def _error(got: torch.Tensor, truth: torch.Tensor) -> float:
    off = (got[:64].double() - truth).norm() / truth.norm()
    return float(off) if bool(torch.isfinite(off)) else -1.0


def main() -> None:
    """Measure on the first device."""
    words = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    words.add_argument("output", type=Path)
    words.add_argument("--tokens", type=int, default=8192)
    words.add_argument("--vocabulary", type=int, default=50257)
    words.add_argument("--width", type=int, default=768)
    words.add_argument("--ideas", type=int, default=3)
    words.add_argument("--hardware", default="h200")
    asyncio.run(measure(words.parse_args()))


if __name__ == "__main__":
    main()
