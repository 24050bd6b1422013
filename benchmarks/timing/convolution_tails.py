"""Which kernels run for a module with a convolution, and for how long: PyTorch's and ours.

For each file: eager, torch.compile, and the playbook's forms (as written, channels last, ...) with
the strategies that are predicted fastest, each under torch's profiler, mean of four calls. Also how
far eager, torch.compile and eager with channels last are from float64, which shows where the
library changes its precision with the layout. A JSON line a reading.

    python benchmarks/timing/convolution_tails.py out.jsonl FILE [FILE...] [--hardware H200]

Not covered: the host's part, cold caches, and searching: it is one candidate a form. It runs the
files in this process: use it on files that are trusted.
"""

import argparse
import asyncio
import gc
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
from torch.profiler import ProfilerActivity, profile

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir.roofline import predict_ms
from kernelwright.tools.codegen.library.assemble import assemble
from kernelwright.tools.codegen.library.forms.forms import forms
from kernelwright.tools.evaluate.verify.precision import with_channels_last
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.languages import (
    CompileFailure,
    compile_candidate,
    load_candidate,
    new_candidate,
)
from kernelwright.tools.tasks import Reference, draw, trace
from kernelwright.tools.types import Candidate, Refusal, Task, TracePolicy

LONGEST_NAME, MOST_KERNELS, CALLS = 110, 9, 4


def kernels(call: Callable[[], object]) -> list[tuple[str, float]]:
    """Kernels by name with their milliseconds a call, the longest first."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
    total: dict[str, float] = defaultdict(float)
    for event in seen.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            total[event.name] += event.device_time_total
    named = [(name[:LONGEST_NAME], round(us / CALLS / 1e3, 4)) for name, us in total.items()]
    return sorted(named, key=lambda one: -one[1])[:MOST_KERNELS]


def ours(task: Task, hardware: Hardware) -> dict[str, Candidate]:
    """A candidate a form, named by the form and its strategies."""
    emitter, made = CudaEmitter(), {}
    for form in forms(task):
        picked = {
            loop.name: min(
                emitter.strategies(loop, hardware),
                key=lambda strategy, loop=loop: predict_ms(loop, strategy, hardware),
            )
            for loop in form.program.loops
        }
        text = assemble(form.program, emitter, picked, hardware)
        words = ",".join(f"{name}:{strategy.name}" for name, strategy in picked.items())
        made[f"{form.name} {words}"] = new_candidate("cuda", text.kernel, text.plan)
    return made


def errors(
    reference: Reference, task: Task, args: Sequence[Argument], compiled: torch.Tensor
) -> dict[str, tuple[float, float]]:
    """Relative errors against float64, in the norm and at the worst element."""
    doubled = [a.double() if isinstance(a, torch.Tensor) else a for a in args]
    right = reference.double().forward(doubled)[0]
    other, _ = with_channels_last(reference, task, args)
    answers = {
        "eager": reference.forward(args)[0],
        "compile": compiled,
        "channels_last": other[0],
    }
    size = right.abs()

    def far(value: torch.Tensor) -> tuple[float, float]:
        off = (value.double() - right).abs()
        return float(off.norm() / right.norm()), float((off / (size + size.mean())).max())

    return {name: far(value) for name, value in answers.items()}


def measure(path: Path, hardware: Hardware, say: Callable[..., None]) -> None:
    """All readings of one file."""
    task = trace(path.read_text(encoding="utf-8"), str(path), TracePolicy())
    if isinstance(task, Refusal):
        say(who="refused", words=task.sentence)
        return
    reference = Reference.build(task, "cuda", seed=0)
    args = list(draw(task, "task", 1, "cuda"))
    with torch.no_grad():
        say(who="eager", k=kernels(lambda: reference.forward(args)))
        compiled = torch.compile(reference.module)
        out = compiled(*args)
        say(who="compile", stride=str(out.stride()), k=kernels(lambda: compiled(*args)))
        say(who="errors", **errors(reference, task, args, out))
        del out
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    weights = reference.weights()
    for name, candidate in ours(task, hardware).items():
        built = asyncio.run(
            compile_candidate(candidate, architecture=hardware.architecture, timeout_s=60)
        )
        if isinstance(built, CompileFailure):
            say(who=name, failure=built.message[:300])
            continue
        runner = load_candidate(candidate, built, "cuda:0")
        runner.prepare(weights)
        say(who=name, k=kernels(lambda runner=runner: runner(args, weights)))


def main() -> None:
    """Measure file after file; what fails is a line of its own."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("out", type=Path)
    words.add_argument("files", nargs="+", type=Path)
    words.add_argument("--hardware", default="H200")
    asked = words.parse_args()
    hardware = hardware_profile(asked.hardware)
    with asked.out.open("w", encoding="utf-8") as lines:
        for path in asked.files:

            def say(path: Path = path, **known: object) -> None:
                lines.write(json.dumps({"file": path.stem, **known}) + "\n")
                lines.flush()
                print(path.stem, known, flush=True)

            try:
                measure(path, hardware, say)
            except Exception as error:
                say(who="ERROR", error=f"{type(error).__name__}: {error}"[:400])
            gc.collect()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
