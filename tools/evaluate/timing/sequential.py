"""When a comparison has seen enough, so that looking often does not make a difference out of none.

The ratios are looked at after fixed numbers of pairs, each time with an interval of its own; the
chances that any of them misses add up to at most 5 %. So the interval at which a comparison stops
is one of at least 95 %, whatever made it stop. Looks on the way are strict and cost the last one
little (Haybittle 1971, Peto et al. 1976: "stopping rules for interim analyses"; the sum is
Bonferroni's). A comparison that ends because its time is over takes what is left for its last look,
as the clock does not know the ratio.
"""

from collections.abc import Sequence
from math import inf

from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.timing.statistics import RatioInterval, ratio_interval

LEVEL = 0.05


def looks(rules: Rules) -> tuple[int, ...]:
    """After how many pairs to look: from the fewest, twice as many each time, and at the last."""
    found, pairs = [], rules.pairs_min
    while pairs < rules.pairs_max:
        found.append(pairs)
        pairs *= 2
    return (*found, rules.pairs_max)


class Sequence95:
    """One comparison's looks, and the interval at the last of them.

    Args:
        rules: How many pairs, and what is precise enough.
        noise: What a comparison of a baseline with itself was off by, as a share of 1.
        beyond: An interval wholly above this is of a baseline that is not the hardest to beat.
    """

    def __init__(self, rules: Rules, noise: float, beyond: float = inf) -> None:
        self._beyond = beyond
        self._rules = rules
        self._noise = noise
        self._left = list(looks(rules))
        self._spent = 0.0

    @property
    def next_look(self) -> int:
        """After how many pairs to look again."""
        return self._left[0]

    def is_enough(self, baseline_ms: Sequence[float], candidate_ms: Sequence[float]) -> bool:
        """Look at the pairs there are, and say whether more would change nothing."""
        self._left.pop(0)
        if not self._left:
            return True
        level = self._rules.look_level
        found = ratio_interval(baseline_ms, candidate_ms, level=level)
        if settled(found, self._rules, self._noise, self._beyond):
            return True
        self._spent += level
        return False

    def interval(
        self, baseline_ms: Sequence[float], candidate_ms: Sequence[float], *, early: bool
    ) -> RatioInterval:
        """The interval to report; `early` says that a look ended it, not pairs or time."""
        level = self._rules.look_level if early else LEVEL - self._spent
        return ratio_interval(baseline_ms, candidate_ms, level=level)


def settled(found: RatioInterval, rules: Rules, noise: float, beyond: float = inf) -> bool:
    """Whether an interval is narrow, and on one side of 1 or within what counts as equal.

    Narrow is wider beside a baseline that another one was seen to beat (`beyond`): the headline is
    not against it.
    """
    width = rules.behind_width if found.low > beyond else rules.interval_width
    if found.high - found.low > width * found.median:
        return False
    apart = found.low > 1.0 + noise or found.high < 1.0 / (1.0 + noise)
    equal = found.low > 1.0 - rules.equal_share and found.high < 1.0 + rules.equal_share
    return apart or equal
