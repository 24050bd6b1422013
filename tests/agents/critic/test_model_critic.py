import json
from collections.abc import Callable

import pytest

from kernelwright.agents.critic.critic import CriticInput, Manner, PlaybookCritic
from kernelwright.agents.critic.exhibits import contrast
from kernelwright.agents.critic.model import ModelCritic
from kernelwright.agents.llm.client import LLMError
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import Analysis, Idea, Prediction, Prompt, Reply
from kernelwright.tools.types.value import AwaitingError

MakeStanding = Callable[..., Standing]


class Said:
    """A client with one answer; what a model would say is the test's to choose."""

    def __init__(self, answer: object, raises: Exception | None = None) -> None:
        self.answer, self.raises = answer, raises
        self.asked: list[Prompt] = []

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        if self.raises:
            raise self.raises
        text = self.answer if isinstance(self.answer, str) else json.dumps(self.answer)
        return Reply(text=text)


CLAIM = {
    "words": "K1 keeps its row on chip, K2 reads it again, so K1 is 3.2x as fast",
    "faster": "K1",
    "slower": "K2",
    "numbers": ["K1.screen_ms=1.0", "K2.screen_ms=3.2"],
}
TRY = {
    "words": "Let two warps share a row.",
    "attribute": "parallel",
    "value": "two warps a row",
    "below_ms": 0.9,
}


def answer(**more: object) -> dict[str, object]:
    return {"explains": [CLAIM], "implies": "Bytes decide.", "next": [TRY]} | more


@pytest.fixture
def standings(standing: MakeStanding) -> tuple[Standing, ...]:
    return (
        standing(("rows=once", "memory=on chip"), 1.0, threads=64),
        standing(("rows=twice", "memory=streams"), 3.2, threads=128),
    )


async def test_a_claim_with_right_numbers_stays_with_ids_and_measured_values(
    standings: tuple[Standing, ...],
) -> None:
    said = answer()
    critic_input = CriticInput(round=1, standings=standings)
    analysis = await ModelCritic(Said(said), PlaybookCritic()).critique(critic_input)
    fast, slow = (item.candidate.id for item in standings)
    (claim,) = analysis.claims
    assert (claim.faster, claim.slower) == (fast, slow)
    assert claim.numbers == (f"{fast}: screen_ms 1 ms", f"{slow}: screen_ms 3.2 ms")
    assert "K1" not in claim.words
    assert analysis.origin == "model"
    assert analysis.notes == ()


@pytest.mark.parametrize(
    "change",
    [
        {"numbers": ["K1.screen_ms=1.0", "K2.screen_ms=5.0"]},
        {"numbers": ["K1.screen_ms=1.0"]},
        {"numbers": ["K1.l2_hits=0.9", "K2.l2_hits=0.1"]},
        {"faster": "K2", "slower": "K1"},
        {"faster": "K9"},
        {"words": "K1 is 7x as fast"},
    ],
)
async def test_a_claim_that_the_numbers_do_not_bear_out_is_left_out_and_told(
    standings: tuple[Standing, ...], change: dict[str, object]
) -> None:
    critic_input = CriticInput(round=1, standings=standings)
    playbook = await PlaybookCritic().critique(critic_input)
    client = Said(answer(explains=[CLAIM | change]))
    analysis = await ModelCritic(client, PlaybookCritic()).critique(critic_input)
    assert analysis.claims == playbook.claims
    assert "left out" in analysis.notes[0]


@pytest.mark.parametrize(
    "change",
    [
        {"numbers": {"K1.screen_ms": 1.0, "K2.screen_ms": 3.2}},
        {"numbers": [{"K1.screen_ms": 1.0}, {"K2.screen_ms": "3.2 ms"}]},
        {"numbers": "K1.screen_ms=1.0, K2.screen_ms=3.2"},
        {"numbers": ["K1.screen_ms=1.0 against K2.screen_ms=3.2"]},
        {"faster": "exhibit K1", "slower": "`K2`"},
        {"words": "K1 is 3.2x as fast, and 4.4 times as fast as the best baseline"},
    ],
)
async def test_a_right_claim_in_another_form_stays(
    standings: tuple[Standing, ...], change: dict[str, object]
) -> None:
    more = {"prefer": None, "next": [TRY | {"below_ms": "0.9 ms"}]}
    client = Said(answer(explains=[CLAIM | change], **more))
    critic_input = CriticInput(round=1, standings=standings, baseline_ms=4.4)
    analysis = await ModelCritic(client, PlaybookCritic()).critique(critic_input)
    assert analysis.notes == ()
    assert "3.2x as fast" in analysis.claims[0].words
    assert [item.below_ms for item in analysis.predictions] == [0.9]
    assert len(client.asked) == 1


async def test_what_was_left_out_is_in_the_next_prompt(
    standings: tuple[Standing, ...], standing: MakeStanding
) -> None:
    client = Said(answer(explains=[CLAIM | {"numbers": ["K2.screen_ms=5.0"]}]))
    critic = ModelCritic(client, PlaybookCritic())
    first = await critic.critique(CriticInput(round=1, standings=standings))
    later = (*standings, standing(("parallel=two warps a row, vectorised",), 0.8, round=2))
    second = await critic.critique(CriticInput(round=2, standings=later, analyses=(first,)))
    words = client.asked[1].messages[-1].text
    assert "K2.screen_ms is 3.2, not 5" not in words
    assert f"{standings[1].candidate.id}.screen_ms is 3.2, not 5" in words
    assert "1 of 1 predictions that could be checked held" in words
    scored = next(item for item in second.predictions if item.made_in_round == 1)
    assert (scored.held, scored.measured_ms) == (True, 0.8)
    assert [item.key for item in client.asked] == ["critic:1", "critic:2"]


async def test_a_prediction_that_no_candidate_could_answer_becomes_words(
    standings: tuple[Standing, ...],
) -> None:
    wrong = [
        TRY | {"attribute": "vibes"},
        TRY | {"below_ms": None},
        TRY | {"attribute": "registers", "value": "few"},
        TRY | {"attribute": "STAGES", "value": "many"},
    ]
    client = Said(answer(explains=[], next=wrong))
    analysis = await ModelCritic(client, PlaybookCritic()).critique(
        CriticInput(round=1, standings=standings)
    )
    assert analysis.predictions == ()
    assert "Also worth trying: Let two warps share a row" in analysis.implies
    assert len(analysis.notes) == len(wrong)


async def test_words_about_attributes_are_spelled_as_candidates_spell_them(
    standings: tuple[Standing, ...],
) -> None:
    client = Said(answer(prefer=["memory=On_Chip", "registers=<= 32", "nonsense"], avoid=[]))
    analysis = await ModelCritic(client, PlaybookCritic()).critique(
        CriticInput(round=1, standings=standings)
    )
    assert analysis.prefer == ("memory=on chip",)
    assert "memory=streams" in analysis.avoid


@pytest.mark.parametrize("raises", [LLMError("the server is gone"), None])
async def test_without_an_answer_the_playbook_contrasts_and_says_so(
    standings: tuple[Standing, ...], raises: Exception | None
) -> None:
    critic_input = CriticInput(round=1, standings=standings)
    client = Said("I would rather not.", raises)
    analysis = await ModelCritic(client, PlaybookCritic()).critique(critic_input)
    playbook = await PlaybookCritic().critique(critic_input)
    assert analysis.model_copy(update={"notes": ()}) == playbook
    assert "the playbook contrasts alone in round 1" in analysis.notes[0]


async def test_whoever_waits_for_a_person_lets_the_run_pause(
    standings: tuple[Standing, ...],
) -> None:
    critic = ModelCritic(Said("", AwaitingError("an answer")), PlaybookCritic())
    with pytest.raises(AwaitingError):
        await critic.critique(CriticInput(round=1, standings=standings))


async def test_with_nothing_to_contrast_nobody_is_asked(standing: MakeStanding) -> None:
    client = Said(answer())
    one = (standing(("rows=once",), 1.0), standing(("rows=twice",), None))
    analysis = await ModelCritic(client, PlaybookCritic()).critique(
        CriticInput(round=1, standings=one)
    )
    assert client.asked == []
    assert analysis.origin == "playbook"


async def test_the_prompt_shows_sources_numbers_ideas_and_failures(
    standings: tuple[Standing, ...], standing: MakeStanding
) -> None:
    idea = Idea(
        id="r1i1", title="Keep it", mechanism="one read", reason="", category="memory", metric="ms"
    )
    failed = standing(("rows=tiled",), None)
    critic_input = CriticInput(
        round=1, standings=(*standings, failed), ideas=(idea,),
        explained=((standings[0].candidate.id, "it waits for memory"),),
    )  # fmt: skip
    client = Said(answer())
    await ModelCritic(client, PlaybookCritic()).critique(critic_input)
    system, person = client.asked[0].messages
    assert system.author == "system"
    for words in (
        'extern "C" void run', "K1.screen_ms | 1 |", "Keep it: one read", "it waits for memory",
        f"{failed.candidate.id} (idea r1i1, rows=tiled): wrong result, it is off", "launch('run'",
    ):  # fmt: skip
        assert words in person.text


def test_exhibits_that_are_alike_are_shown_by_their_difference(standing: MakeStanding) -> None:
    fast, slow = standing(("rows=once",), 1.0), standing(("rows=twice",), 3.0)
    same = standing(("rows=once",), 2.0, threads=128)
    seen = contrast(CriticInput(round=1, standings=(fast, slow, same)))
    first, second, third = seen.exhibits
    assert first.against == ""
    assert (second.against, second.shown) == ("K1", "")
    assert third.against in ("K1", "")
    assert seen.named(fast.candidate.id[:6]) == first
    assert seen.with_ids("K1 beats K3") == f"{first.candidate} beats {third.candidate}"


async def test_an_attribute_whose_predictions_kept_failing_is_not_listened_to(
    standings: tuple[Standing, ...],
) -> None:
    failed = tuple(
        Prediction(
            words="w", attribute="memory", value="v", below_ms=1.0, made_in_round=0, held=False
        )
        for _ in range(2)
    )
    earlier = Analysis(round=0, claims=(), implies="", predictions=failed)
    client = Said(answer(prefer=["memory=on chip", "rows=once"]))
    critic_input = CriticInput(round=1, standings=standings, analyses=(earlier,))
    analysis = await ModelCritic(client, PlaybookCritic()).critique(critic_input)
    assert analysis.prefer == ("rows=once",)


async def test_after_the_last_round_no_model_is_asked(standings: tuple[Standing, ...]) -> None:
    client = Said(answer())
    critic_input = CriticInput(round=1, standings=standings, last=True)
    analysis = await ModelCritic(client, PlaybookCritic()).critique(critic_input)
    assert client.asked == []
    assert analysis == await PlaybookCritic().critique(critic_input)


def test_exhibits_show_the_closest_relative_and_no_implementation_twice(
    standing: MakeStanding,
) -> None:
    best = standing(("rows=once", "memory=on chip"), 1.0, threads=64)
    settings = [standing(("rows=once", "memory=on chip"), 9.0 + n, threads=128) for n in range(3)]
    relative = standing(("rows=once", "memory=on chip "), 1.1)
    far = relative.candidate.model_copy(
        update={"id": "f" * 12, "kernel": "something(else);", "plan": "entirely"}
    )
    others = [
        relative.model_copy(update={
            "candidate": far.model_copy(update={"id": str(n) * 12, "kernel": f"other({n});"}),
        })
        for n in range(6)
    ]  # fmt: skip
    critic_input = CriticInput(
        round=1, standings=(best, *settings, *others, relative), manner=Manner(relatives=True)
    )
    shown = [item.candidate for item in contrast(critic_input).exhibits]
    assert shown[0] == best.candidate.id
    assert relative.candidate.id in shown
    assert not {item.candidate.id for item in settings} & set(shown)
