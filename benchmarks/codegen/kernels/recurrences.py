"""Recurrent layers on a device: persistent kernels beside the library, each checked in float64.

    python benchmarks/codegen/kernels/recurrences.py [--layouts 3] [--match gru,lstm] [--seconds 50]
        [--out recurrences.jsonl]

For every stack a line of the library's own time, called and replayed as a graph, then one for each
strategy under its first layouts: milliseconds of the whole stack (median of repeated calls between
events, the host ahead), microseconds a step and layer, the largest error against float64, and how
many times PyTorch's own error that is. Candidates are compiled together beforehand, all stacks'
first layouts before their second ones; what does not fit into the seconds is left out and said so.
It needs a CUDA device.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

import torch
from torch import nn

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates import DeviceError, LaunchRefused
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir import LibraryCall, Program
from kernelwright.tools.codegen.library.assemble import assemble
from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.hardware import detect
from kernelwright.tools.languages import (
    Built,
    compile_candidate,
    load_candidate,
    new_candidate,
    parse_kernel,
    with_settings,
)
from kernelwright.tools.tasks.graph.aten_graph import trace_graph
from kernelwright.tools.tasks.graph.convert import simplify, to_graph
from kernelwright.tools.types import Candidate, Setting

COMPILERS = 12
REPEATED_MS, MOST_CALLS = 150.0, 30


@dataclass(frozen=True)
class Stack:
    """One module to time, and what it is given: (steps, batch)."""

    name: str
    make: Callable[[], nn.RNNBase]
    steps: int
    batch: int
    dtype: torch.dtype = torch.float32


BF16 = torch.bfloat16
STACKS = (
    Stack("gru_6x256_b10", lambda: nn.GRU(128, 256, 6), 512, 10),
    Stack("lstm_6x256_b10", lambda: nn.LSTM(128, 256, 6), 512, 10),
    Stack("gru_6x256_b10_both", lambda: nn.GRU(128, 256, 6, bidirectional=True), 512, 10),
    Stack("lstm_6x256_b10_both", lambda: nn.LSTM(128, 256, 6, bidirectional=True), 512, 10),
    Stack("rnn_tanh_256_b8", lambda: nn.RNN(256, 256), 512, 8),
    Stack("lstm_1024_b1", lambda: nn.LSTM(1024, 1024), 256, 1),
    Stack("gru_512_b16", lambda: nn.GRU(512, 512), 256, 16),
    Stack("gru_64_b64", lambda: nn.GRU(64, 64), 512, 64),
    Stack("gru_2x256_b10_bf16", lambda: nn.GRU(128, 256, 2), 512, 10, BF16),
    Stack("lstm_2x256_b64", lambda: nn.LSTM(256, 256, 2), 256, 64),
)


class Whole(nn.Module):
    """The module with all its results as one tuple."""

    def __init__(self, inner: nn.RNNBase) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """States of all steps, and the last ones."""
        out, last = self.inner(x)
        return (out, *last) if isinstance(last, tuple) else (out, last)


@dataclass(frozen=True)
class Job:
    """One candidate of one stack."""

    stack: Stack
    strategy: str
    layout: int
    turn: int
    predicted_ms: float
    candidate: Candidate


@dataclass(frozen=True)
class Reference:
    """A stack on the device, what it makes, and what that is in float64."""

    module: Whole
    x: torch.Tensor
    truth: tuple[torch.Tensor, ...]

    def error(self, found: tuple[torch.Tensor, ...]) -> float:
        """The largest distance from float64; NaN where something is no number."""
        pairs = zip(found, self.truth, strict=True)
        return max(float((one.double() - true).abs().max()) for one, true in pairs)


def module_of(stack: Stack) -> tuple[Whole, torch.Tensor]:
    """The module and its input, on the CPU; the same numbers every time."""
    torch.manual_seed(0)
    module = Whole(stack.make().to(stack.dtype)).eval()
    x = torch.randn(stack.steps, stack.batch, module.inner.input_size).to(stack.dtype)
    return module, x


def reference_of(stack: Stack) -> Reference:
    """The stack on the device."""
    module, x = module_of(stack)
    wide, _ = module_of(stack)
    with torch.no_grad():
        truth = wide.double().cuda()(x.double().cuda())
    return Reference(module.cuda(), x.cuda(), truth)


def program_of(stack: Stack) -> Program:
    """The stack's program, one library call and what it starts from."""
    module, x = module_of(stack)
    traced = trace_graph(module, (x,), None)
    simplify(traced)
    return lower(to_graph(traced, ["x"]))


def jobs_of(stack: Stack, hardware: Hardware, layouts: int) -> Iterator[Job]:
    """Every strategy under its first layouts."""
    program, emitter = program_of(stack), CudaEmitter()
    (call,) = (node for node in program.nodes if isinstance(node, LibraryCall))
    for strategy in emitter.strategies(call, hardware):
        made = assemble(program, emitter, {call.name: strategy}, hardware)
        base = new_candidate("cuda", made.kernel, made.plan)
        predicted_ms = emitter.predicted_ms(call, strategy, hardware)
        (tuned,) = (
            one
            for one in parse_kernel(made.kernel, "cuda").tunables
            if one.name.endswith("_LAYOUT")
        )
        for turn, layout in enumerate(tuned.values[:layouts]):
            candidate = with_settings(base, [Setting(name=tuned.name, value=layout)])
            yield Job(stack, strategy.name, int(layout), turn, predicted_ms, candidate)


def median_ms(call: Callable[[], object]) -> float:
    """Between events on the device, after two calls that warm up."""
    call()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    call()
    torch.cuda.synchronize()
    once_ms = (time.perf_counter() - begun) * 1e3
    times = []
    for _ in range(max(3, min(MOST_CALLS, int(REPEATED_MS / max(once_ms, 0.01))))):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        call()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last))
    return statistics.median(times)


def graph_ms(reference: Reference) -> float | None:
    """The library's calls replayed as one graph; None where they cannot be captured."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.no_grad(), torch.cuda.graph(graph):
            reference.module(reference.x)
    except RuntimeError:
        return None
    return median_ms(graph.replay)


def library_line(stack: Stack, reference: Reference) -> dict[str, object]:
    """The library's own time and error."""
    with torch.no_grad():
        found = reference.module(reference.x)
        elapsed_ms = median_ms(lambda: reference.module(reference.x))
    line = _line(stack, reference, "library", elapsed_ms, reference.error(found))
    return line | {"graph_ms": graph_ms(reference)}


def _line(
    stack: Stack, reference: Reference, strategy: str, elapsed_ms: float, error: float
) -> dict[str, object]:
    inner = reference.module.inner
    steps = stack.steps * inner.num_layers
    return {
        "stack": stack.name,
        "dtype": str(stack.dtype).removeprefix("torch."),
        "layers": inner.num_layers,
        "steps": stack.steps,
        "batch": stack.batch,
        "hidden": inner.hidden_size,
        "strategy": strategy,
        "ms": round(elapsed_ms, 4),
        "us_a_step_and_layer": round(elapsed_ms * 1e3 / steps, 3),
        "error": error,
    }


def _number(line: dict[str, object], key: str) -> float:
    """A figure of a line; 0 where there is none."""
    found = line[key]
    return found if isinstance(found, float) else 0.0


def measured(
    job: Job, built: Built, reference: Reference, library: dict[str, object]
) -> dict[str, object]:
    """A candidate's line."""
    runner = load_candidate(job.candidate, built, "cuda:0")
    weights = {name: one.detach() for name, one in reference.module.state_dict().items()}
    found = runner([reference.x], weights)
    again = runner([reference.x], weights)
    torch.cuda.synchronize()
    error = reference.error(found)
    elapsed_ms = median_ms(lambda: runner([reference.x], weights))
    report = next(one for one in built.reports if one.kernel.endswith("_steps"))
    return _line(job.stack, reference, job.strategy, elapsed_ms, error) | {
        "layout": job.layout,
        "predicted_ms": round(job.predicted_ms, 4),
        "speedup": round(_number(library, "ms") / elapsed_ms, 3),
        "speedup_over_graph": round(_number(library, "graph_ms") / elapsed_ms, 3),
        "error_ratio": round(error / max(_number(library, "error"), 1e-30), 3),
        "same_bits": all(map(torch.equal, found, again)),
        "registers": report.registers,
        "spill_bytes": report.spill_bytes,
    }


async def compiled(jobs: list[Job], architecture: str | None, until: float) -> list[object]:
    """Everything that was compiled in time; None for the others."""
    places = asyncio.Semaphore(COMPILERS)

    async def one(job: Job) -> object:
        async with places:
            if time.monotonic() > until:
                return None
            return await compile_candidate(job.candidate, architecture=architecture, timeout_s=60)

    return list(await asyncio.gather(*map(one, jobs)))


def main() -> None:
    """Compile, then one stack after the other."""
    words = argparse.ArgumentParser(description="Recurrent layers beside the library.")
    words.add_argument("--layouts", type=int, default=3, help="of each strategy")
    words.add_argument("--match", default="", help="parts of stacks' names, with commas between")
    words.add_argument("--seconds", type=float, default=50.0)
    words.add_argument("--out", type=Path)
    asked = words.parse_args()
    begun, hardware, lines = time.monotonic(), detect("cuda"), []

    def say(line: dict[str, object]) -> None:
        lines.append(json.dumps(line))
        print(lines[-1], flush=True)
        if asked.out is not None:
            asked.out.write_text("\n".join(lines) + "\n", encoding="utf-8")

    stacks = [one for one in STACKS if any(p in one.name for p in asked.match.split(","))]
    jobs = [job for stack in stacks for job in jobs_of(stack, hardware, asked.layouts)]
    # Clusters first: only blocks that meet through memory could wait for ever.
    jobs.sort(key=lambda job: (job.strategy, job.turn))
    half = begun + 0.6 * asked.seconds
    done = asyncio.run(compiled(jobs, hardware.architecture, half))
    references: dict[str, tuple[Reference, dict[str, object]]] = {}
    for stack in stacks:
        reference = reference_of(stack)
        references[stack.name] = reference, library_line(stack, reference)
        say(references[stack.name][1])
    for job, built in zip(jobs, done, strict=True):
        reference, library = references[job.stack.name]
        named = {"stack": job.stack.name, "strategy": job.strategy, "layout": job.layout}
        if time.monotonic() - begun > asked.seconds or built is None:
            say(named | {"left_out": "no time"})
        elif isinstance(built, Built):
            try:
                say(measured(job, built, reference, library))
            except (DeviceError, LaunchRefused) as refused:
                say(named | {"left_out": str(refused)[:300]})
        else:
            say(named | {"left_out": str(built)[:300]})
    say({"device": torch.cuda.get_device_name(), "torch": torch.__version__,
         "cudnn": torch.backends.cudnn.version(), "tf32": torch.backends.cudnn.allow_tf32,
         "seconds": round(time.monotonic() - begun, 1)})  # fmt: skip


if __name__ == "__main__":
    main()
