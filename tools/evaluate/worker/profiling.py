"""Times the kernels of a candidate's call: by CUPTI's records on a GPU, by the clock on a CPU.

On a CPU its calls are counted first, without any clock around their parts.

Inputs and cold caches are the harness's, as when the candidate was timed.
Not covered on a CPU: work inside a plan that is neither a launch nor a library operator; all of it
together is the kernel `plan`.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from kernelwright.tools.candidates.run import PlanRunner
from kernelwright.tools.evaluate.messages import Profiled, ProfileRequest
from kernelwright.tools.evaluate.timing.cold import Flush
from kernelwright.tools.evaluate.verify.failures import rejection
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.evaluate.worker.counting import counted
from kernelwright.tools.evaluate.worker.station import Station
from kernelwright.tools.languages.loading import load_candidate
from kernelwright.tools.profile.names import plain_name
from kernelwright.tools.profile.spans import Span, kernel_times
from kernelwright.tools.profile.trace import device_spans
from kernelwright.tools.types import KernelTime, Missing

PLAN = "plan"
_CALLS = 3
_COPIES = ("memcpy", "memset")


def profiled(station: Station, request: ProfileRequest) -> Profiled:
    """The times of every kernel in a call, or why there are none."""
    try:
        runner = load_candidate(request.candidate, request.built, station.bench.device)
        weights = {name: w.clone() for name, w in station.bench.reference.weights().items()}
        runner.prepare(weights)
        if station.bench.device == "cuda":
            return _recorded(station, runner, weights)
        seen = counted(station.harness, runner, weights, station.bench.rules)
        times = _clocked(station, runner, weights)
        return Profiled(times=times, host=seen.host, uncounted=seen.missing)
    except Exception as error:
        return Profiled(missing=_missing(rejection(error).reason, "see its verdict"))


def not_timed(error: Exception) -> Profiled:
    """The reference could not be set up beside the judge's."""
    words = " ".join(str(error).split())[:200] or "out of memory"
    return Profiled(missing=_missing(words, "free memory of the device, or a smaller shape"))


def open_profiler() -> Profiled:
    """Load CUPTI, which takes seconds, before anybody waits for a candidate's times."""
    try:
        with _activity():
            torch.cuda.synchronize()
    except RuntimeError as error:
        return not_timed(error)
    return Profiled()


def _clocked(
    station: Station, runner: PlanRunner, weights: Mapping[str, Tensor]
) -> tuple[KernelTime, ...]:
    """Wall times of launches and library operators; what is left of a call is the plan's."""
    calls: list[list[Span]] = []

    def clock(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def timed(*args: object, **keywords: object) -> object:
            start = time.perf_counter_ns()
            result = call(*args, **keywords)
            spent = (time.perf_counter_ns() - start) / 1e6
            calls[-1].append(Span(kernel=plain_name(name), time_ms=spent))
            return result

        return timed

    def whole(arguments: Sequence[Argument]) -> object:
        calls.append([])
        start = time.perf_counter_ns()
        result = runner(arguments, weights)
        spent = (time.perf_counter_ns() - start) / 1e6
        rest = spent - sum(span.time_ms for span in calls[-1])
        calls[-1].append(Span(kernel=PLAN, time_ms=max(rest, 0.0)))
        return result

    runner.observe(clock)
    rules = station.bench.rules
    measured = station.harness.measure(
        whole, seconds=rules.screen_s, least=_CALLS, most=rules.screen_samples_max
    )
    own = {item.name for item in runner.source.functions}
    # The first ones warmed up.
    return kernel_times(calls[-len(measured.samples_ms) :], own, "wall")


def _recorded(station: Station, runner: PlanRunner, weights: Mapping[str, Tensor]) -> Profiled:
    """CUPTI's records of a few calls, each with cold caches."""
    sets, bench = station.harness.sets, station.bench
    cache_bytes = int(bench.hardware.cache_mib * 2**20)
    flush = Flush(bench.device, cache_bytes, needed=True, settle_s=bench.rules.settle_s)
    station.harness.warm(lambda arguments: runner(arguments, weights))
    calls: list[tuple[Span, ...]] = []
    for number in range(_CALLS):
        flush()
        torch.cuda.synchronize()
        with _activity() as profiler:
            kept = runner(sets[number % len(sets)], weights)
            torch.cuda.synchronize()
        del kept
        calls.append(device_spans(_trace(profiler)))
    if not any(calls):
        why = "torch's profiler recorded no kernel: CUPTI is not available to this process"
        return Profiled(missing=_missing(why, "end other profilers of the device, or run as root"))
    own = {item.name for item in runner.source.functions}
    launches = sum(span.kernel not in _COPIES for span in calls[-1])
    return Profiled(times=kernel_times(calls, own, "cupti"), launches=launches)


def _activity() -> torch.profiler.profile:
    activities = [torch.profiler.ProfilerActivity.CUDA]
    return torch.profiler.profile(activities=activities, acc_events=True)


def _trace(profiler: torch.profiler.profile) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return path.read_text(encoding="utf-8")


def _missing(why: str, remedy: str) -> Missing:
    return Missing(step="times", why=why, remedy=remedy)
