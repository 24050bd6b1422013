"""What a run spent of its time: on searching, and on measuring PyTorch's own ways and profiling."""

from dataclasses import dataclass

from kernelwright.graphs.run_view.events import EVENT, BaselinesMeasured, RegionsFound
from kernelwright.tools.archive import Archive


@dataclass(frozen=True)
class Spent:
    """Seconds of searching, seconds with baselines and profilers, and whether that was all."""

    searched_s: float = 0.0
    whole_s: float = 0.0
    over: bool = False


def measuring_baselines_s(archive: Archive) -> float:
    """Seconds that measuring PyTorch's own ways took in this run so far."""
    events = (EVENT.validate_json(item.payload) for item in archive.events())
    measured = (event for event in events if isinstance(event, BaselinesMeasured | RegionsFound))
    return sum(event.seconds for event in measured)


def spent_of(archive: Archive) -> Spent:
    """What a run's ended sessions spent, as `SearchContext` counts it."""
    whole_s = archive.spent_s()
    return Spent(whole_s - measuring_baselines_s(archive) - archive.profiling_s(), whole_s)
