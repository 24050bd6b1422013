"""Nothing is explained that the noise of the times explains."""

import json
import random
from collections.abc import Callable
from math import exp
from statistics import median, quantiles

import pytest

from kernelwright.agents.critic.critic import CriticInput, Manner, PlaybookCritic
from kernelwright.agents.critic.exhibits import contrast
from kernelwright.agents.critic.model import ModelCritic
from kernelwright.agents.critic.scoring import score
from kernelwright.agents.shared.noise import BAND, Noise, Timing, noise_among, timing_of
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import Analysis, Conditions, Measurement, Prediction, Prompt, Reply

MakeStanding = Callable[..., Standing]
CONDITIONS = Conditions(device="toy", l2_flushed=False, input_sets=1)
# A 10-90 % band of 35 % of the median, as on a busy machine.
BUSY = 0.35 / BAND


def noisy(item: Standing, noise: float) -> Standing:
    """The same candidate, whose samples spread so far around its median."""
    assert item.evaluation.screen is not None
    ms = item.evaluation.screen.median_ms
    band = exp(noise * BAND / 2.0)
    screen = item.evaluation.screen.model_copy(
        update={"p10_ms": ms / band, "p90_ms": ms * band, "samples_ms": (ms / band, ms, ms * band)}
    )
    return item.model_copy(
        update={"evaluation": item.evaluation.model_copy(update={"screen": screen})}
    )


def drawn(item: Standing, dice: random.Random, noise: float, drift: float) -> Standing:
    """The same candidate after a screening of its own, in a moment of its own."""
    assert item.evaluation.screen is not None
    moment = item.evaluation.screen.median_ms * exp(dice.gauss(0.0, drift))
    times = [moment * exp(dice.gauss(0.0, noise)) for _ in range(40)]
    tenths = quantiles(times, n=10)
    screen = Measurement(
        median_ms=median(times), p10_ms=tenths[0], p90_ms=tenths[-1], samples_ms=tuple(times),
        conditions=CONDITIONS,
    )  # fmt: skip
    return item.model_copy(
        update={"evaluation": item.evaluation.model_copy(update={"screen": screen})}
    )


def run_of(standing: MakeStanding, dice: random.Random, **noise: float) -> list[Standing]:
    """Candidates of three kernels and many settings that all take 1 ms."""
    made = [
        standing(
            (f"rows={way}", f"memory={memory}"), 1.0, threads=threads, vector=vector, round=1 + late
        )
        for way, memory in (("once", "on chip"), ("twice", "streams"), ("tiled", "cache"))
        for threads in (64, 128, 256)
        for vector in (1, 2, 4)
        for late in (vector == 4,)
        if threads * vector <= 512
    ]
    return [drawn(item, dice, **noise) for item in made]


@pytest.mark.parametrize(
    ("noise", "drift"), [(BUSY, 0.0), (BUSY, BUSY), (0.01, 0.01)], ids=["busy", "drifting", "quiet"]
)
async def test_of_equal_candidates_nothing_is_explained_more_often_than_the_level_says(
    standing: MakeStanding, noise: float, drift: float
) -> None:
    critic, explained, counted = PlaybookCritic(), 0, 0
    for seed in range(50):
        standings = run_of(standing, random.Random(seed), noise=noise, drift=drift)
        before = tuple(item for item in standings if item.round == 1)
        first = await critic.critique(CriticInput(round=1, standings=before, seed=seed))
        guess = Prediction(words="w", attribute="rows", value="once", below_ms=1.0, made_in_round=1)
        told = first.model_copy(update={"predictions": (*first.predictions, guess)})
        second = await critic.critique(
            CriticInput(round=2, standings=tuple(standings), analyses=(told,), seed=seed)
        )
        explained += bool(first.claims or first.prefer) + bool(second.claims or second.prefer)
        counted += second.predictions_checked
        assert "Most of the gap" not in first.implies or first.claims
    assert explained <= 0.05 * 100
    assert counted <= 0.05 * 50


async def test_a_real_difference_is_still_found_through_the_noise(standing: MakeStanding) -> None:
    found = 0
    for seed in range(10):
        dice = random.Random(seed)
        made = [
            standing((f"rows={way}",), ms, threads=threads, vector=vector)
            for way, ms in (("once", 1.0), ("twice", 3.0))
            for threads in (64, 128, 256)
            for vector in (1, 2)
        ]
        standings = tuple(drawn(item, dice, BUSY / 2, BUSY / 2) for item in made)
        critic_input = CriticInput(round=1, standings=standings, seed=seed)
        analysis = await PlaybookCritic().critique(critic_input)
        found += "rows=once" in analysis.prefer and "Most of the gap" in analysis.implies
    assert found == 10


def case_seen(standing: MakeStanding) -> tuple[Standing, ...]:
    """Two settings whose medians differ by a quarter, in a spread of 35 %."""
    made = [
        standing((f"rows={way}",), ms, threads=threads, round=round)
        for round, way, ms, threads in (
            (1, "once", 1.00, 64), (1, "once", 1.10, 128), (1, "once", 1.05, 256),
            (1, "twice", 1.30, 64), (1, "twice", 1.35, 128), (1, "twice", 1.28, 256),
        )
    ]  # fmt: skip
    return tuple(noisy(item, BUSY) for item in made)


async def test_a_gap_within_the_noise_is_said_to_be_noise_and_never_explained(
    standing: MakeStanding,
) -> None:
    standings = case_seen(standing)
    before = CriticInput(round=1, standings=standings, manner=Manner())
    assert "Most of the gap" in (await PlaybookCritic().critique(before)).implies
    analysis = await PlaybookCritic().critique(CriticInput(round=1, standings=standings))
    assert (analysis.claims, analysis.prefer, analysis.predictions) == ((), (), ())
    fast, slow = standings[0].candidate.id, standings[4].candidate.id
    assert analysis.implies.startswith(
        f"{fast} and {slow} cannot be told apart here: their times overlap (1.35x, and noise"
    )


async def test_a_score_counts_no_outcome_within_the_noise(standing: MakeStanding) -> None:
    made = case_seen(standing)
    predictions = tuple(
        Prediction(words=name, attribute=name, value=value, below_ms=1.2, made_in_round=1)
        for name, value in (
            ("rows", "once"),
            ("THREADS", "64"),
            ("VECTOR", "1"),
            ("THREADS", "128"),
        )
    )
    earlier = Analysis(round=1, claims=(), implies="", predictions=predictions)
    later = tuple(
        noisy(standing(("rows=once",), ms, threads=threads, vector=2, round=2), BUSY)
        for ms, threads in ((1.05, 64), (1.10, 128))
    )
    standings = (*made, *later)
    old = CriticInput(round=2, standings=standings, analyses=(earlier,), manner=Manner())
    assert (await PlaybookCritic().critique(old)).predictions_held == 3
    now = CriticInput(round=2, standings=standings, analyses=(earlier,))
    analysis = await PlaybookCritic().critique(now)
    assert (analysis.predictions_held, analysis.predictions_checked) == (0, 0)
    assert analysis.predictions_undecided == 3


def test_a_prediction_that_could_not_fail_is_undecided(standing: MakeStanding) -> None:
    before = standing(("rows=once",), 1.0)
    after = standing(("rows=once",), 0.5, round=2, threads=128)
    safe, risky = (
        Prediction(words="w", attribute="rows", value="once", below_ms=ms, made_in_round=1)
        for ms in (100.0, 0.8)
    )
    earlier = Analysis(round=1, claims=(), implies="", predictions=(safe, risky))
    scored = score((before, after), (earlier,), noise=Noise())
    assert [item.held for item in scored] == [None, True]
    assert scored[0].measured_ms == 0.5


async def test_a_setting_that_the_winner_lacks_is_not_the_cause(standing: MakeStanding) -> None:
    fast = [standing(("rows=once",), 1.0 + n / 100, threads=64, vector=2**n) for n in range(3)]
    slow = [standing(("rows=twice",), 3.0 + n / 100, threads=64, vector=2**n) for n in range(3)]
    winner = slow[0]
    standings = (*fast, *slow)
    named = await PlaybookCritic().critique(CriticInput(round=1, standings=standings))
    assert "rows=once" in named.prefer
    # By its most trusted time the best is one of the others.
    lacking = await PlaybookCritic().critique(
        CriticInput(round=1, standings=standings, best=winner)
    )
    assert not [word for word in lacking.prefer if word.startswith("rows=")]
    assert not [claim for claim in lacking.claims if claim.words.startswith("rows=")]


def test_exemplars_can_be_told_apart_from_each_other(standing: MakeStanding) -> None:
    made = [standing((f"rows=s{n}",), 1.0 + n / 8, threads=64) for n in range(24)]
    critic_input = CriticInput(round=1, standings=tuple(noisy(item, 0.08) for item in made))
    chosen, noise = critic_input.exemplars, critic_input.noise
    assert noise is not None
    assert len(chosen) > 1
    for number, fast in enumerate(chosen):
        assert all(noise.between(fast, slow).is_clear for slow in chosen[number + 1 :])


class Said:
    def __init__(self, answer: dict[str, object]) -> None:
        self.answer = answer
        self.asked: list[Prompt] = []

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        return Reply(text=json.dumps(self.answer))


def explains(slower_ms: float) -> dict[str, object]:
    claim = {
        "words": "K1 reads its row once.", "faster": "K1", "slower": "K2",
        "numbers": ["K1.screen_ms=1.0", f"K2.screen_ms={slower_ms}"],
    }  # fmt: skip
    return {"explains": [claim], "implies": "Bytes decide.", "next": []}


async def test_a_models_claim_about_noise_is_struck_out_with_that_reason(
    standing: MakeStanding,
) -> None:
    made = (standing(("rows=once",), 1.0), standing(("rows=twice",), 1.3, threads=128))
    manner = Manner(relatives=True, noise=True)
    standings = tuple(noisy(item, BUSY) for item in made)
    client = Said(explains(1.3))
    critic_input = CriticInput(round=1, standings=standings, manner=manner)
    analysis = await ModelCritic(client, PlaybookCritic()).critique(critic_input)
    assert analysis.claims == ()
    assert "Bytes decide" not in analysis.implies
    (note,) = analysis.notes
    fast, slow = (item.candidate.id for item in standings)
    assert f"a claim of the critic's was left out ({fast} and {slow} cannot be told apart" in note
    assert "K1 and K2 cannot be told apart here" in client.asked[0].messages[-1].text


async def test_a_models_claim_that_clears_the_noise_stays(standing: MakeStanding) -> None:
    made = (standing(("rows=once",), 1.0), standing(("rows=twice",), 3.0, threads=128))
    critic_input = CriticInput(round=1, standings=tuple(noisy(item, BUSY) for item in made))
    analysis = await ModelCritic(Said(explains(3.0)), PlaybookCritic()).critique(critic_input)
    assert [claim.words for claim in analysis.claims] == ["K1 reads its row once.".replace(
        "K1", made[0].candidate.id
    )]  # fmt: skip
    assert analysis.notes == ()


async def test_two_cited_times_within_the_noise_strike_a_claim_out(standing: MakeStanding) -> None:
    """Screened times that clear the noise do not carry others that do not."""
    from kernelwright.tools.types import Evidence, Rank

    made = (standing(("rows=once",), 1.0), standing(("rows=twice",), 3.0, threads=128))
    read = [
        (item.candidate.id, (Evidence(name="run.time", rank=Rank.MEASURED, value=ms, unit="ms",
                                      source="wall clock of each launch"),))
        for item, ms in zip(made, (0.90, 0.95), strict=True)
    ]  # fmt: skip
    answer = explains(3.0)
    answer["explains"][0]["numbers"] = ["K1.run.time=0.90", "K2.run.time=0.95"]  # type: ignore[index]
    critic_input = CriticInput(
        round=1, standings=tuple(noisy(item, 0.05) for item in made), profiled=tuple(read)
    )
    assert len(contrast(critic_input).exhibits) == 2
    analysis = await ModelCritic(Said(answer), PlaybookCritic()).critique(critic_input)
    assert "run.time are within the noise" in analysis.notes[0]
    assert all("reads its row once" not in claim.words for claim in analysis.claims)


def test_more_comparisons_need_a_larger_difference() -> None:
    one, other = Timing(median_ms=1.0, noise=0.05), Timing(median_ms=1.18, noise=0.05)
    assert Noise().between(one, other).is_clear
    assert not Noise(candidates=40).between(one, other).is_clear
    assert not Noise(typical=0.1).between(one, other).is_clear


def test_the_noise_of_a_run_counts_what_may_be_contrasted(standing: MakeStanding) -> None:
    timings = [Timing(median_ms=1.0, noise=noise) for noise in (0.01, 0.02, 0.3)]
    found = noise_among(timings, [{"rows": "once"}, {"rows": "twice"}, {"rows": "tiled"}])
    assert (found.typical, found.candidates, found.settings) == (0.02, 3, 3)
    timed = timing_of(noisy(standing(("rows=once",), 1.0), 0.1).evaluation)
    assert timed is not None
    assert timed.noise == pytest.approx(0.1)
