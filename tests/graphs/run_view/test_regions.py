"""Events of a model's regions become rows of the one view of a run."""

from kernelwright.graphs.run_view import folded
from kernelwright.graphs.run_view.events import RegionSearched, RegionsFound
from kernelwright.graphs.run_view.figures import region_words, regions_words
from kernelwright.tools.types.outline import RegionShown

ONE = RegionShown(name="R1", words="add, layer_norm", places=23, share=0.2, before_ms=4.0)
ALONE = RegionShown(
    name="linear",
    words="linear",
    places=49,
    share=0.6,
    before_ms=12.0,
    state="left alone",
    why="stays with the library",
)


def test_what_came_of_a_region_takes_its_place():
    found = ONE.model_copy(update={"after_ms": 2.0, "state": "used", "run": "a-run"})
    view = folded([RegionsFound(regions=(ONE, ALONE)), RegionSearched(region=found)])
    assert view.regions == (found, ALONE)
    assert view.stage == "searching its regions"
    assert region_words(view.regions[0]) == (
        "R1 (add, layer_norm; in 23 places): 2.00x, 4.000 ms to 2.000 ms"
    )
    assert region_words(ALONE) == "linear (in 49 places): stays with the library"


def test_a_model_without_regions_is_said_to_have_none():
    begun, none = folded([]), RegionsFound(regions=(), seconds=7.0)
    view = folded([none])
    assert view.regions == ()
    assert view.stage == begun.stage  # none is searched
    assert regions_words(()) == "no regions were found in the model"
    assert regions_words((ONE,)) == "R1 20% (add, layer_norm)"
