"""What lies between a candidate's time by the judge's clock and its kernels' own durations.

    python benchmarks/timing/clock_gap.py FILE [--hardware h200 | cpu] [--strategies L0=split_rows]
        [--seconds 1] [--out figures.jsonl]

The candidate of the strategies that are predicted fastest is timed on the judge's own inputs, in
turns among all of these ways, so that drift meets them alike:

  judged     inputs in turns, cache flushed by writing, issued while the device still flushes
  alone      the same on an idle device, so with the host's part: a single call
  one set    as judged, on the same inputs each time
  read       as judged, the cache flushed by reading, which leaves nothing to be written back
  warm       as judged, nothing flushed
  poisoned   as judged, and the memory of its answers overwritten before, as the judge does

On a GPU a profile of judged samples follows: when each kernel began and ended, from the first
kernel's begin on, in microseconds; medians. Not covered: what happens before the first kernel's
begin, which is `judged` less the profile's whole, and new values in inputs before every sample. It
runs the file in this process: use it on files that are trusted.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
from torch.profiler import ProfilerActivity, profile

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.codegen.library.kernel_library import repertoire_for
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.timing.harness import Harness
from kernelwright.tools.evaluate.timing.stopwatch import Flush, stopwatch
from kernelwright.tools.evaluate.verify.memory import SpoiltMemory
from kernelwright.tools.evaluate.verify.reference_runtime import ReferenceRuntime
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.hardware import detect
from kernelwright.tools.languages import Built, compile_candidate, load_candidate, new_candidate
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Candidate, Refusal, Task, TracePolicy

PROFILED = 20
Timed = Callable[[Sequence[Argument]], object]


class Ways:
    """One candidate and the ways to time it.

    Args:
        task: what it is a candidate for.
        hardware: the device.
        candidate: it.
        built: its kernels.
    """

    def __init__(self, task: Task, hardware: Hardware, candidate: Candidate, built: Built) -> None:
        runtime = ReferenceRuntime(task, hardware, Rules(), 0, nullcontext)
        self.device = runtime.device
        self._sets = Harness(runtime).sets
        self._memory = SpoiltMemory(runtime.device)
        runner = load_candidate(candidate, built, runtime.device, allocator=self._memory)
        weights = dict(runtime.reference.weights())
        runner.prepare(weights)
        self.call: Timed = lambda arguments: runner(arguments, weights)
        self._watch = stopwatch(runtime.device)
        cache = int(hardware.cache_mib * 2**20)
        self._flush = Flush(runtime.device, cache, needed=True, settle_s=Rules().settle_s)
        self._read = torch.zeros(2 * cache // 4, dtype=torch.int32, device=runtime.device)
        self._turn = 0

    def each(self) -> Mapping[str, Callable[[], float]]:
        """Every way, as what takes one sample in milliseconds."""
        return {
            "judged": lambda: self.sample(self._flush),
            "alone": lambda: self.sample(self._flush, alone=True),
            "one set": lambda: self.sample(self._flush, rotates=False),
            "read": lambda: self.sample(self._read.max),
            "warm": lambda: self.sample(lambda: None, rotates=False),
            "poisoned": self._poisoned,
        }

    def sample(
        self, flush: Callable[[], object], *, alone: bool = False, rotates: bool = True
    ) -> float:
        """One call's milliseconds."""
        self._turn += rotates
        inputs = self._sets[self._turn % len(self._sets) if rotates else 0]
        flush()
        work = partial(self.call, inputs)
        return self._watch.time_ms(work) if alone else self._watch.queued_ms(work)[0]

    def _poisoned(self) -> float:
        self._memory.spoil()
        return self.sample(self._flush)

    def kernels(self) -> list[tuple[str, float, float]]:
        """Each kernel of a judged sample: its name, its begin and its end in microseconds."""
        seen: list[list[tuple[str, float, float]]] = []
        for _ in range(PROFILED):
            inputs = self._sets[0]
            self._flush()
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CUDA]) as run:
                self.call(inputs)
                torch.cuda.synchronize()
            ours = [e for e in run.events() if e.device_type == torch.autograd.DeviceType.CUDA]
            ours.sort(key=lambda event: event.time_range.start)
            first = ours[0].time_range.start
            spans = [(e.name, e.time_range.start - first, e.time_range.end - first) for e in ours]
            seen.append(spans)
        usual = max(seen, key=lambda spans: sum(len(other) == len(spans) for other in seen))
        alike = [spans for spans in seen if len(spans) == len(usual)]
        return [
            (usual[n][0][:60], *(round(median(s[n][k] for s in alike), 1) for k in (1, 2)))
            for n in range(len(usual))
        ]


def main() -> None:
    """Time, profile, print."""
    words = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    words.add_argument("file", type=Path)
    words.add_argument("--hardware", default="h200", help="a profile's name, or cpu for this one")
    words.add_argument("--strategies", nargs="*", default=[], metavar="LOOP=NAME")
    words.add_argument("--seconds", type=float, default=1.0)
    words.add_argument("--out", type=Path)
    asked = words.parse_args()
    hardware = detect("cpu") if asked.hardware == "cpu" else hardware_profile(asked.hardware)
    ways = _ways(asked.file, hardware, dict(item.split("=", 1) for item in asked.strategies))
    taken: dict[str, list[float]] = {name: [] for name in ways.each()}
    for take in ways.each().values():  # warm-up
        take()
    end = time.monotonic() + asked.seconds
    while time.monotonic() < end:
        for name, take in ways.each().items():
            taken[name].append(take())
    figures: dict[str, object] = {
        name: round(median(samples), 4) for name, samples in taken.items()
    }
    row = {"file": asked.file.stem, "samples": len(taken["judged"]), **figures}
    if ways.device == "cuda":
        row["kernels"] = ways.kernels()
    print(json.dumps(row, indent=1))
    if asked.out is not None:
        with asked.out.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")


def _ways(path: Path, hardware: Hardware, chosen: dict[str, str]) -> Ways:
    task = trace(path.read_text(encoding="utf-8"), str(path), TracePolicy())
    if isinstance(task, Refusal):
        raise SystemExit(task.sentence)
    draft = repertoire_for(task, hardware).draft(chosen)
    language = "cuda" if hardware.kind == "cuda" else "cpp"
    candidate = new_candidate(language, draft.kernel, draft.plan)
    compiling = compile_candidate(candidate, architecture=hardware.architecture, timeout_s=120)
    built = asyncio.run(compiling)
    if not isinstance(built, Built):
        raise SystemExit(built.message)
    return Ways(task, hardware, candidate, built)


if __name__ == "__main__":
    main()
