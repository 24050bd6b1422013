from collections.abc import Callable

import pytest

from kernelwright.agents.coder.coder import CoderRequest, Failure
from kernelwright.agents.llm.client import LLMError
from kernelwright.agents.roles import StartingCoder
from kernelwright.agents.shared.facts import Start, Steering
from kernelwright.tools.codegen.library.plan_check import PlanError
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import Candidate, Evaluation, StrategyVersion, Verdict, Verification

MakeCoder = Callable[..., tuple]  # type: ignore[type-arg]
EDIT = """The bound was wrong.

```edit
base: {base}
<<<<<<< SEARCH
i < n; ++i) y[i] = x[i] + 1.0f
=======
i < n; ++i) y[i] = 1.0f + x[i]
>>>>>>> REPLACE
```
"""


def failure(candidate: Candidate, verdict: Verdict, reason: str, log: str = "") -> Failure:
    found = Verification(verdict=verdict, reason=reason)
    evaluation = Evaluation(candidate=candidate.id, verification=found, compiler_log=log)
    return Failure(candidate=candidate, evaluation=evaluation)


def texts(prompt: object) -> str:
    return "\n".join(message.text for message in prompt.messages)  # type: ignore[attr-defined]


async def test_an_answer_becomes_a_candidate_with_labels_and_note(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str
) -> None:
    coder, client = make_coder(answer)
    version = StrategyVersion(id="coder:3", role="coder", text="Prefer wide loads.")
    written = await coder.write(coder_request.model_copy(update={"strategy": version}))
    (candidate,) = written.candidates
    assert candidate.strategies[0] == "memory=streamed once"
    assert (candidate.origin, candidate.idea, candidate.strategy) == ("model", "r1i1", "coder:3")
    assert candidate.note == "I add one in a single pass."
    assert written.notes == ()
    (prompt,) = client.asked
    assert (prompt.key, prompt.role, prompt.round) == ("coder:r1i1:0", "coder", 1)
    assert "Prefer wide loads." in texts(prompt)


async def test_the_prompt_shows_idea_task_device_contract_and_steering(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str
) -> None:
    coder, client = make_coder(answer)
    await coder.write(coder_request.model_copy(update={"steering": Steering(hints=("try tiles",))}))
    said = texts(client.asked[0])
    for words in ("add in one pass", "float32[64, 33]", "generic CPU", "try tiles", "aten.",
                  "`playbook`", "memory="):  # fmt: skip
        assert words in said


async def test_fewer_kernels_than_asked_for_are_filled_up_with_settings(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str
) -> None:
    coder, _ = make_coder(answer)
    first, second = (await coder.write(coder_request.model_copy(update={"count": 2}))).candidates
    assert first.kernel == second.kernel
    assert first.settings != second.settings


async def test_a_breach_of_the_contract_is_corrected_before_it_is_handed_out(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str
) -> None:
    broken = answer.replace("empty_like(x)", "empty_like(x)\n    import os")
    fix = "```edit\nbase: draft-1\n<<<<<<< SEARCH\n    import os\n=======\n>>>>>>> REPLACE\n```"
    coder, client = make_coder(broken, fix)
    written = await coder.write(coder_request)
    (candidate,) = written.candidates
    assert "import" not in candidate.plan
    again = client.asked[1]
    assert again.key == "coder:r1i1:0:again"
    assert again.messages[-2].author == "model"
    assert "`draft-1`: plan, line 3" in again.messages[-1].text
    assert "not judged" in written.notes[0]


async def test_good_candidates_stay_while_bad_ones_are_corrected(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str
) -> None:
    other = answer.replace("1.0f", "2.0f")
    coder, client = make_coder(answer + other.replace("def forward", "def backward"), other)
    written = await coder.write(coder_request.model_copy(update={"count": 2}))
    assert len({candidate.kernel for candidate in written.candidates}) == 2
    assert len(client.asked) == 2


async def test_an_answer_without_code_is_asked_for_once_more_and_then_noted(
    make_coder: MakeCoder, coder_request: CoderRequest
) -> None:
    coder, client = make_coder("I would use tiles.", "Really, tiles.")
    written = await coder.write(coder_request)
    assert written.candidates == ()
    assert len(client.asked) == 2
    assert any("nothing that can be judged" in note for note in written.notes)


async def test_an_elite_is_edited_and_becomes_the_parent(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str
) -> None:
    coder, _ = make_coder(answer)
    (elite,) = (await coder.write(coder_request)).candidates
    coder, client = make_coder(EDIT.format(base=elite.id))
    idea = coder_request.idea.model_copy(update={"id": "r2i1", "parent": elite.id})
    later = coder_request.model_copy(update={"idea": idea, "written": (elite,), "round": 2})
    (child,) = (await coder.write(later)).candidates
    assert "1.0f + x[i]" in child.kernel
    assert child.parents == (elite.id,)
    assert child.strategies == elite.strategies
    assert f"Start from candidate `{elite.id}`" in texts(client.asked[0])


async def test_the_same_candidate_is_not_written_twice(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str
) -> None:
    coder, _ = make_coder(answer, answer)
    (first,) = (await coder.write(coder_request)).candidates
    again = await coder.write(coder_request.model_copy(update={"written": (first,)}))
    assert again.candidates == ()


async def test_ideas_with_a_recipe_are_the_playbooks(
    make_coder: MakeCoder, coder_request: CoderRequest
) -> None:
    coder, client = make_coder()
    recipe = coder._unwritten(coder_request).model_dump_json()
    idea = coder_request.idea.model_copy(update={"recipe": recipe})
    written = await coder.write(coder_request.model_copy(update={"idea": idea}))
    assert written.candidates[0].origin == "playbook"
    assert written.candidates[0].idea == "r1i1"
    assert client.asked == []


async def test_a_model_that_does_not_answer_is_stood_in_for(
    make_coder: MakeCoder, coder_request: CoderRequest
) -> None:
    coder, _ = make_coder(LLMError("the server is gone"))
    written = await coder.write(coder_request)
    assert written.candidates[0].origin == "playbook"
    assert written.candidates[0].idea == coder_request.idea.id
    assert "the server is gone; the playbook wrote" in written.notes[0]


async def test_a_repair_shows_the_real_message_and_answers_by_an_edit(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str
) -> None:
    coder, client = make_coder(answer)
    (broken,) = (await coder.write(coder_request)).candidates
    client.script = [EDIT.format(base=broken.id)]
    log = "kernel.cpp:7:9: error: 'z' was not declared"
    failed = failure(broken, Verdict.COMPILE_ERROR, "it does not compile", log)
    repaired = await coder.repair(coder_request.model_copy(update={"attempt": 1}), failed)
    (candidate,) = repaired.candidates
    assert candidate.parents == (broken.id,)
    assert candidate.strategies == broken.strategies
    assert candidate.note.startswith(f"after {broken.id} (compile error): The bound was wrong.")
    prompt = client.asked[1]
    assert prompt.key == "coder:r1i1:1"
    assert log in texts(prompt)
    assert ">    7" in texts(prompt)


async def test_a_second_repair_knows_what_was_said_before_the_first(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str
) -> None:
    coder, client = make_coder(answer)
    (first,) = (await coder.write(coder_request)).candidates
    client.script = [EDIT.format(base=first.id), EDIT.format(base=first.id)]
    failed = failure(first, Verdict.WRONG_RESULT, "off by one")
    once = coder_request.model_copy(update={"attempt": 1, "written": (first,)})
    (second,) = (await coder.repair(once, failed)).candidates
    failed = failure(second, Verdict.WRONG_RESULT, "off by two")
    twice = coder_request.model_copy(update={"attempt": 2, "written": (first, second)})
    again = await coder.repair(twice, failed)
    assert f"- after {first.id} (wrong result): The bound was wrong." in texts(client.asked[-1])
    assert again.candidates == ()
    assert "written already" in again.notes[0]


async def test_a_model_may_give_up_and_says_why(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str
) -> None:
    coder, client = make_coder(answer)
    (broken,) = (await coder.write(coder_request)).candidates
    client.script = ["GIVE UP: rows do not fit on chip."]
    failed = failure(broken, Verdict.OUT_OF_MEMORY, "it ran out of memory")
    repaired = await coder.repair(coder_request, failed)
    assert repaired.candidates == ()
    assert "gave up: rows do not fit on chip." in repaired.notes[0]
    assert len(client.asked) == 2


async def test_a_failed_repair_call_is_stood_in_for_as_a_child_of_what_failed(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str
) -> None:
    coder, _ = make_coder(answer, LLMError("the budget is spent"))
    (broken,) = (await coder.write(coder_request)).candidates
    failed = failure(broken, Verdict.WRONG_RESULT, "off by one")
    repaired = await coder.repair(coder_request.model_copy(update={"attempt": 1}), failed)
    assert repaired.candidates[0].parents == (broken.id,)
    assert "the budget is spent" in repaired.notes[0]


async def test_a_persons_candidate_is_judged_as_it_is(
    make_coder: MakeCoder, coder_request: CoderRequest
) -> None:
    kernel = 'extern "C" void f(const float* x, float* y) {}\n'
    plan = 'def forward(x):\n    y = empty_like(x)\n    launch("f", args=(x, y))\n    return y\n'
    start = Start(language="cpp", kernel=kernel, plan=plan, name="mine.cpp")
    coder, client = make_coder(start=start)
    mine = coder_request.model_copy(update={"idea": start.idea})
    (candidate,) = (await StartingCoder(coder, start).write(mine)).candidates
    assert candidate == new_candidate("cpp", kernel, plan, idea="r1i0", origin="person")
    assert client.asked == []


async def test_a_bare_kernel_of_a_persons_is_wrapped_by_the_model(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str
) -> None:
    start = Start(language="cpp", kernel="void mine(float* x) {}\n", name="mine.cpp")
    coder, client = make_coder(answer, start=start)
    mine = coder_request.model_copy(update={"idea": start.idea})
    written = await StartingCoder(coder, start).write(mine)
    assert written.candidates[0].idea == "r1i0"
    assert "void mine(float* x) {}" in texts(client.asked[0])
    assert "has no plan yet" in texts(client.asked[0])


JUNK = (
    "",
    "```",
    "```cpp\n```\n```python\n```",
    '```cpp\nextern "C" void f(\n```\n```python\ndef forward(x:\n```',
    '```cpp\nextern "C" void f(const float* x) {}\n// tune: A in ' + "1, " * 9999 + "\n```",
    '```cpp\nextern "C" void f(const float* x) {}\n// require: 1 << 99999999 > 0\n```',
    "```python\ndef forward(x):\n    return " + "(" * 4000 + "\n```",
    "```edit\nbase: draft-1\n<<<<<<< SEARCH\n=======\n>>>>>>> REPLACE\n```",
    "```edit\nbase: playbook\n<<<<<<< SEARCH\nfloat\n=======\n>>>>>>> REPLACE\n```",
    "<think>" * 1000,
    "\0\ufffd```cpp\n\0\n```",
    '```cpp\nextern "C" void f(const float* x) ' + "{" * 20000 + "\n```\n```python\nx\n```",
)


@pytest.mark.parametrize("first", range(len(JUNK)))
async def test_no_answer_whatever_it_holds_is_more_than_a_note(
    make_coder: MakeCoder, coder_request: CoderRequest, first: int
) -> None:
    coder, _ = make_coder(JUNK[first], JUNK[first - 1])
    written = await coder.write(coder_request)
    assert written.candidates == ()
    assert written.notes


async def test_what_rules_would_have_shown_and_cannot_assemble_is_noted(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coder, client = make_coder(answer)

    def draft(self: object, choices: object) -> None:
        raise PlanError("the plan cannot be assembled: in forward, `y = x` names y twice")

    monkeypatch.setattr(type(coder._repertoire), "draft", draft)
    written = await coder.write(coder_request)
    assert len(written.candidates) == 1
    (note,) = written.notes
    assert note.startswith("what built-in expertise would write could not be written: the plan")
    assert "`playbook`" not in texts(client.asked[0])


async def test_a_choice_that_fits_nothing_is_no_news(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coder, _ = make_coder(answer)

    def draft(self: object, choices: object) -> None:
        raise ValueError("the strategy does not fit")

    monkeypatch.setattr(type(coder._repertoire), "draft", draft)
    assert (await coder.write(coder_request)).notes == ()
