"""How fast a candidate goes from source to screened verdict, and what a torch extension costs.

Writes candidates of one example with every strategy and many settings, hands all of them to the
executor at once (compilation beside the device, one at a time on it; a search keeps fewer in
flight) with an empty compile cache, and prints candidates a minute and the mean time of each
stage. With --load-inline it also builds one small torch extension, the usual way of other
systems, once from nothing.

    python benchmarks/timing/pace.py --target cuda --out benchmarks/results/h200/pace.json
        --load-inline
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import mean, median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

_INLINE_CUDA = """
#include <torch/extension.h>
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i];
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  twice<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""
_INLINE_CPP = """
#include <torch/extension.h>
torch::Tensor run(torch::Tensor x) { return x * 2; }
"""


async def pace(arguments: argparse.Namespace) -> dict:
    """Evaluate up to `--candidates` candidates; the figures."""
    from kernelwright.tools.candidates import valid_settings
    from kernelwright.tools.codegen.library.assemble import assemble
    from kernelwright.tools.codegen.lower import lower
    from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
    from kernelwright.tools.languages import new_candidate, parse_kernel
    from kernelwright.tools.types import Refusal, TracePolicy

    executor = LocalExecutor.create(arguments.target, Path(tempfile.mkdtemp()))
    try:
        hardware = await executor.hardware()
        task = await executor.trace(ROOT / arguments.example, TracePolicy())
        assert not isinstance(task, Refusal), task
        program = lower(task.graph)
        emitter = emitter_for(hardware.kind)
        (loop,) = program.loops
        candidates = []
        for strategy in emitter.strategies(loop, hardware):
            made = assemble(program, emitter, {loop.name: strategy}, hardware)
            source = parse_kernel(made.kernel, emitter.language)
            for settings in valid_settings(source)[:: arguments.stride]:
                candidates.append(
                    new_candidate(emitter.language, made.kernel, made.plan, settings=settings)
                )
        await executor.baselines(task)
        started = time.perf_counter()
        evaluations = await asyncio.gather(
            *(executor.evaluate(task, c, "screen") for c in candidates[: arguments.candidates])
        )
        wall_s = time.perf_counter() - started
    finally:
        await executor.aclose()
    timed = [e.median_ms for e in evaluations if e.median_ms is not None]
    return {
        "example": arguments.example,
        "device": hardware.name,
        "candidates": len(evaluations),
        "wall_s": wall_s,
        "per_minute": 60 * len(evaluations) / wall_s,
        "verdicts": Counter(str(e.verdict) for e in evaluations),
        "mean_compile_s": mean(e.stages.compile_s for e in evaluations),
        "mean_verify_s": mean(e.stages.verify_s for e in evaluations),
        "mean_screen_s": mean(e.stages.screen_s for e in evaluations),
        "best_ms": min(timed, default=None),
        "median_ms": median(timed) if timed else None,
    }


def emitter_for(kind: str) -> object:
    """The emitter of the language that the device runs."""
    if kind == "cuda":
        from kernelwright.tools.codegen.cuda import CudaEmitter

        return CudaEmitter()
    from kernelwright.tools.codegen.cpp import CppEmitter

    return CppEmitter()


def load_inline_s(target: str) -> float:
    """Seconds to build one small torch extension with nothing cached."""
    from torch.utils.cpp_extension import load_inline

    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCH_EXTENSIONS_DIR"] = folder
        if target == "cuda":
            declared = "torch::Tensor run(torch::Tensor x);"
            load_inline("pace_probe", declared, cuda_sources=_INLINE_CUDA, functions=["run"])
        else:
            load_inline("pace_probe", _INLINE_CPP, functions=["run"])
    return time.perf_counter() - started


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--example", default="examples/softmax.py")
    parser.add_argument("--candidates", type=int, default=60)
    parser.add_argument("--stride", type=int, default=3)
    parser.add_argument("--load-inline", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["KERNELWRIGHT_HOME"] = home
        result = asyncio.run(pace(arguments))
    if arguments.load_inline:
        result["load_inline_s"] = load_inline_s(arguments.target)
    print(json.dumps(result, indent=1))
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
