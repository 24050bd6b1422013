"""Words about the regions of a large model."""

from collections.abc import Sequence

from kernelwright.graphs.run_view.events import milliseconds
from kernelwright.tools.types.outline import RegionShown


def region_words(region: RegionShown) -> str:
    """What came of a region in one line, as `R1 (add, layer_norm; in 23 places): 1.84x`."""
    places = "in one place" if region.places == 1 else f"in {region.places} places"
    came = region.why
    if region.after_ms:
        times = f"{milliseconds(region.before_ms)} to {milliseconds(region.after_ms)}"
        came = f"{region.before_ms / region.after_ms:.2f}x, {times}"
        came = came if region.state == "used" or not region.why else f"{came}; {region.why}"
    what = places if region.words == region.name else f"{region.words}; {places}"
    return f"{region.name} ({what}): {came or region.state}"


def regions_words(regions: Sequence[RegionShown]) -> str:
    """Where the time goes, the largest shares first."""
    largest = sorted(regions, key=lambda item: -item.share)[:4]
    told = (f"{item.name} {item.share:.0%} ({item.words})" for item in largest)
    return ", ".join(told)
