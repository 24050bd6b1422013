"""When a model is searched by regions unasked: the same rule on every device.

It goes by how many classes of regions can have a turn in the time, and by what these can bring of
what all of them can. What is searched too shortly finds nothing, and takes the time from a search
of the model as one. Not covered: whether the kernels that regions get beat those that the model as
one gets, which the judge says of the whole.
"""

from kernelwright.tools.types.outline import ModelRegions

# Of the time for searching, the regions' part; the rest is for the whole.
SHARE_OF_TIME = 0.7
# A region that takes less of the model's time is left alone.
LEAST_SHARE = 0.01
# What a class needs to be read, to have a few candidates compiled, and to have these timed. On two
# cores of a virtual machine the first candidates of a class were there after 10 to 20 s; beside a
# GPU a whole file of level 3 whose search takes 10 s has compiled and screened them in 6 to 10
# (benchmarks/results/h200/kernelbench_level3.jsonl).
_TURN_S = {"cpu": 20.0, "cuda": 8.0}
# With fewer places a module is searched as one: it is as good as one region.
_FEWEST_PLACES = 3
# Classes that have a turn must be able to bring this share of what all can.
_SHARE_OF_GAIN = 0.5


def turns(seconds: float, kind: str) -> int:
    """How many classes of regions can have a turn in a search of so many seconds on that device."""
    return int(SHARE_OF_TIME * seconds / _TURN_S.get(kind, max(_TURN_S.values())))


def too_little(regions: ModelRegions, turns: int) -> str:
    """Why searching so many classes would bring too little, in words; "" where it is worth it.

    Args:
        regions: a model's, the most promising first.
        turns: how many classes can have one.
    """
    hopeful = [item for item in regions.classes if item.share >= LEAST_SHARE]
    places = sum(len(item.regions) for item in hopeful)
    if places < _FEWEST_PLACES:
        return f"only {places} of its regions take {LEAST_SHARE:.0%} of the time"
    whole_ms = sum(item.gain_ms for item in hopeful)
    reached_ms = sum(item.gain_ms for item in hopeful[:turns])
    if reached_ms < _SHARE_OF_GAIN * whole_ms:
        return (
            f"the time is for {turns} of {len(hopeful)} regions that differ, which hold "
            f"{reached_ms / whole_ms:.0%} of what there is to gain"
        )
    return ""
