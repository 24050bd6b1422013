import json

import pytest

from kernelwright.agents.llm.client import LLMError
from kernelwright.agents.strategist.strategist import (
    LONGEST,
    ModelStrategist,
    StrategistInput,
    Trial,
    first,
    fittest,
)
from kernelwright.profiles.load import Hardware
from kernelwright.tools.types import (
    DType,
    Graph,
    InputSpec,
    Prompt,
    Reply,
    StrategyVersion,
    Task,
    TensorSpec,
)

SPEC = TensorSpec(shape=(4, 8), dtype=DType.FLOAT32)
TASK = Task(
    name="softmax", path="softmax.py", source="class Model: ...", source_sha256="0",
    entry="Model", entry_kind="kernelbench", inputs=(InputSpec(name="x", tensor=SPEC),),
    outputs=(SPEC,), graph=Graph(nodes=(), inputs=(), outputs=()), bytes_moved=256, flops=32,
)  # fmt: skip
HARDWARE = Hardware(
    name="Toy", kind="cpu", source="test", cores=2, cache_mib=8, memory_gib=8,
    bandwidth_gb_s=10, fp32_tflops=0.1,
)  # fmt: skip


class Scripted:
    """Answers with these texts in turn; an exception is raised instead."""

    def __init__(self, *answers: str | Exception) -> None:
        self.asked: list[Prompt] = []
        self._answers = list(answers)

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        said = self._answers.pop(0)
        if isinstance(said, Exception):
            raise said
        return Reply(text=said, model="scripted")


def strategist(*answers: str | Exception) -> tuple[ModelStrategist, Scripted]:
    client = Scripted(*answers)
    return ModelStrategist(client, TASK, HARDWARE), client


def rewritten(*points: str) -> str:
    return json.dumps({"why": "16-byte loads brought 1.4 times", "points": points})


def version(round: int, text: str, parent: str) -> StrategyVersion:
    return StrategyVersion(
        id=f"planner:{round}", role="planner", text=text, parent=parent, round=round, why="because"
    )


BEGINNING = first("planner")
WORSE = version(1, "- try everything", "planner:0")
RETROSPECT = StrategistInput(
    role="planner",
    round=2,
    parent=BEGINNING,
    trials=(
        Trial(version=BEGINNING, children=4, correct=3, best="abc", best_ms=0.5, rank=0),
        Trial(version=WORSE, children=2, correct=0),
    ),
    outcomes=("r1i1 under planner:0: reached 0.5 ms",),
    moves=("1.40 times as fast: memory 'streams' -> 'on chip'",),
)


async def test_a_version_is_the_points_of_the_answer_and_names_where_it_came_from() -> None:
    agent, client = strategist(rewritten("- Load 16 bytes a thread.", "Keep rows\n on chip."))
    answered = await agent.rewrite(RETROSPECT)
    assert answered.version is not None
    assert answered.version.text == "- Load 16 bytes a thread.\n- Keep rows on chip."
    assert (answered.version.id, answered.version.parent) == ("planner:2", "planner:0")
    assert answered.version.why == "16-byte loads brought 1.4 times"
    assert [prompt.key for prompt in client.asked] == ["strategist:planner:2"]
    assert client.asked[0].role == "strategist"


async def test_the_question_shows_what_every_version_brought() -> None:
    agent, _ = strategist()
    words = "\n".join(message.text for message in agent.ask(RETROSPECT).messages)
    assert BEGINNING.text in words
    assert "3 of 4 candidates correct, the best abc with 0.5 ms (the best of the run)" in words
    assert "planner:1, rewritten from planner:0: 0 of 2 candidates correct" in words
    assert "It was written because: because" in words
    assert "- try everything" in words
    assert RETROSPECT.outcomes[0] in words
    assert RETROSPECT.moves[0] in words
    assert "softmax" in words


@pytest.mark.parametrize("role", ["planner", "coder"])
def test_each_role_is_told_what_its_advice_is_for(role: str) -> None:
    agent, _ = strategist()
    update = {"role": role, "outcomes": (), "moves": ()}
    words = agent.ask(RETROSPECT.model_copy(update=update)).messages[0].text
    assert f"advice of the {role}" in words
    assert ("not about writing code" in words) == (role == "planner")


async def test_no_answer_is_a_note_and_no_version() -> None:
    agent, _ = strategist(LLMError("the server is away"))
    answered = await agent.rewrite(RETROSPECT)
    assert answered.version is None
    assert answered.notes == (
        "the planner's strategy stays as it is after round 2: the server is away",
    )


async def test_a_version_that_was_there_before_is_not_tried_again() -> None:
    agent, _ = strategist(
        json.dumps({"why": "", "points": [line[2:] for line in BEGINNING.text.split("\n")]})
    )
    answered = await agent.rewrite(RETROSPECT)
    assert answered.version is None
    assert "nothing new" in answered.notes[0]


async def test_points_that_are_too_long_or_too_few_go_back_to_the_model_once() -> None:
    agent, client = strategist(rewritten("a" * (LONGEST + 1), "b"), rewritten("a", "b"))
    answered = await agent.rewrite(RETROSPECT)
    assert answered.version is not None
    assert str(LONGEST + 1) in client.asked[1].messages[-1].text
    agent, client = strategist(rewritten("same", "same"), rewritten("one"))
    assert (await agent.rewrite(RETROSPECT)).version is None
    assert len(client.asked) == 2


@pytest.mark.parametrize("role", ["planner", "coder"])
def test_the_first_generation_is_a_list_of_points_that_a_strategist_could_have_written(
    role: str,
) -> None:
    lines = first("planner" if role == "planner" else "coder").text.split("\n")
    assert 4 <= len(lines) <= 12
    assert all(line.startswith("- ") and len(line) <= LONGEST + 2 for line in lines)


def test_the_fittest_version_has_the_best_child_and_the_older_one_wins_a_tie() -> None:
    good, bad = RETROSPECT.trials
    better = Trial(version=version(3, "x", "planner:0"), children=1, correct=1, rank=4)
    best = good.model_copy(update={"rank": 2})
    assert fittest((best, bad, better)) == best
    assert fittest((better, best)) == best
    lost = bad.model_copy(update={"version": better.version})
    assert fittest((bad, lost)) == bad
    assert fittest((Trial(version=BEGINNING),)) is None
