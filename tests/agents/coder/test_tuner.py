from collections.abc import Callable

from kernelwright.agents.coder.tuner import Tuning
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import Analysis, Candidate

MakeStanding = Callable[..., Standing]


def cost(candidate: Candidate) -> float:
    """Best at 128 threads and 4 lanes."""
    chosen = {setting.name: setting.value for setting in candidate.settings}
    return 1.0 + abs(chosen["THREADS"] - 128) / 64 + 4 / chosen["VECTOR"]


def asked(tuning: Tuning, count: int) -> list[Candidate]:
    found = []
    for _ in range(count):
        candidate = tuning.ask()
        if candidate is None:
            break
        tuning.tell(candidate.settings, cost(candidate))
        found.append(candidate)
    return found


def test_every_valid_setting_is_asked_once_and_then_none(standing: MakeStanding) -> None:
    start = standing(("rows=once",), 5.0).candidate
    tuning = Tuning(start, [(start.settings, 5.0)])
    found = asked(tuning, 99)
    assert len({candidate.id for candidate in found}) == len(found) == 7
    assert start.id not in {candidate.id for candidate in found}
    assert tuning.ask() is None
    best = min(found, key=cost)
    assert {s.name: s.value for s in best.settings} == {"THREADS": 128, "VECTOR": 4}


def test_the_same_measurements_lead_to_the_same_questions(standing: MakeStanding) -> None:
    start = standing(("rows=once",), 5.0).candidate
    runs = [asked(Tuning(start, [(start.settings, 5.0)], seed=4), 5) for _ in range(2)]
    assert runs[0] == runs[1]


def test_what_the_critic_prefers_is_asked_first(standing: MakeStanding) -> None:
    start = standing(("rows=once",), 5.0).candidate
    analysis = Analysis(round=1, claims=(), implies="", prefer=("THREADS=128", "VECTOR=4"))
    candidate = Tuning(start, [], analysis).ask()
    assert candidate is not None
    assert {s.name: s.value for s in candidate.settings} == {"THREADS": 128, "VECTOR": 4}


def test_a_tuned_candidate_knows_where_it_comes_from(standing: MakeStanding) -> None:
    start = standing(("rows=once",), 5.0).candidate
    candidate = Tuning(start, [(start.settings, 5.0)]).ask()
    assert candidate is not None
    assert candidate.parents == (start.id,)
    assert candidate.idea == start.idea
