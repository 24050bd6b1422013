"""Checks and times the candidates of one loop on the device, as a screening does.

The truth is the module in float64; what is wrong is decided as the judge does it, by PyTorch's own
error. The clock is the judge's too: device events around a call that was queued behind a flush of
the L2, taken again until the host was ahead.
"""

import torch

from kernelwright.tools.candidates import ContractError, DeviceError, LaunchRefused
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.surfaces import Point
from kernelwright.tools.evaluate.timing.statistics import median, percentile
from kernelwright.tools.evaluate.timing.stopwatch import Call, Flush, stopwatch
from kernelwright.tools.evaluate.verify.errors import distance
from kernelwright.tools.languages import Built, CompileFailure, load_candidate
from kernelwright.tools.tasks import Reference, draw
from kernelwright.tools.types import Candidate, Task, Verdict

# Of a screening, and of a second look at what was fast.
SAMPLES, MORE_SAMPLES = 9, 45
# Nothing is learnt from timing what takes this many times as long as the fastest more often.
_HOPELESS = 3.0
_CHUNK = 1 << 26


class Clock:
    """Samples calls on one device."""

    def __init__(self, device: str, cache_bytes: int) -> None:
        self._stopwatch = stopwatch(device)
        self._flush = Flush(device, cache_bytes, needed=True, settle_s=0.001)
        self._hold_ms, self._most_ms = 0.0, Rules().hold_max_ms

    def samples_ms(self, call: Call, least_ms: float, most: int = SAMPLES) -> list[float]:
        """So many samples; two of a call that is hopeless beside `least_ms`."""
        call()
        found: list[float] = []
        while len(found) < most:
            found.append(self._sample_ms(call))
            if len(found) == 2 and median(found) > _HOPELESS * least_ms:
                break
        return found

    def _sample_ms(self, call: Call) -> float:
        while True:
            self._flush(self._hold_ms)
            elapsed_ms, ahead = self._stopwatch.queued_ms(call)
            if ahead or self._hold_ms >= self._most_ms:
                return elapsed_ms
            self._hold_ms = min(max(2 * self._hold_ms, 0.5), self._most_ms)


class Loop:
    """One loop with its inputs and its truth on the device."""

    def __init__(
        self, name: str, task: Task, device: str, clock: Clock, samples: int = SAMPLES
    ) -> None:
        self._samples = samples
        self._name, self._device, self._clock = name, device, clock
        reference = Reference.build(task, device)
        self._args = draw(task, "task", 0, device)
        self._weights = reference.weights()
        self._own = reference.forward(self._args)
        self._truth = [one.clone() for one in reference.double().forward(self._args)]
        self._least_ms = float("inf")
        self._forward = reference.forward
        self._rules = Rules()

    def eager(self) -> Point:
        """PyTorch's own time."""
        with torch.no_grad():
            times = self._clock.samples_ms(lambda: self._forward(self._args), float("inf"))
        return self._timed(Point(loop=self._name, way=-1), times)

    def measured(self, point: Point, candidate: Candidate, built: Built | CompileFailure) -> Point:
        """The point with what came of it.

        Raises:
            DeviceError: when the device reports an error; its context may be lost.
        """
        if isinstance(built, CompileFailure):
            return _failed(point, built.verdict, built.message)
        point = point.model_copy(update={"reports": built.reports})
        try:
            return self._run(point, candidate, built)
        except (ContractError, LaunchRefused) as error:
            return _failed(point, Verdict.LAUNCH_ERROR, str(error))
        except torch.OutOfMemoryError as error:
            return _failed(point, Verdict.OUT_OF_MEMORY, str(error))

    def _run(self, point: Point, candidate: Candidate, built: Built) -> Point:
        runner = load_candidate(candidate, built, self._device)
        runner.prepare(self._weights)
        outputs = runner(self._args, self._weights)
        ratio = max(map(self._error_ratio, outputs, self._own, self._truth))
        del outputs
        launches = runner.launches(self._args, self._weights)
        point = point.model_copy(update={"error_ratio": _short(ratio), "launches": launches})
        if not ratio <= self._rules.error_bound:
            words = f"{ratio:.3g} times PyTorch's own error"
            return _failed(point, Verdict.WRONG_RESULT, words)
        times = self._clock.samples_ms(
            lambda: runner(self._args, self._weights), self._least_ms, self._samples
        )
        self._least_ms = min(self._least_ms, median(times))
        return self._timed(point, times)

    def _timed(self, point: Point, times: list[float]) -> Point:
        found = {
            "median_ms": _short(median(times)),
            "p10_ms": _short(percentile(times, 10)),
            "p90_ms": _short(percentile(times, 90)),
            "samples": len(times),
        }
        return point.model_copy(update=found)

    def _error_ratio(self, got: torch.Tensor, own: torch.Tensor, truth: torch.Tensor) -> float:
        """The judge's ratio; of few elements PyTorch's own error says little, and counts more."""
        if got.shape != own.shape or got.dtype != own.dtype:
            return float("inf")
        if not got.is_floating_point():
            return 0.0 if torch.equal(got, own) else float("inf")
        few = own.numel() <= self._rules.few_elements
        rounding = 16 * torch.finfo(own.dtype).eps if few else 0.0
        return distance(got, own, truth, _CHUNK, rounding).ratio


def context_is_lost() -> bool:
    """Whether nothing can run on the GPU from this process any more."""
    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def crashed(point: Point, error: Exception) -> Point:
    """What a point comes to whose call raised."""
    verdict = Verdict.ILLEGAL_ACCESS if isinstance(error, DeviceError) else Verdict.CRASHED
    return _failed(point, verdict, f"{type(error).__name__}: {error}")


def _failed(point: Point, verdict: Verdict, reason: str) -> Point:
    return point.model_copy(update={"verdict": verdict, "reason": reason[:200]})


def _short(value: float) -> float:
    """Six digits are more than a timer has."""
    return float(f"{value:.6g}")
