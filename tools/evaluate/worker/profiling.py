"""Times, counts and records the kernels of a candidate's call.

`profiled` times them: by CUPTI's records on a GPU, by the clock on a CPU. On a CPU its calls are
counted first, without any clock around their parts. Inputs and cold caches are the harness's, as
when the candidate was timed. Not covered on a CPU: work inside a plan that is neither a launch nor
a library operator; all of it together is the kernel `plan`.

`counted` counts what the processors do during a candidate's calls, and nothing that lies between
them. A few passes with a few events each, every pass over calls with cold caches as when the
candidate was timed; medians over calls. What cannot be counted is said with what would help.

`recorded` writes down the launches of one call of a C++ candidate, so that another program can make
them again. Of each launch: which function, every storage that its tensors lie in as it was just
before, and the arguments. Integers of eight bytes throughout, as `tools.languages.cpp.sanitizers`
reads them.
"""

import ctypes
import errno
import struct
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import BinaryIO

import torch
from torch import Tensor

from kernelwright.tools.candidates.kernel_source import KernelFunction
from kernelwright.tools.candidates.run import PlanRunner
from kernelwright.tools.evaluate.messages import (
    LAUNCHES,
    LaunchesRecorded,
    Profiled,
    ProfileRequest,
    RecordRequest,
)
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.timing.harness import Harness
from kernelwright.tools.evaluate.timing.stopwatch import Flush
from kernelwright.tools.evaluate.verify.reasons import rejection
from kernelwright.tools.evaluate.verify.reference_runtime import Draw
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.evaluate.worker.task_runtime import TaskRuntime
from kernelwright.tools.languages import load_candidate
from kernelwright.tools.profile.host_counters import (
    CYCLES,
    PASSES,
    TASK_CLOCK,
    Counter,
    Event,
    Usage,
    counting,
    fault_us,
    huge_pages,
    not_counted,
    usage,
)
from kernelwright.tools.profile.measured import Span, device_spans, kernel_times
from kernelwright.tools.profile.ncu_report import plain_name
from kernelwright.tools.types import HostCounters, KernelTime, Missing
from kernelwright.tools.types.value import Value

_MOST_BYTES = 512 * 2**20
_SIGNED_MAX = 2**63


class _TooMuchError(Exception):
    """The launches hold more than a file of theirs may."""


def recorded(task_runtime: TaskRuntime, request: RecordRequest) -> LaunchesRecorded:
    """Write one call's launches on the task's own inputs down, or say why that cannot be."""
    runtime = task_runtime.runtime
    try:
        arguments = runtime.draw(Draw("task", request.seed))
        weights = {name: value.clone() for name, value in runtime.reference.weights().items()}
        runner = load_candidate(
            request.candidate, request.built, runtime.device, host=runtime.reference.host
        )
        runner.prepare(weights)
        with Path(LAUNCHES).open("wb") as file:
            recorder = _Recorder(file, runner.source.functions)
            runner.observe(recorder.around)
            runner(arguments, weights)
            recorder.finish()
    except _TooMuchError:
        return LaunchesRecorded(problem=f"its launches hold more than {_MOST_BYTES >> 20} MiB")
    except Exception as error:
        return LaunchesRecorded(problem=rejection(error).reason)
    return LaunchesRecorded()


class _Recorder:
    """Stands around every launch of a plan; the number of them is put in front at the end."""

    def __init__(self, file: BinaryIO, functions: Sequence[KernelFunction]) -> None:
        self._file = file
        self._functions = {item.name: (place, item) for place, item in enumerate(functions)}
        self._launches = 0
        self._word(0)

    def around(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        """The launch, written down before it is made; library operators are left alone."""
        if name not in self._functions:
            return call
        place, function = self._functions[name]

        def launch(values: Sequence[object], *more: object, **named: object) -> object:
            self._note(place, function, values)
            return call(values, *more, **named)

        return launch

    def finish(self) -> None:
        """Everything was launched."""
        self._file.seek(0)
        self._word(self._launches)

    def _note(self, place: int, function: KernelFunction, values: Sequence[object]) -> None:
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        storages = {item.untyped_storage().data_ptr(): item for item in tensors}
        self._word(place)
        self._word(len(storages))
        for start, tensor in storages.items():
            self._buffer(start, tensor.untyped_storage().nbytes())
        numbers = {start: number for number, start in enumerate(storages)}
        for parameter, value in zip(function.parameters, values, strict=True):
            real = parameter.scalar is not None and not parameter.scalar.is_integer
            self._file.write(_argument(value, numbers, real=real))
        self._launches += 1

    def _buffer(self, start: int, size: int) -> None:
        if self._file.tell() + size > _MOST_BYTES:
            raise _TooMuchError
        self._word(size)
        self._file.write(ctypes.string_at(start, size) if size else b"")

    def _word(self, value: int) -> None:
        self._file.write(struct.pack("q", value))


def _argument(value: object, numbers: Mapping[int, int], *, real: bool) -> bytes:
    """A buffer and the place in it, or a number's bits."""
    if isinstance(value, torch.Tensor):
        start = value.untyped_storage().data_ptr()
        return struct.pack("qq", numbers[start], value.data_ptr() - start)
    if not isinstance(value, int | float):
        raise TypeError(f"a launch with an argument of type {type(value).__name__}")
    if real:
        return struct.pack("dq", value, 0)
    return struct.pack("Qq" if value >= _SIGNED_MAX else "qq", int(value), 0)


_LEAST_CALLS = 3
_USAGE = tuple(Usage._fields)


class HostCounted(Value):
    """What was counted, and why the hardware's part of it is missing where it is."""

    host: HostCounters
    missing: Missing | None = None


def counted(
    harness: Harness, runner: PlanRunner, weights: Mapping[str, Tensor], rules: Rules
) -> HostCounted:
    """Count a candidate's calls on this machine's processors.

    Raises:
        LaunchRefused: When the plan cannot be carried out.
    """
    calls = _Calls(harness, runner, weights, rules)
    refused: dict[str, int] = {}
    fields: dict[str, float] = {}
    # The first pass tells whether the hardware counts at all; the others are its alone.
    for number, events in enumerate(PASSES):
        fields |= calls.counted(events, refused, first=number == 0)
        if CYCLES.field not in fields:
            break
    known: dict[str, object] = {"fault_us": fault_us(), "huge_pages": huge_pages()}
    host = HostCounters.model_validate(fields | known)
    if host.cycles is not None:
        return HostCounted(host=host)
    return HostCounted(host=host, missing=not_counted(refused.get(CYCLES.field, errno.ENOENT)))


class _Calls:
    """The candidate's calls, one pass of them after another."""

    def __init__(
        self,
        harness: Harness,
        runner: PlanRunner,
        weights: Mapping[str, Tensor],
        rules: Rules,
    ) -> None:
        self._harness, self._runner, self._weights = harness, runner, weights
        self._rules = rules
        self._seen: list[dict[str, float]] = []

    def counted(
        self, events: Sequence[Event], refused: dict[str, int], *, first: bool
    ) -> dict[str, float]:
        """Medians of a pass by field; errors of what was refused go into `refused`."""
        self._seen = []
        # Threads of the runtime must be there when the counters are handed out.
        self._harness.warm(lambda arguments: self._runner(arguments, self._weights))
        try:
            with counting(events) as counter:
                refused |= counter.refused
                calls = self._pass(counter)
        except OSError as error:
            refused |= dict.fromkeys((CYCLES.field, TASK_CLOCK.field), error.errno or errno.EIO)
            calls = self._pass(None)
        kept = self._seen[-calls:]
        fields = {name: _median(kept, name) for name in kept[0] if all(name in x for x in kept)}
        if first:
            return fields | {"calls": float(calls)}
        return {name: value for name, value in fields.items() if name not in ("time_ms", *_USAGE)}

    def _pass(self, counter: Counter | None) -> int:
        """Calls as when the candidate was timed; how many of the last ones count."""

        def once(arguments: Sequence[Argument]) -> object:
            before = usage()
            if counter is not None:
                counter.start()
            start = time.perf_counter_ns()
            result = self._runner(arguments, self._weights)
            took_ms = (time.perf_counter_ns() - start) / 1e6
            seen = counter.stop() if counter is not None else {}
            kernels = zip(_USAGE, before, usage(), strict=True)
            seen |= {name: float(after - first) for name, first, after in kernels}
            self._seen.append(seen | {"time_ms": took_ms})
            return result

        measured = self._harness.measure(
            once,
            seconds=self._rules.screen_s,
            least=_LEAST_CALLS,
            most=self._rules.screen_samples_max,
        )
        return len(measured.samples_ms)


def _median(seen: Sequence[Mapping[str, float]], name: str) -> float:
    return median(item[name] for item in seen)


PLAN = "plan"
_CALLS = 3
_COPIES = ("memcpy", "memset")


def profiled(task_runtime: TaskRuntime, request: ProfileRequest) -> Profiled:
    """The times of every kernel in a call, or why there are none."""
    try:
        runner = load_candidate(
            request.candidate,
            request.built,
            task_runtime.runtime.device,
            host=task_runtime.runtime.reference.host,
        )
        weights = {name: w.clone() for name, w in task_runtime.runtime.reference.weights().items()}
        runner.prepare(weights)
        if task_runtime.runtime.device == "cuda":
            return _recorded(task_runtime, runner, weights)
        seen = counted(task_runtime.harness, runner, weights, task_runtime.runtime.rules)
        times = _clocked(task_runtime, runner, weights)
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
    task_runtime: TaskRuntime, runner: PlanRunner, weights: Mapping[str, Tensor]
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
    rules = task_runtime.runtime.rules
    measured = task_runtime.harness.measure(
        whole, seconds=rules.screen_s, least=_CALLS, most=rules.screen_samples_max
    )
    own = {item.name for item in runner.source.functions}
    # The first ones warmed up.
    return kernel_times(calls[-len(measured.samples_ms) :], own, "wall")


def _recorded(
    task_runtime: TaskRuntime, runner: PlanRunner, weights: Mapping[str, Tensor]
) -> Profiled:
    """CUPTI's records of a few calls, each with cold caches."""
    sets, runtime = task_runtime.harness.sets, task_runtime.runtime
    cache_bytes = int(runtime.hardware.cache_mib * 2**20)
    flush = Flush(runtime.device, cache_bytes, needed=True, settle_s=runtime.rules.settle_s)
    task_runtime.harness.warm(lambda arguments: runner(arguments, weights))
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
