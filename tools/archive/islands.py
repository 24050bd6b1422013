"""Islands: populations of candidates that seldom mix, so that one success does not end variety.

Rounds take turns: with two islands the odd rounds grow one and the even rounds the other. What a
round starts from comes from its own island alone, except that now and then the best of the
neighbour joins. What was learnt (ledger, analyses) is everybody's; only the code is kept apart.
"""

from collections.abc import Iterable, Sequence

from kernelwright.tools.archive.ranking import ranked
from kernelwright.tools.archive.records import Standing
from kernelwright.tools.types import Idea

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
