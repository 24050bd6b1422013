"""Whole searches planned by a model: its words are scripted, everything else is real."""

import json
from contextlib import closing
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.agents.llm.client import LLMError
from kernelwright.agents.planner.model import ModelPlanner
from kernelwright.agents.roles import AgentSet
from kernelwright.graphs.run_view.events import Event, IdeasProposed, Noted
from kernelwright.graphs.search.context import Circumstances
from kernelwright.graphs.search.run import start_search
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Prompt, Reply, TracePolicy
from kernelwright.tools.types.run import Summary

FIRST = {
    "reasoning": "One walk should do.",
    "ideas": [
        {"title": "Keep it on chip", "mechanism": "the playbook's", "playbook": "P1"},
        {"title": "Walk in tiles", "mechanism": "the playbook's other way", "playbook": "P2"},
    ],
}


class Scripted:
    """Answers the first round, and then is gone."""

    def __init__(self) -> None:
        self.asked: list[Prompt] = []

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        if prompt.round > 1:
            raise LLMError("the server is gone")
        return Reply(text=f"<think>hm</think>\n```json\n{json.dumps(FIRST)}\n```")


@pytest.fixture
async def planned(toy: ModuleType, tmp_path: Path):
    """A search of two rounds: its summary, its archive, its events and what was asked."""
    client, events = Scripted(), list[Event]()

    def make(around: Circumstances) -> AgentSet:
        behind = toy.toy_agents(toy.LOOPS)
        repertoire = toy.ToyRepertoire(toy.LOOPS)
        planner = ModelPlanner(client, around.task, around.hardware, behind.planner, repertoire)
        return AgentSet.of_search(planner, behind.coder, behind.profiler, behind.critic)

    summary = await start_search(
        Path("toy.py"),
        TracePolicy(),
        "cpu",
        SearchProfile.model_validate(toy.PROFILE.model_dump() | {"rounds": 2}),
        home=tmp_path,
        executor=toy.ToyExecutor(),
        make_agents=make,
        listener=events.append,
    )
    assert isinstance(summary, Summary)
    with closing(Archive.open(summary.run, tmp_path)) as archive:
        yield summary, archive, events, client


async def test_a_model_plans_with_the_playbooks_options_and_the_playbook_when_it_is_gone(
    planned,
) -> None:
    summary, archive, events, client = planned
    assert summary.best is not None
    first, second = archive.ideas(1), archive.ideas(2)
    assert [idea.title for idea in first] == ["Keep it on chip", "Walk in tiles"]
    assert {idea.origin for idea in first} == {"model"}
    assert {idea.origin for idea in second} == {"playbook"}
    for idea in first:
        assert [item for item in archive.candidates(1) if item.candidate.idea == idea.id]
    assert all(entry.measured_ms for entry in archive.ledger() if entry.round == 1)
    proposed = [event for event in events if isinstance(event, IdeasProposed)]
    assert proposed[0].reasoning == "One walk should do."
    told = [event.words for event in events if isinstance(event, Noted)]
    assert "the playbook planned round 2: the server is gone" in told
    assert [prompt.key for prompt in client.asked] == ["planner:1", "planner:2"]


async def test_the_second_question_tells_what_the_first_ideas_brought(planned) -> None:
    _, archive, _, client = planned
    text = client.asked[1].messages[-1].text
    entry = archive.ledger()[0]
    assert f"| {entry.idea} | Keep it on chip: the playbook's |" in text
    assert f"{entry.measured_ms:.4g} ms" in text
    assert "## The best candidate in full" in text
    assert "## What the critic says" in text
