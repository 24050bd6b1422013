from collections.abc import Sequence

from kernelwright.graphs.search.learn import of_idea
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import Candidate, Evaluation, Idea, Verdict, Verification


def judged(id: str, memory: str, origin: str) -> Standing:
    candidate = Candidate.model_validate({
        "id": id, "language": "cuda", "kernel": id, "plan": "p", "idea": "r1i1",
        "origin": origin, "strategies": (f"memory={memory}",),
    })  # fmt: skip
    found = Verification(verdict=Verdict.COMPILE_ERROR, reason="")
    return Standing(
        number=1, candidate=candidate, round=1, author="coder", effort="screen",
        evaluation=Evaluation(candidate=id, verification=found),
    )  # fmt: skip


def counted(recipe: str, standings: Sequence[Standing]) -> list[str]:
    idea = Idea(id="r1i1", title="", mechanism="", reason="", category="", metric="", recipe=recipe)
    return [item.candidate.id for item in of_idea(idea, standings)]


def test_what_the_playbook_fell_back_to_is_not_what_its_idea_did() -> None:
    standings = [judged(id, memory, "playbook") for id, memory in (("a", "x"), ("b", "y"))]
    assert counted("{}", standings) == ["a"]
    assert counted("{}", []) == []


def test_a_models_idea_counts_all_that_it_wrote_and_not_what_stood_in_for_it() -> None:
    standings = [
        judged("a", "x", "model"), judged("b", "y", "model"), judged("c", "z", "playbook"),
        judged("d", "x", "person"),
    ]  # fmt: skip
    assert counted("", standings) == ["a", "b", "d"]
