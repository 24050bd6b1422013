"""What an answer earns, and how much better it is than its group.

The judge alone decides. What is not correct earns nothing, and neither does whatever its detectors
call a cheat or too fast to be true: they are a wall, and no score stands against them. What is
correct earns something, and more for its speed: the logarithm of the speed-up, where a difference
within the noise counts for little and nothing counts beyond four times, so that one lucky time
teaches no more than a sound one. An advantage is the reward less the mean of the others in the
group (leave one out), which needs no division by a spread that is noise itself.
"""

from collections.abc import Sequence
from math import log2

from kernelwright.tools.learning.judging import Worth

_CORRECT = 0.4  # for the slowest correct answer; the fastest earns 1
_SLOWEST, _FASTEST = -1.0, 2.0  # doublings
_NOISE = 0.1  # a difference of so many doublings counts half


def reward(worth: Worth) -> float:
    """From 0 to 1; 0 for everything that is not correct, cheats among them."""
    if not worth.is_correct:
        return 0.0
    share = (smoothed(worth.speedup) - _SLOWEST) / (_FASTEST - _SLOWEST)
    return _CORRECT + (1 - _CORRECT) * share


def smoothed(speedup: float | None) -> float:
    """Doublings of speed, damped near none and clipped; an untimed answer counts as the slowest."""
    if speedup is None or speedup <= 0:
        return _SLOWEST
    doublings = log2(speedup)
    damped = doublings * abs(doublings) / (abs(doublings) + _NOISE)
    return min(_FASTEST, max(_SLOWEST, damped))


def advantages(rewards: Sequence[float], group: int) -> list[float]:
    """Each reward less the mean of the other ones of its group, groups one after the other."""
    found: list[float] = []
    for first in range(0, len(rewards), group):
        part = rewards[first : first + group]
        total = sum(part)
        found += [one - (total - one) / (len(part) - 1) for one in part]
    return found
