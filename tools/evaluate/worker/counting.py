"""Counts what the processors do during a candidate's calls, and nothing that lies between them.

A few passes with a few events each, every pass over calls with cold caches as when the candidate
was timed; medians over calls. What cannot be counted is said with what would help.
"""

import errno
import time
from collections.abc import Mapping, Sequence
from statistics import median

from torch import Tensor

from kernelwright.tools.candidates.run import PlanRunner
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.timing.harness import Harness
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.profile.counting import Counter, counting
from kernelwright.tools.profile.events import CYCLES, PASSES, TASK_CLOCK, Event
from kernelwright.tools.profile.failures_host import not_counted
from kernelwright.tools.profile.kernel import Usage, fault_us, huge_pages, usage
from kernelwright.tools.types import HostCounters, Missing
from kernelwright.tools.types.value import Value

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
