import random
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from kernelwright.agents.critic.contrast import (
    Sample,
    buckets,
    differences,
    exemplars,
    samples,
)
from kernelwright.agents.critic.critic import CriticInput, PlaybookCritic
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import Analysis, Prediction

MakeStanding = Callable[..., Standing]


def sample(number: int, ms: float) -> Sample:
    return Sample(
        candidate=f"c{number}", median_ms=ms, implementation="k", tunables=(), attributes=()
    )


def fast_and_slow(standing: MakeStanding) -> tuple[Standing, ...]:
    return (
        standing(("rows=once", "memory=on chip"), 1.0, threads=64),
        standing(("rows=once", "memory=on chip"), 1.1, threads=128),
        standing(("rows=twice", "memory=streams"), 3.0, threads=64),
        standing(("rows=twice", "memory=streams"), 3.2, threads=128),
    )


async def test_the_difference_that_explains_the_gap_is_named_with_its_numbers(
    standing: MakeStanding,
) -> None:
    standings = fast_and_slow(standing)
    analysis = await PlaybookCritic().critique(CriticInput(round=1, standings=standings))
    claim = next(c for c in analysis.claims if "memory=on chip" in c.words)
    assert claim.faster in {item.candidate.id for item in standings[:2]}
    assert claim.slower in {item.candidate.id for item in standings[2:]}
    assert "median with on chip: 1.05 ms over 2" in claim.numbers
    assert "memory=on chip" in analysis.prefer
    assert "memory=streams" in analysis.avoid
    predicted = next(p for p in analysis.predictions if p.attribute == "memory")
    assert 1.1 < predicted.below_ms < 3.0


async def test_a_tunable_is_contrasted_within_one_kernel(standing: MakeStanding) -> None:
    standings = (
        standing(("rows=once",), 1.0, threads=256),
        standing(("rows=twice",), 3.0, threads=64),
    )
    analysis = await PlaybookCritic().critique(CriticInput(round=1, standings=standings))
    assert not [word for word in analysis.prefer if word.startswith("THREADS")]
    more = (*standings, standing(("rows=twice",), 2.0, threads=256))
    analysis = await PlaybookCritic().critique(CriticInput(round=1, standings=more))
    assert "THREADS=256" in analysis.prefer


async def test_predictions_are_scored_by_what_was_written_after_them(
    standing: MakeStanding,
) -> None:
    critic, standings = PlaybookCritic(), fast_and_slow(standing)
    first = await critic.critique(CriticInput(round=1, standings=standings))
    later = (*standings, standing(("rows=once", "memory=on chip"), 0.9, round=2, vector=2))
    second = await critic.critique(CriticInput(round=2, standings=later, analyses=(first,)))
    scored = next(p for p in second.predictions if p.made_in_round == 1 and p.attribute == "memory")
    assert scored.held is True
    assert scored.measured_ms == 0.9
    assert second.predictions_held == second.predictions_checked > 0


async def test_an_attribute_whose_predictions_failed_is_no_longer_believed(
    standing: MakeStanding,
) -> None:
    standings = fast_and_slow(standing)
    failed = tuple(
        Prediction(words="w", attribute=name, value="v", below_ms=1.0, made_in_round=0, held=False)
        for name in ("memory", "rows")
        for _ in range(3)
    )
    earlier = Analysis(round=0, claims=(), implies="", predictions=failed)
    critic_input = CriticInput(round=1, standings=standings, analyses=(earlier,))
    analysis = await PlaybookCritic().critique(critic_input)
    assert not [word for word in analysis.prefer if word.startswith(("memory", "rows"))]
    assert analysis.predictions_checked == 6
    assert analysis.predictions_held == 0


async def test_what_failed_every_time_is_advised_against(standing: MakeStanding) -> None:
    standings = (
        standing(("rows=once",), 1.0),
        standing(("rows=twice",), None, threads=64),
        standing(("rows=twice",), None, threads=128),
    )
    analysis = await PlaybookCritic().critique(CriticInput(round=1, standings=standings))
    assert "rows=twice" in analysis.avoid
    assert "rows=twice failed every time: it is off" in analysis.implies


def layers(strategy: str) -> tuple[str, ...]:
    """Twelve loops of equal layers, in the order of their names as texts."""
    return tuple(sorted(f"L{number}={strategy}" for number in range(2, 14)))


async def test_loops_of_equal_layers_are_one_difference(standing: MakeStanding) -> None:
    standings = (
        standing((*layers("once"), "L1=tiled"), 1.0, threads=64),
        standing((*layers("once"), "L1=flat"), 1.1, threads=128),
        standing((*layers("twice"), "L1=tiled"), 3.0, threads=64),
        standing((*layers("twice"), "L1=flat"), 3.2, threads=128),
    )
    analysis = await PlaybookCritic().critique(CriticInput(round=1, standings=standings))
    assert [word for word in analysis.prefer if word.endswith("=once")] == ["L2=once"]
    assert [word for word in analysis.avoid if word.endswith("=twice")] == ["L2=twice"]
    assert sum("once" in claim.words for claim in analysis.claims) == 1


def test_a_loop_that_once_had_another_way_is_told_apart(standing: MakeStanding) -> None:
    """As in records from before, whose ideas were about one loop each."""
    split = tuple("L5=once" if text == "L5=twice" else text for text in layers("twice"))
    found = samples(
        [standing(layers("once"), 1.0), standing(split, 2.0), standing(layers("twice"), 3.0)]
    )
    assert {item.name for item in differences(found, found)} == {"L2", "L5"}


async def test_what_failed_in_all_equal_layers_is_said_once(standing: MakeStanding) -> None:
    wrong = [standing(layers("twice"), None, threads=threads) for threads in (64, 128)]
    standings = (standing(layers("once"), 1.0), *wrong)
    analysis = await PlaybookCritic().critique(CriticInput(round=1, standings=standings))
    assert analysis.avoid == ("L2=twice",)
    assert analysis.implies.count("failed every time") == 1


async def test_the_same_input_gives_the_same_analysis(standing: MakeStanding) -> None:
    critic_input = CriticInput(round=3, standings=fast_and_slow(standing), seed=7)
    critic = PlaybookCritic()
    assert await critic.critique(critic_input) == await critic.critique(critic_input)


async def test_with_nothing_to_contrast_it_says_so() -> None:
    analysis = await PlaybookCritic().critique(CriticInput(round=1, standings=()))
    assert analysis.claims == ()
    assert "not two correct candidates" in analysis.implies


@given(st.lists(st.floats(min_value=1e-3, max_value=1e4), min_size=1, max_size=40), st.integers())
def test_exemplars_come_from_distinct_buckets_and_hold_the_best(
    times: list[float], seed: int
) -> None:
    found = [sample(number, ms) for number, ms in enumerate(times)]
    chosen = exemplars(found, 3, random.Random(seed))
    cut = buckets(found)
    assert sum(len(bucket) for bucket in cut) == len(found)
    homes = [next(i for i, bucket in enumerate(cut) if item in bucket) for item in chosen]
    assert len(set(homes)) == len(homes)
    assert min(times) == chosen[0].median_ms
