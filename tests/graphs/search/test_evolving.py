"""Prompts that evolve in whole searches: real agents, only a model's words are made up."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.agents.coder.coder import Coder, CoderAnswer, CoderRequest, Failure
from kernelwright.agents.llm.client import LLMError
from kernelwright.agents.planner.planner import Planner, PlannerInput, Proposal
from kernelwright.agents.roles import AgentSet
from kernelwright.agents.strategist.strategist import ModelStrategist, current, trials, versions
from kernelwright.graphs.run_view.events import Event, Noted, StrategyEvolved
from kernelwright.graphs.search.context import Circumstances
from kernelwright.graphs.search.learn import turn
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Candidate, Prompt, Reply, TracePolicy, Verdict
from kernelwright.tools.types.run import Summary
from kernelwright.tools.types.value import AwaitingError

Evolving = Callable[..., Awaitable[Summary]]


class Under:
    """The playbook's planner and coder, labelling what they write as a model's agents do."""

    def __init__(self, planner: Planner, coder: Coder, heard: dict[str, tuple[str, ...]]) -> None:
        self._planner, self._coder = planner, coder
        self._heard = heard

    async def plan(self, planner_input: PlannerInput) -> Proposal:
        self._heard[f"planner:{planner_input.round}"] = planner_input.moves
        proposal = await self._planner.plan(planner_input)
        id = planner_input.strategy.id if planner_input.strategy else ""
        ideas = tuple(idea.model_copy(update={"strategy": id}) for idea in proposal.ideas)
        return proposal.model_copy(update={"ideas": ideas})

    async def write(self, request: CoderRequest) -> CoderAnswer:
        self._heard[f"coder:{request.round}"] = request.moves
        return self._labelled(request, await self._coder.write(request))

    async def repair(self, request: CoderRequest, failure: Failure) -> CoderAnswer:
        return self._labelled(request, await self._coder.repair(request, failure))

    def _labelled(self, request: CoderRequest, answer: CoderAnswer) -> CoderAnswer:
        id = request.strategy.id if request.strategy else ""
        written = tuple(item.model_copy(update={"strategy": id}) for item in answer.candidates)
        return answer.model_copy(update={"candidates": written})


class Scripted:
    """Answers with points that name the question, or as it is told to."""

    def __init__(self, *failures: Exception) -> None:
        self.asked: list[str] = []
        self.heard: dict[str, tuple[str, ...]] = {}
        self._failures = list(failures)

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt.key)
        if self._failures:
            raise self._failures.pop(0)
        points = [f"what {prompt.key} taught", "look elsewhere too"]
        return Reply(text=json.dumps({"why": "outcomes", "points": points}))


def agents(toy: ModuleType, client: Scripted) -> Callable[[Circumstances], AgentSet]:
    def make(around: Circumstances) -> AgentSet:
        behind = toy.toy_agents(toy.LOOPS)
        under = Under(behind.planner, behind.coder, client.heard)
        return AgentSet.of_search(
            planner=under,
            coder=under,
            profiler=behind.profiler,
            critic=behind.critic,
            strategist=ModelStrategist(client, around.task, around.hardware),
        )

    return make


@pytest.fixture
def evolving(toy: ModuleType, tmp_path: Path) -> Evolving:
    """Run a whole toy search whose prompts evolve."""

    async def run(
        client: Scripted,
        *,
        events: list[Event] | None = None,
        executor: object = None,
        **profile: object,
    ) -> Summary:
        summary = await start_search(
            Path("toy.py"),
            TracePolicy(),
            "cpu",
            SearchProfile.model_validate(toy.PROFILE.model_dump() | {"tuning_trials": 0} | profile),
            home=tmp_path,
            listener=events.append if events is not None else None,
            executor=executor or toy.ToyExecutor(),
            make_agents=agents(toy, client),
        )
        assert isinstance(summary, Summary)
        return summary

    return run


def evolved(events: list[Event]) -> list[StrategyEvolved]:
    return [event for event in events if isinstance(event, StrategyEvolved)]


async def test_without_a_strategist_nothing_evolves(
    search: Callable[..., Awaitable[Summary]], tmp_path: Path
) -> None:
    events: list[Event] = []
    summary = await search(events=events)
    assert Archive.open(summary.run, tmp_path).strategies() == ()
    assert evolved(events) == []


async def test_one_role_a_round_is_rewritten_and_nobody_is_asked_after_the_last(
    evolving: Evolving, tmp_path: Path
) -> None:
    client, events = Scripted(), list[Event]()
    summary = await evolving(client, events=events)
    assert summary.rounds == 3
    assert client.asked == ["strategist:planner:1", "strategist:coder:2"]
    archive = Archive.open(summary.run, tmp_path)
    assert [item.id for item in versions(archive, "planner")] == ["planner:0", "planner:1"]
    assert [item.id for item in versions(archive, "coder")] == ["coder:0", "coder:2"]
    assert {idea.strategy for idea in archive.ideas(1)} == {"planner:0"}
    assert {idea.strategy for idea in archive.ideas(2)} == {"planner:1"}
    for round, expected in ((1, "coder:0"), (2, "coder:0"), (3, "coder:2")):
        written = [item for item in archive.candidates(round) if item.author == "coder"]
        assert {item.candidate.strategy for item in written} == {expected}
    born = evolved(events)[0]
    assert born.version.text == "- what strategist:planner:1 taught\n- look elsewhere too"
    assert born.before == versions(archive, "planner")[0].text


async def test_a_version_without_a_good_child_gives_way_to_its_parent(
    evolving: Evolving, toy: ModuleType, tmp_path: Path
) -> None:
    def wrong(candidate: Candidate, effort: str) -> Verdict | None:
        return Verdict.WRONG_RESULT if candidate.idea.startswith("r2") else None

    events: list[Event] = []
    executor = toy.ToyExecutor(wrong=wrong)
    summary = await evolving(Scripted(), events=events, executor=executor)
    told = [(event.round, event.version.id) for event in evolved(events)]
    assert told == [(1, "planner:1"), (2, "planner:0"), (2, "coder:2")]
    archive = Archive.open(summary.run, tmp_path)
    assert {idea.strategy for idea in archive.ideas(3)} == {"planner:0"}
    first, second = trials(archive, "planner")
    assert first.rank == 0
    assert second.children > 0
    assert (second.correct, second.rank, second.best) == (0, None, "")


async def test_planner_and_coder_hear_which_moves_paid(evolving: Evolving) -> None:
    client = Scripted()
    await evolving(client)
    assert (client.heard["planner:1"], client.heard["coder:1"]) == ((), ())
    assert client.heard["planner:3"] == client.heard["coder:3"]
    assert any("times as fast" in line and "r2i" in line for line in client.heard["planner:3"])


async def test_a_model_that_does_not_answer_costs_one_note_and_no_version(
    evolving: Evolving, tmp_path: Path
) -> None:
    client, events = Scripted(LLMError("it is away")), list[Event]()
    summary = await evolving(client, events=events)
    assert client.asked == ["strategist:planner:1", "strategist:planner:2"]
    notes = [event.words for event in events if isinstance(event, Noted)]
    assert "the planner's strategy stays as it is after round 1: it is away" in notes
    archive = Archive.open(summary.run, tmp_path)
    assert {idea.strategy for idea in archive.ideas(2)} == {"planner:0"}
    assert {idea.strategy for idea in archive.ideas(3)} == {"planner:2"}


async def test_an_ablation_of_prompts_asks_nobody(evolving: Evolving, tmp_path: Path) -> None:
    client = Scripted()
    summary = await evolving(client, without=("prompts",))
    assert client.asked == []
    assert Archive.open(summary.run, tmp_path).strategies() == ()


async def test_a_run_that_waits_for_the_strategist_goes_on_where_it_stood(
    evolving: Evolving, toy: ModuleType, tmp_path: Path
) -> None:
    waits = Scripted(AwaitingError("the answer is not there yet"))
    waiting = await evolving(waits)
    assert waiting.status == "waiting"
    archive = Archive.open(waiting.run, tmp_path)
    assert archive.strategies() == ()
    client = Scripted()
    summary = await resume_search(
        waiting.run,
        home=tmp_path,
        executor=toy.ToyExecutor(),
        make_agents=agents(toy, client),
    )
    assert isinstance(summary, Summary)
    assert client.asked == ["strategist:planner:1", "strategist:coder:2"]
    assert current(archive, "planner").id == "planner:1"
    stored = archive.events(kind="strategy_evolved")
    assert len(stored) == len({event.key for event in stored})


async def test_a_step_taken_again_has_the_same_turn(evolving: Evolving, tmp_path: Path) -> None:
    summary = await evolving(Scripted(), rounds=2)
    archive = Archive.open(summary.run, tmp_path)
    assert turn(archive, 1) == "planner"
    assert turn(archive, 2) == "coder"


async def test_a_finished_run_that_gets_more_rounds_evolves_on(
    evolving: Evolving, toy: ModuleType, tmp_path: Path
) -> None:
    before = await evolving(Scripted(), rounds=1)
    client = Scripted()
    await resume_search(
        before.run,
        home=tmp_path,
        rounds=2,
        executor=toy.ToyExecutor(),
        make_agents=agents(toy, client),
    )
    assert client.asked == ["strategist:planner:1"]
    assert {idea.strategy for idea in Archive.open(before.run, tmp_path).ideas(2)} == {"planner:1"}
