"""What came of a class of regions, and how a person sees it."""

from pathlib import Path

from kernelwright.graphs.regions.listing import Listed
from kernelwright.tools.archive import Archive
from kernelwright.tools.archive.elites import YARDSTICK
from kernelwright.tools.types import Candidate
from kernelwright.tools.types.outline import LeftAlone, RegionClass, RegionShown, RegionState
from kernelwright.tools.types.value import Value


class RegionResult(Value):
    """What the search over a class of regions found; `ratio` is eager's time over its own."""

    run: str = ""
    candidate: Candidate | None = None
    ratio: float = 0.0
    low: float = 0.0
    why: str = ""

    @property
    def faster(self) -> bool:
        """Whether it is certainly ahead of eager."""
        return self.candidate is not None and self.low > 1.0

    def after_ms(self, item: RegionClass) -> float | None:
        """What all places of its class take by it; None where nothing was found."""
        return item.time_ms / self.ratio if self.candidate and self.ratio > 0 else None


def result_of(run: str, home: Path) -> RegionResult:
    """The best of a region's run, by its comparison with eager."""
    archive = Archive.open(run, home)
    try:
        best = archive.best()
    finally:
        archive.close()
    if best is None:
        return RegionResult(run=run, why="no candidate was correct")
    against = (c for c in best.evaluation.comparisons if c.baseline == YARDSTICK)
    compared = next(against, None)
    if compared is None:
        return RegionResult(run=run, why="no candidate was compared with eager in time")
    return RegionResult(
        run=run,
        candidate=best.candidate,
        ratio=compared.ratio,
        low=compared.ci95_low,
        why="" if compared.ci95_low > 1.0 else "nothing was certainly faster than eager",
    )


def all_shown(found: Listed) -> tuple[RegionShown, ...]:
    """Every class before its turn, then what is left alone."""
    assert found.regions is not None
    shown = [result_shown(item, RegionResult(), in_use=False) for item in found.regions.classes]
    return (*shown, *map(_alone, found.regions.left))


def _alone(kind: LeftAlone) -> RegionShown:
    return RegionShown(
        name=kind.words,
        words=kind.words,
        places=kind.calls,
        share=kind.share,
        before_ms=kind.time_ms,
        state="left alone",
        why=kind.why,
    )


def result_shown(item: RegionClass, result: RegionResult, *, in_use: bool) -> RegionShown:
    """A class with its result; `in_use` where a candidate for the whole is made of it."""
    state: RegionState = "left alone" if result.why else "waiting"
    if result.run:
        state = "used" if in_use else "searched"
    return RegionShown(
        name=item.name,
        words=item.words,
        places=len(item.regions),
        share=item.share,
        before_ms=item.time_ms,
        after_ms=result.after_ms(item),
        state=state,
        why=result.why,
        run=result.run,
    )
