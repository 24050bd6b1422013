"""The fastest correct candidate of every behaviour (MAP-Elites), and the order of speed among them.

The elites are kept by memory, compute and parallel strategy. They are made from the database
whenever they are needed, in order of writing, so a resumed run sees those that the dead one saw.

Order: compared pair by pair with eager, a candidate has a ratio that a drifting clock or a busy
host spoils far less than its time. So candidates with such a ratio rank by it, and before those
that were only screened, which rank by time.

Behaviour: three words, for memory, arithmetic and the machine. What was measured goes before what
the writer declared: registers and static shared memory come from the compiler's report, dynamic
shared memory from the launches, and only where a language has no such report does the declared
label stand alone. Nothing here reads source text.

Moves between behaviours: from which cell a candidate set out, where it arrived, what it brought. It
sets out from its nearest ancestor of another idea, so a repair or a tuned setting belongs to the
move that its idea began. Not here: moves of candidates written from nothing.

Islands: populations of candidates that seldom mix, so that one success does not end variety. They
take turns by rounds: with two islands the odd rounds grow one and the even rounds the other. What a
round starts from comes from its own island alone, except that now and then the best of the
neighbour joins. What was learnt (ledger, analyses) is everybody's; only the code is kept apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import inf
from types import MappingProxyType

from kernelwright.tools.archive.database import Standing
from kernelwright.tools.types import (
    Candidate,
    CompileReport,
    Evaluation,
    Idea,
    LaunchShape,
    Value,
    Verdict,
)
from kernelwright.tools.types.idea import dynamic_bytes

YARDSTICK = "eager"


def ratio(evaluation: Evaluation) -> float | None:
    """Eager's time over the candidate's, pair by pair; None when they were not compared."""
    if not evaluation.comparisons:
        return None
    found = (item.ratio for item in evaluation.comparisons if item.baseline == YARDSTICK)
    return next(found, None)


def ranked(standings: Iterable[Standing]) -> list[Standing]:
    """The correct and timed candidates, the fastest first; the earlier one of equals.

    Those that compute in less than the task asks and the person allowed are not among them.
    """
    return _in_order(item for item in standings if not item.evaluation.verification.apart)


def apart(standings: Iterable[Standing]) -> list[Standing]:
    """The correct ones of lower precision, likewise in order: a ranking of their own."""
    return _in_order(item for item in standings if item.evaluation.verification.apart)


def _in_order(standings: Iterable[Standing]) -> list[Standing]:
    correct = [item for item in standings if is_timed(item.evaluation)]
    return sorted(correct, key=lambda item: (*_order(item.evaluation), item.number))


def is_timed(evaluation: Evaluation) -> bool:
    """Whether the candidate is correct and its time is known."""
    return evaluation.verdict is Verdict.CORRECT and evaluation.median_ms is not None


def _order(evaluation: Evaluation) -> tuple[int, float]:
    against = ratio(evaluation)
    return (1, evaluation.median_ms or 0.0) if against is None else (0, -against)


UNKNOWN = "unknown"
# Loops of one strategy that are each named.
_FEW_LOOPS = 3
# Registers a thread at which occupancy changes on every NVIDIA device of the last ten years.
REGISTER_STEPS = (32, 64, 128, 255)
SHARED_STEPS_BYTES = (0, 1024, 16384, 49152)


class Behaviour(Value):
    """A cell of the quality-diversity archive."""

    memory: str
    compute: str
    parallel: str


def declared(candidate: Candidate) -> dict[str, str]:
    """The `name=value` words that the writer of a candidate gave it."""
    return dict(_words(candidate.strategies))


def strategy_words(strategies: Sequence[str]) -> str:
    """Such words as a person reads them: of many loops with one strategy the first, and how many.

    A model of twelve layers has a hundred loops, and some ten kinds of them.
    """
    loops: dict[str, list[str]] = {}
    for text in strategies:
        name, _, value = text.partition("=")
        loops.setdefault(text if name in Behaviour.model_fields else value, []).append(text)
    parts = (
        [f"{of[0]} (and {len(of) - 1} more)"] if len(of) > _FEW_LOOPS else of
        for of in loops.values()
    )
    return ", ".join(text for part in parts for text in part)


def behaviour(candidate: Candidate, evaluation: Evaluation) -> Behaviour:
    """The cell that an evaluated candidate falls into."""
    return _cell(candidate.strategies, evaluation.reports, evaluation.launches)


@lru_cache(maxsize=4096)
def _cell(
    strategies: tuple[str, ...],
    reports: tuple[CompileReport, ...],
    launches: tuple[LaunchShape, ...],
) -> Behaviour:
    """Asked again and again for the same candidates, in every round of a long search."""
    words, measured = _words(strategies), outcomes(reports, launches)
    memory = [words.get("memory", UNKNOWN)]
    if measured.get("shared", "<= 0") != "<= 0":
        memory.append(f"shared {measured['shared']} bytes")
    if measured.get("spills") == "yes":
        memory.append("spills")
    compute = [words.get("compute", UNKNOWN)]
    if "registers" in measured:
        compute.append(f"registers {measured['registers']}")
    return Behaviour(
        memory=", ".join(memory),
        compute=", ".join(compute),
        parallel=words.get("parallel", UNKNOWN),
    )


def outcomes(
    reports: tuple[CompileReport, ...], launches: tuple[LaunchShape, ...] = ()
) -> dict[str, str]:
    """What a candidate cost, in coarse steps, so that near-equal kernels compare as equal.

    Shared memory is static and dynamic together, of the kernel that takes most.
    """
    found = {}
    registers = [report.registers for report in reports if report.registers is not None]
    if registers:
        found["registers"] = _step(max(registers), REGISTER_STEPS)
    spills = [report.spill_bytes for report in reports if report.spill_bytes is not None]
    if spills:
        found["spills"] = "yes" if max(spills) else "no"
    shared = [
        report.shared_bytes + dynamic_bytes(report.kernel, launches)
        for report in reports
        if report.shared_bytes is not None
    ]
    if shared:
        found["shared"] = _step(max(shared), SHARED_STEPS_BYTES)
    return found


@lru_cache(maxsize=4096)
def _words(strategies: tuple[str, ...]) -> Mapping[str, str]:
    return dict(text.split("=", 1) for text in strategies if "=" in text)


def _step(value: int, limits: tuple[int, ...]) -> str:
    fits = next((limit for limit in limits if value <= limit), None)
    return f"<= {fits}" if fits is not None else f"> {limits[-1]}"


class Transition(Value):
    """What one idea's way from one ancestor came to, by its fastest candidate.

    `gain` is the ancestor's time over the candidate's, above 1 for a gain; None when no candidate
    was correct. `tried` and `correct` count the idea's candidates from that ancestor.
    """

    before: Behaviour
    after: Behaviour
    source: str
    candidate: str
    idea: str
    round: int
    tried: int
    correct: int
    gain: float | None = None


def transitions(standings: Sequence[Standing]) -> tuple[Transition, ...]:
    """Every move of a search, in the order in which the ideas were first judged."""
    known = {item.candidate.id: item for item in standings}
    grouped: dict[tuple[str, str], list[Standing]] = {}
    for item in standings:
        source = origin(item, known)
        if source is not None:
            grouped.setdefault((item.candidate.idea, source.candidate.id), []).append(item)
    return tuple(_transition(known[source], of) for (_, source), of in grouped.items())


def origin(item: Standing, known: Mapping[str, Standing]) -> Standing | None:
    """The nearest correct ancestor of another idea; None when a candidate began from nothing."""
    seen = {item.candidate.id}
    at = _parent(item, known)
    while at is not None and at.candidate.id not in seen:
        if at.candidate.idea != item.candidate.idea and is_timed(at.evaluation):
            return at
        seen.add(at.candidate.id)
        at = _parent(at, known)
    return None


def gain(before: Evaluation, after: Evaluation) -> float | None:
    """How many times as fast the second is, like compared with like; None where one has no time.

    Pair by pair with eager where both were compared so, else by screened times where both have
    them, else by whatever times there are.
    """
    first, second = ratio(before), ratio(after)
    if first is not None and second is not None:
        return second / first
    if before.screen and after.screen:
        return before.screen.median_ms / after.screen.median_ms
    if before.median_ms is None or after.median_ms is None:
        return None
    return before.median_ms / after.median_ms


def improvements(standings: Iterable[Standing]) -> dict[str, float]:
    """By id, how many times as fast each correct candidate is as the one it set out from."""
    known = {item.candidate.id: item for item in standings}
    found = {}
    for id, item in known.items():
        source = origin(item, known) if is_timed(item.evaluation) else None
        brought = gain(source.evaluation, item.evaluation) if source else None
        if brought is not None:
            found[id] = brought
    return found


def _parent(item: Standing, known: Mapping[str, Standing]) -> Standing | None:
    return next((known[id] for id in item.candidate.parents if id in known), None)


def _transition(source: Standing, of: Sequence[Standing]) -> Transition:
    gains = [
        (brought, item)
        for item in of
        if is_timed(item.evaluation)
        and (brought := gain(source.evaluation, item.evaluation)) is not None
    ]
    brought, reached = max(gains, key=lambda pair: pair[0]) if gains else (None, of[-1])
    return Transition(
        before=behaviour(source.candidate, source.evaluation),
        after=behaviour(reached.candidate, reached.evaluation),
        source=source.candidate.id,
        candidate=reached.candidate.id,
        idea=reached.candidate.idea,
        round=of[0].round,
        tried=len(of),
        correct=len(gains),
        gain=brought,
    )


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
    """The elites of all judged candidates, the fastest first; of equals the earlier one."""
    correct = [item for item in standings if is_timed(item.evaluation)]
    cells: dict[Behaviour, list[Standing]] = {}
    for item in correct:
        cells.setdefault(behaviour(item.candidate, item.evaluation), []).append(item)
    found = [
        Elite(
            standing=min(held, key=lambda item: item.evaluation.median_ms or inf),
            behaviour=cell,
            beaten=len(held) - 1,
        )
        for cell, held in cells.items()
    ]
    return tuple(sorted(found, key=lambda elite: (elite.median_ms, elite.standing.number)))


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
        improvements: By candidate, as `tools.archive.elites` measures it; 1 where unknown.
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
