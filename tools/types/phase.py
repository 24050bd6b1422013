"""Where the time of a task went."""

from collections.abc import Iterable

from kernelwright.tools.types.value import Value


class Phase(Value):
    """Seconds that one kind of step took.

    Attributes:
        name: What was done, such as `certify: verify tiny`; the words before the colon are the
            part of the work that it belongs to.
        seconds: On the wall's clock.
        cpu_s: Of all processors, in the process that did it and in compilers it waited for; 0
            where only waiting was measured.
        times: How often.
    """

    name: str
    seconds: float
    cpu_s: float = 0.0
    times: int = 1

    @property
    def part(self) -> str:
        """The part of the work, such as `certify`."""
        return self.name.split(":", maxsplit=1)[0]


def together(phases: Iterable[Phase]) -> tuple[Phase, ...]:
    """Phases of one name added up, in the order in which they first came."""
    sums: dict[str, Phase] = {}
    for item in phases:
        known = sums.get(item.name)
        sums[item.name] = item if known is None else _sum(known, item)
    return tuple(sums.values())


def _sum(one: Phase, two: Phase) -> Phase:
    return Phase(
        name=one.name,
        seconds=one.seconds + two.seconds,
        cpu_s=one.cpu_s + two.cpu_s,
        times=one.times + two.times,
    )
