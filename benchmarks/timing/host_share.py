"""What the host does in a call before the device has its first kernel to run.

    python benchmarks/timing/host_share.py FILE [FILE...] [--hardware h200]
        [--strategies L0=split_rows]
        [--out figures.json]

A module's plan under the strategies that are predicted fastest, called as the judge calls it and
as an export does. Driver and allocations are stubs, so this is Python alone, and no GPU is needed:
the time from the call to the driver's first launch, the mean of a batch of calls, of many batches
the best. Beside it stand the allocations and fills that come before that launch, each of which a
device's allocator and driver take time for besides. Files are imported in this process: use it
on files that are trusted. Not covered: plans that call a library, what an export checks before its
plan begins, and the judge's own part of a call.
"""

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import KernelSource, complete_settings
from kernelwright.tools.candidates.run import PlanRunner
from kernelwright.tools.codegen.library.kernel_library import repertoire_for
from kernelwright.tools.evaluate.verify.memory import SpoiltMemory
from kernelwright.tools.export.plan_python import print_plan
from kernelwright.tools.languages import new_candidate, parse_kernel
from kernelwright.tools.languages.cuda.launcher import Kernel
from kernelwright.tools.languages.cuda.loading import CheckedKernel, CudaFunction
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Candidate, Refusal, TensorSpec, TracePolicy

BATCHES, CALLS = 60, 500
CPU = torch.device("cpu")
HEAD = "| file | allocations + fills before it | judge, us | export, us |\n|---|---|---|---|"
Call = Callable[[], object]


class Clock:
    """Notes when the driver was first asked to launch."""

    def __init__(self) -> None:
        self.at_ns = 0

    def note(self) -> None:
        """The driver was asked."""
        self.at_ns = self.at_ns or time.perf_counter_ns()


class IdleDriver:
    """In place of the driver's library: it launches nothing."""

    def __init__(self, clock: Clock, memory: "Memory") -> None:
        self._clock, self._memory = clock, memory
        self.before: tuple[int, int] = ()

    def cuLaunchKernel(self, *_: object) -> int:  # noqa: N802
        """A launch."""
        self._clock.note()
        self.before = self.before or (self._memory.asked, self._memory.filled)
        return 0

    cuLaunchKernelEx = cuLaunchKernel  # noqa: N815

    def cuFuncGetAttribute(self, *_: object) -> int:  # noqa: N802
        """No static shared memory."""
        return 0

    def cuFuncSetAttribute(self, *_: object) -> int:  # noqa: N802
        """Whatever is asked for."""
        return 0


class Memory:
    """Hands out the same tensor for the same wish, which costs next to nothing."""

    def __init__(self) -> None:
        self._held: dict[object, torch.Tensor] = {}
        self._empty = torch.empty
        self.asked = self.filled = 0

    def empty(self, shape: Any, dtype: torch.dtype, device: object = None) -> torch.Tensor:
        """In place of torch.empty."""
        self.asked += 1
        found = self._held.get((shape, dtype))
        if found is None:
            found = self._held[shape, dtype] = self._empty(shape, dtype=dtype)
        return found

    def zeros(self, shape: Any, dtype: torch.dtype, device: object = None) -> torch.Tensor:
        """In place of torch.zeros."""
        self.filled += 1
        return self.empty(shape, dtype)


def main() -> None:
    """Print a row for every file."""
    words = argparse.ArgumentParser(description="The host's part before a plan's first launch.")
    words.add_argument("files", nargs="+", type=Path)
    words.add_argument("--hardware", default="h200")
    words.add_argument("--strategies", nargs="*", default=[], metavar="LOOP=NAME")
    words.add_argument("--out", type=Path, help="where the figures go as JSON")
    asked = words.parse_args()
    chosen = dict(item.split("=", 1) for item in asked.strategies)
    rows = {}
    print(HEAD)
    for path in asked.files:
        rows[path.stem] = row = _row(path, hardware_profile(asked.hardware), chosen)
        before = " + ".join(map(str, row["before"]))
        print(f"| {path.stem} | {before} | {row['judge_us']} | {row['export_us']} |")
    if asked.out is not None:
        asked.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _row(path: Path, hardware: Hardware, chosen: dict[str, str]) -> dict[str, object]:
    task = trace(path.read_text(encoding="utf-8"), str(path), TracePolicy())
    if isinstance(task, Refusal):
        raise SystemExit(task.sentence)
    draft = repertoire_for(task, hardware).draft(chosen)
    candidate = new_candidate("cuda", draft.kernel, draft.plan)
    if "aten." in draft.plan:
        raise SystemExit(f"{path}: its plan calls a library")
    weights = {item.name: _tensor(item.tensor) for item in task.weights}
    inputs = tuple(_tensor(item.tensor) if item.tensor else item.scalar for item in task.inputs)
    clock, memory = Clock(), Memory()
    with _stubs(clock, memory):
        library = IdleDriver(clock, memory)
        runner = _runner(candidate, library)
        runner.prepare(weights)
        exported = _exported(candidate, library)
        exported(weights, inputs)
        return {
            "before": library.before,
            "judge_us": _best_us(lambda: runner(inputs, weights), clock),
            "export_us": _best_us(lambda: exported(weights, inputs), clock),
        }


def _tensor(spec: TensorSpec) -> torch.Tensor:
    return torch.empty(spec.shape, dtype=getattr(torch, spec.dtype.value))


@contextmanager
def _stubs(clock: Clock, memory: Memory) -> Iterator[None]:
    stream = "_cuda_getCurrentRawStream"
    with (
        patch.object(torch, "empty", memory.empty),
        patch.object(torch, "zeros", memory.zeros),
        patch.object(torch._C, stream, lambda _: 0, create=True),
    ):
        yield


def _runner(candidate: Candidate, library: IdleDriver) -> PlanRunner:
    """The judge's runner with its memory for timed calls, over the driver that launches nothing."""

    def load(source: KernelSource, *_: object) -> dict[str, CudaFunction]:
        return {
            item.name: CudaFunction(
                CheckedKernel(library, item.name, ctypes.c_void_p(), item.letters, 0), item, CPU
            )
            for item in source.functions
        }

    source = parse_kernel(candidate.kernel, "cuda")
    return PlanRunner(candidate, source, load, CPU, SpoiltMemory("cpu"))


def _exported(candidate: Candidate, library: IdleDriver) -> Callable[..., object]:
    """The plan as an export prints it, with the export's own kernels."""
    source = parse_kernel(candidate.kernel, "cuda")
    settings = {item.name: item.value for item in complete_settings(source, candidate.settings)}
    text = print_plan(candidate.plan, source.pointers, settings, has_grid=True)
    space: dict[str, Any] = {"torch": torch, "ceil_div": lambda a, b: -(-a // b)}
    exec(text, space)
    kernels = SimpleNamespace(device=CPU)
    for name, letters in source.letters.items():
        setattr(kernels, name, Kernel(library, name, ctypes.c_void_p(), letters, 0))
    run, prepare = space["run_plan"], space.get("prepare_weights")
    prepared: list[object] = []

    def called(weights: Mapping[str, torch.Tensor], inputs: Sequence[object]) -> object:
        if prepare is not None and not prepared:
            prepared.append(prepare(kernels, weights))
        return run(kernels, weights, prepared[0] if prepared else None, {}, *inputs)

    return called


def _best_us(call: Call, clock: Clock) -> float:
    return round(min(_batch_us(call, clock) for _ in range(BATCHES)), 2)


def _batch_us(call: Call, clock: Clock) -> float:
    taken = []
    for _ in range(CALLS):
        clock.at_ns = 0
        start = time.perf_counter_ns()
        call()
        taken.append(clock.at_ns - start)
    return mean(taken) / 1e3


if __name__ == "__main__":
    main()
