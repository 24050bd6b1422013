from collections.abc import Callable

import pytest

from kernelwright.agents.coder.tuner import Tuning
from kernelwright.agents.critic.advice import advice_trust
from kernelwright.agents.critic.critic import CriticInput, PlaybookCritic
from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.thoughts import PREFERRED, Thought, weigh
from kernelwright.agents.prompting.cards import analysis_card
from kernelwright.tools.archive import Standing
from kernelwright.tools.codegen.ir import Strategy
from kernelwright.tools.codegen.library.kernel_library import Option, Recipe
from kernelwright.tools.types import AdviceScore, Analysis

MakeStanding = Callable[..., Standing]
ADVICE = Analysis(round=1, claims=(), implies="", prefer=("THREADS=128",), avoid=("THREADS=64",))


def scored(helped: bool | None) -> AdviceScore:
    return AdviceScore(
        round=1, followed=1, followed_faster=1, others=0, others_faster=0, helped=helped
    )


async def critique(standings: tuple[Standing, ...], *, steers: bool = True) -> Analysis:
    asked = CriticInput(round=2, standings=standings, analyses=(ADVICE,), steers=steers)
    return await PlaybookCritic().critique(asked)


@pytest.mark.parametrize(
    ("followed_ms", "other_ms", "helped"),
    [(0.5, 1.4, True), (1.5, 0.5, False), (1.5, 1.4, None), (0.5, 0.5, None)],
)
async def test_advice_is_held_against_what_did_not_follow_it(
    standing: MakeStanding, followed_ms: float, other_ms: float, helped: bool | None
) -> None:
    found = await critique((
        standing(("a=b",), 1.0),
        standing(("a=b",), followed_ms, threads=128, round=2),
        standing(("a=b",), other_ms, threads=64, vector=2, round=2),
    ))  # fmt: skip
    assert found.advice is not None
    assert (found.advice.followed, found.advice.others) == (1, 1)
    assert found.advice.helped is helped
    assert found.advice_trust == (0.5 if helped is False else 1.0)
    assert found.advice.words in analysis_card(found)


async def test_nothing_is_said_of_advice_that_nobody_was_to_follow(standing: MakeStanding) -> None:
    both = (standing(("a=b",), 1.0), standing(("a=b",), 0.5, threads=128, round=2))
    assert (await critique(both, steers=False)).advice is None
    assert (await critique(both[:1])).advice is None
    unfollowed = (both[0], standing(("a=b",), 0.5, threads=256, round=2))
    advice = (await critique(unfollowed)).advice
    assert advice is not None
    assert "nobody followed" in advice.words


def test_trust_falls_with_every_time_it_did_not_help() -> None:
    no, yes = scored(False), scored(True)
    trusts = [advice_trust(of) for of in ((), (None, yes), (no,), (no, no), (no, no, yes))]
    assert trusts == [1.0, 1.0, 0.5, 1 / 3, 0.5]


def test_distrusted_advice_moves_the_order_less_and_chooses_no_settings(
    standing: MakeStanding,
) -> None:
    strategy = Strategy(
        name="flat", title="flat", mechanism="m", reason="r", category="memory", metric="ms",
        memory="streams", compute="plain", parallel="rows",
    )  # fmt: skip
    option = Option(loop="L0", family="toy", strategy=strategy, predicted_ms=1.0)
    recipe = Recipe.of({"L0": "flat"}, 1.0, changed="L0")
    thought = Thought(option=option, recipe=recipe, expected_ms=1.0, hopeful_ms=1.0, weight=1.0)

    def weight(trust: float) -> float:
        analysis = Analysis(
            round=1, claims=(), implies="", prefer=("memory=streams",), advice_trust=trust
        )
        moved = weigh(thought, PlannerInput(round=2, wanted=1, floor_ms=1.0, analysis=analysis))
        assert moved is not None
        return moved.weight

    assert weight(1.0) == pytest.approx(PREFERRED)
    assert PREFERRED < weight(0.5) < 1.0

    candidate = standing(("a=b",), 1.0).candidate
    trusted = Tuning(candidate, (), ADVICE).ask()
    doubtful = ADVICE.model_copy(update={"advice_trust": 1 / 3})
    assert trusted is not None
    assert ("THREADS", 128) in {(item.name, item.value) for item in trusted.settings}
    unled = Tuning(candidate, (), doubtful).ask()
    plain = Tuning(candidate, ()).ask()
    assert unled is not None
    assert plain is not None
    assert unled.settings == plain.settings
