"""Times one way in which PyTorch itself does a task."""

import time

from kernelwright.tools.evaluate.metering import Meter
from kernelwright.tools.evaluate.worker.station import Station
from kernelwright.tools.types import Baseline


def timed_baseline(station: Station, name: str, meter: Meter) -> Baseline:
    """Make one of PyTorch's ways and time it; eager beside itself as well, which tells the noise.

    Args:
        station: the task on its device.
        name: see `BaselineCalls`.
        meter: counts the seconds of each step.

    Raises:
        BaselineFailedError: it cannot be made.
    """
    rules = station.bench.rules
    meter.begin(f"baselines: build {name}")
    call = station.baselines.get(name)
    meter.begin(f"baselines: time {name}")
    notes: tuple[str, ...] = ()
    noise: float | None = None
    seconds, taken = rules.precise_s, tuple[float, ...]()
    if name == "eager":
        start = time.monotonic()
        again = station.harness.compare("eager", call, call, seconds=rules.calibrate_s)
        noise = abs(again.ratio - 1.0)
        # What was compared with itself has been timed; the rest of its time is for further samples.
        taken = again.baseline_samples_ms + again.candidate_samples_ms
        seconds -= time.monotonic() - start
        notes = (f"A/A ratio {again.ratio:.3f} [{again.ci95_low:.3f}, {again.ci95_high:.3f}]",)
    measurement = station.harness.measure(
        call,
        seconds=seconds,
        least=rules.pairs_min,
        most=rules.pairs_max,
        notes=notes,
        queued=name == "graph",
        taken=taken,
    )
    return Baseline(
        name=name,
        measurement=measurement,
        setup_s=station.baselines.setup_s.get(name, 0.0),
        noise=noise,
    )
