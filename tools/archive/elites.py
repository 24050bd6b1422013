"""The quality-diversity archive: the fastest correct candidate of every behaviour (MAP-Elites).

A pyribs archive over memory, compute and parallel strategy. It is made from the database whenever
it is needed, in order of writing, so a resumed run sees the elites that the dead one saw.

Islands: populations of candidates that seldom mix, so that one success does not end variety.

Rounds take turns: with two islands the odd rounds grow one and the even rounds the other. What a
round starts from comes from its own island alone, except that now and then the best of the
neighbour joins. What was learnt (ledger, analyses) is everybody's; only the code is kept apart.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import log
from types import MappingProxyType

import numpy

from kernelwright.tools.archive.behaviour import Behaviour, behaviour, is_timed, ranked
from kernelwright.tools.archive.records import Standing
from kernelwright.tools.types import Idea, Value


class Elite(Value):
    """The fastest correct candidate of one behaviour.

    `beaten` counts the candidates that were in its cell before it or lost to it: a cell with few
    is one that little is known about.
    """

    standing: Standing
    behaviour: Behaviour
    beaten: int

    @property
    def median_ms(self) -> float:
        """Its time."""
        return self.standing.evaluation.median_ms or 0.0


def elites(standings: Sequence[Standing]) -> tuple[Elite, ...]:
    """The elites of all judged candidates, the fastest first."""
    # Slow to import, as it brings scikit-learn and torch along; see `warm_up`.
    from ribs.archives import CategoricalArchive

    correct = [item for item in standings if is_timed(item.evaluation)]
    if not correct:
        return ()
    cells = [behaviour(item.candidate, item.evaluation) for item in correct]
    archive = CategoricalArchive(
        solution_dim=(), categories=_categories(cells), solution_dtype=numpy.int64
    )
    archive.add(
        list(range(len(correct))),
        [_objective(item) for item in correct],
        [_measures(cell) for cell in cells],
    )
    crowd = Counter(cells)
    held = [int(index) for index in archive.data("solution")]
    found = [
        Elite(standing=correct[i], behaviour=cells[i], beaten=crowd[cells[i]] - 1) for i in held
    ]
    return tuple(sorted(found, key=lambda elite: (elite.median_ms, elite.standing.number)))


def warm_up() -> None:
    """Import what `elites` needs; takes seconds, so call it where nobody waits or measures."""
    import ribs.archives  # noqa: F401


def parents(
    found: Sequence[Elite], count: int, improvements: Mapping[str, float] = MappingProxyType({})
) -> tuple[Elite, ...]:
    """Elites to go on from: the fastest, then those that are fast, little known and improving.

    Three ranks are added: for speed, for novelty (few others in the cell), and for improvement
    (how many times as fast as what it set out from: a line that paid may have more to give).
    Speed decides between equals.

    Args:
        found: Elites, the fastest first.
        count: How many to choose at most.
        improvements: By candidate, as `tools.archive.behaviour` measures it; 1 where unknown.
    """
    if not found:
        return ()
    rest = found[1:]
    by_novelty = sorted(range(len(rest)), key=lambda i: (rest[i].beaten, rest[i].median_ms))
    novelty = {index: rank for rank, index in enumerate(by_novelty)}
    gains = [improvements.get(elite.standing.candidate.id, 1.0) for elite in rest]
    # Equals share a rank, so that where nothing is known speed and novelty decide alone.
    steps = {gain: rank for rank, gain in enumerate(sorted(set(gains), reverse=True))}
    ranked = sorted(range(len(rest)), key=lambda i: i + novelty[i] + steps[gains[i]])
    return (found[0], *(rest[index] for index in ranked))[:count]


def _objective(item: Standing) -> float:
    """Pyribs maximises; equal steps of log time are equal steps of speed-up."""
    return -log(item.evaluation.median_ms or 1.0)


def _measures(cell: Behaviour) -> list[str]:
    return [cell.memory, cell.compute, cell.parallel]


def _categories(cells: Sequence[Behaviour]) -> list[list[str]]:
    return [sorted({_measures(cell)[axis] for cell in cells}) for axis in range(3)]


# Every so many visits of an island the best of its neighbour joins the parents.
MIGRATION = 3


def island(round: int, islands: int) -> int:
    """The island, from 0, that a round grows; rounds count from 1."""
    return (round - 1) % islands


def population(
    standings: Sequence[Standing], ideas: Iterable[Idea], round: int, islands: int
) -> tuple[Standing, ...]:
    """The candidates that a round may start from; none on the first visit of an island.

    A candidate lives where its idea was born: the tuner, which tunes the best of all in every
    round, moves nobody.
    """
    if islands == 1:
        return tuple(standings)
    born = {idea.id: idea.round for idea in ideas}
    here = island(round, islands)

    def home(item: Standing) -> int:
        return island(born.get(item.candidate.idea, item.round), islands)

    guests = set[str]()
    if _is_open(round, islands):
        neighbours = [item for item in standings if home(item) == (here - 1) % islands]
        guests = {item.candidate.id for item in ranked(neighbours)[:1]}
    return tuple(s for s in standings if home(s) == here or s.candidate.id in guests)


def _is_open(round: int, islands: int) -> bool:
    visits = (round - 1) // islands
    return visits > 0 and visits % MIGRATION == 0
