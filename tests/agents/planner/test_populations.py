import json

from kernelwright.agents.planner.model import parents_card

WAYS = (
    ("Warp shuffles", "Lanes hold a row in registers and reduce by shuffles."),
    ("Shared tiles", "Blocks copy squares of 64 columns through shared memory, double buffered."),
    ("Fused epilogue", "The addition happens before the store, with streaming hints."),
)


def said(*starts: str) -> str:
    ideas = [
        {"title": title, "mechanism": mechanism, "start_from": start}
        for start, (title, mechanism) in zip(starts, WAYS, strict=False)
    ]
    return json.dumps({"reasoning": "", "ideas": ideas})


async def test_the_prompt_shows_the_parents_and_how_they_got_there(
    planner_of, scripted, planner_input, standing
) -> None:
    first = standing(("memory=streams",), 0.08)
    second = standing(("memory=on chip",), 0.04, idea="r1i2", threads=128)
    child = second.candidate.model_copy(
        update={"parents": (first.candidate.id,), "note": "keeps\nrows"}
    )
    second = second.model_copy(update={"candidate": child})
    update = {"parents": (second, first), "standings": (first, second), "best": second}
    client = scripted(said("", ""))
    await planner_of(client).plan(planner_input.model_copy(update=update))
    text = client.asked[0].messages[1].text
    assert (
        f"- `{child.id}` (r1i2): 0.04 ms; memory 'on chip', compute 'unknown', parallel 'unknown'; "
        "2.00 times as fast as what it set out from; keeps rows\n"
    ) in text
    assert f"- `{first.candidate.id}` (r1i1): 0.08 ms; memory 'streams'" in text
    assert "## Populations" not in text
    assert parents_card((), ()) == ""


async def test_ideas_start_from_their_own_population_alone(
    planner_of, scripted, planner_input, standing
) -> None:
    best = standing(("memory=streams",), 0.02)
    mine = standing(("memory=on chip",), 0.04, threads=128)
    update = {
        "parents": (mine,), "standings": (best, mine), "best": best, "island": 2, "islands": 2,
        "wanted": 3,
    }  # fmt: skip
    client = scripted(said(best.candidate.id, mine.candidate.id, "best"))
    proposal = await planner_of(client).plan(planner_input.model_copy(update=update))
    assert [idea.parent for idea in proposal.ideas] == [None, mine.candidate.id, mine.candidate.id]
    text = client.asked[0].messages[1].text
    assert "This round grows number 2 of 2: its ideas start from the candidates below" in text
    assert "The best candidate of this round's population in full" in text
    assert mine.candidate.kernel.strip() in text


async def test_a_population_begins_with_nothing(
    planner_of, scripted, planner_input, standing
) -> None:
    best = standing(("memory=streams",), 0.02)
    update = {"standings": (best,), "best": best, "island": 2, "islands": 2, "wanted": 1}
    client = scripted(said(best.candidate.id))
    proposal = await planner_of(client).plan(planner_input.model_copy(update=update))
    assert proposal.ideas[0].parent is None
    text = client.asked[0].messages[1].text
    assert "its ideas start from nothing" in text
    assert best.candidate.kernel.strip() not in text
