"""What planner and coder are told in a whole search, by agents that keep what they were given."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.agents.coder.coder import Coder, CoderAnswer, CoderRequest, Failure
from kernelwright.agents.planner.planner import Planner, PlannerInput, Proposal
from kernelwright.agents.roles import AgentSet
from kernelwright.agents.shared.facts import Steering
from kernelwright.agents.strategist.strategist import Strategist, StrategistAnswer, StrategistInput
from kernelwright.graphs.run_view.events import Event, Noted
from kernelwright.graphs.search.context import Circumstances
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.run import start_search
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.types import TracePolicy, Verdict
from kernelwright.tools.types.run import Summary


class Silent:
    """A strategist that never rewrites: with it the agents have evolving sections to read."""

    async def rewrite(self, retrospect: StrategistInput) -> StrategistAnswer:
        return StrategistAnswer()


class Listening:
    """The playbook's planner and coder, keeping every situation and order."""

    def __init__(self, planner: Planner, coder: Coder) -> None:
        self._planner, self._coder = planner, coder
        self.situations: list[PlannerInput] = []
        self.orders: list[CoderRequest] = []

    async def plan(self, planner_input: PlannerInput) -> Proposal:
        self.situations.append(planner_input)
        proposal = await self._planner.plan(planner_input)
        return proposal.model_copy(update={"notes": ("the first said no", "the second too")})

    async def write(self, request: CoderRequest) -> CoderAnswer:
        self.orders.append(request)
        return await self._coder.write(request)

    async def repair(self, request: CoderRequest, failure: Failure) -> CoderAnswer:
        self.orders.append(request)
        return await self._coder.repair(request, failure)


@pytest.fixture
def listen(toy: ModuleType, tmp_path: Path) -> Callable[..., object]:
    async def run(
        *,
        wrong: Callable[..., Verdict | None] = lambda candidate, effort: None,
        strategist: Strategist | None = None,
        control: Control | None = None,
        events: list[Event] | None = None,
        **profile: object,
    ) -> Listening:
        heard: list[Listening] = []

        def make(around: Circumstances) -> AgentSet:
            behind = toy.toy_agents(toy.LOOPS)
            listening = Listening(behind.planner, behind.coder)
            heard.append(listening)
            return AgentSet.of_search(
                listening, listening, behind.profiler, behind.critic, strategist
            )

        summary = await start_search(
            Path("toy.py"),
            TracePolicy(),
            "cpu",
            SearchProfile.model_validate(toy.PROFILE.model_dump() | profile),
            home=tmp_path,
            executor=toy.ToyExecutor(wrong=wrong),
            make_agents=make,
            control=control,
            listener=events.append if events is not None else None,
        )
        assert isinstance(summary, Summary)
        return heard[0]

    return run


async def test_a_planner_sees_every_candidate_that_was_judged(listen) -> None:
    heard = await listen(rounds=2)
    first, second = heard.situations
    assert first.standings == ()
    assert second.standings
    assert second.best in second.standings
    assert {item.candidate.id for item in second.parents} <= {
        item.candidate.id for item in second.standings
    }
    assert len(second.ledger) == len(first.ledger) + 2


async def test_a_coder_sees_where_to_start_from_and_what_was_learnt(listen) -> None:
    heard = await listen(rounds=2)
    early = [request for request in heard.orders if request.round == 1]
    late = [request for request in heard.orders if request.round == 2]
    assert all(request.parents == () and request.ledger == () for request in early)
    assert late
    for request in late:
        assert request.parents
        assert request.parents[0].candidate.id == request.idea.parent
        assert request.ledger
        assert request.attempt == 0
    assert {item.candidate.id for item in heard.situations[1].parents} <= {
        item.candidate.id for request in late for item in request.parents
    }


async def test_repairs_of_an_idea_are_counted(listen) -> None:
    heard = await listen(wrong=lambda candidate, effort: Verdict.WRONG_RESULT, rounds=1, repairs=2)
    attempts: dict[str, list[int]] = {}
    for request in heard.orders:
        attempts.setdefault(request.idea.id, []).append(request.attempt)
    assert attempts
    assert all(of == list(range(len(of))) for of in attempts.values())
    assert max(map(len, attempts.values())) == 3


async def test_evolving_sections_and_moves_are_for_models_only(listen) -> None:
    plain = await listen(rounds=1)
    assert plain.situations[0].strategy is None
    assert {request.strategy for request in plain.orders} == {None}
    heard = await listen(rounds=3, strategist=Silent())
    assert heard.situations[0].strategy.id == "planner:0"
    assert {request.strategy.id for request in heard.orders} == {"coder:0"}
    assert any("from" in line for line in heard.situations[2].moves)


async def test_steering_reaches_the_coder_too(listen) -> None:
    control = Control()
    control.steering = Steering(hints=("keep it simple",))
    heard = await listen(rounds=1, control=control)
    assert {request.steering.hints for request in heard.orders} == {("keep it simple",)}


async def test_notes_of_a_proposal_are_told_once_and_in_order(listen) -> None:
    events: list[Event] = []
    await listen(rounds=1, events=events)
    told = [event.words for event in events if isinstance(event, Noted)]
    assert told[:2] == ["the first said no", "the second too"]
