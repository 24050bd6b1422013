"""A toy executor: a folder's worth of code and one registry line, and a search runs through it."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from kernelwright.graphs.replay import replay
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.options.run_terms import kept_choice, opened
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Archive, RunError
from kernelwright.tools.evaluate.executors.base.executor import Capabilities, Executor
from kernelwright.tools.evaluate.executors.base.kind import ExecutorChoice, ExecutorKind, Order
from kernelwright.tools.evaluate.executors.probing import kernel
from kernelwright.tools.evaluate.executors.registry import EXECUTORS, executor_kind
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import (
    Baselines,
    Candidate,
    Effort,
    Evaluation,
    Isolation,
    Phase,
    Profile,
    Refusal,
    Task,
    TracePolicy,
    Verdict,
)
from kernelwright.tools.types.run import Summary
from kernelwright.ui.cli.work import wished
from kernelwright.ui.complaints import Complaint

TEAM = ExecutorChoice(name="team")
FILE = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.0 + 1.0

def get_inputs():
    return [torch.randn(1024, 256)]
"""


class TeamExecutor(Executor):
    """Executors that take turns with the candidates, as the nodes of a cluster would."""

    capabilities = Capabilities(metered=True)

    def __init__(self, members: Sequence[Executor]) -> None:
        self.members = members
        self.turns = 0

    @property
    def isolation(self) -> Isolation:
        return self.members[0].isolation

    async def hardware(self) -> Hardware:
        return await self.members[0].hardware()

    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        return await self.members[0].trace(path, policy)

    async def baselines(self, task: Task, *, eager_only: bool = False) -> Baselines | Refusal:
        return await self.members[0].baselines(task, eager_only=eager_only)

    async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
        self.turns += 1
        return await self.members[self.turns % 2].evaluate(task, candidate, effort)

    async def profile(self, task: Task, candidate: Candidate) -> Profile:
        return await self.members[0].profile(task, candidate)

    def spent(self, path: str) -> tuple[Phase, ...]:
        return (Phase(name="turns", seconds=float(self.turns)),)

    async def aclose(self) -> None:
        for member in self.members:
            await member.aclose()


class TeamKind(ExecutorKind):
    """Two executors of another kind."""

    of = "toy"

    def __init__(self) -> None:
        self.made: list[TeamExecutor] = []

    def make(self, order: Order) -> Executor:
        folders = [order.scratch / name for name in ("one", "other")]
        for folder in folders:
            folder.mkdir()
        kind = executor_kind(self.of)
        team = TeamExecutor([kind.make(replace(order, scratch=folder)) for folder in folders])
        self.made.append(team)
        return team


@pytest.fixture
def team(toy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> TeamKind:
    """The two registry lines, `team` and `toy`; of neither does the rest of the code know."""

    class ToyKind(ExecutorKind):
        def make(self, order: Order) -> Executor:
            made: Executor = toy.ToyExecutor()
            return made

    kinds: dict[str, ExecutorKind] = {"team": TeamKind(), "toy": ToyKind()}
    for name, kind in kinds.items():
        monkeypatch.setitem(sys.modules, f"{name}_kind", SimpleNamespace(KIND=kind))
        monkeypatch.setitem(EXECUTORS, name, f"{name}_kind")
    found = kinds["team"]
    assert isinstance(found, TeamKind)
    return found


async def begun(toy: ModuleType, home: Path, control: Control | None = None) -> Summary:
    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE, home=home, control=control,
        choice=wished("team", None, None, "cpu"),
        make_agents=lambda around: toy.toy_agents(toy.LOOPS),
    )  # fmt: skip
    assert isinstance(summary, Summary)
    return summary


async def test_a_search_goes_through_an_executor_that_a_line_registered(
    toy: ModuleType, team: TeamKind, tmp_path: Path
) -> None:
    summary = await begun(toy, tmp_path)
    assert summary.status == "improved"
    (made,) = team.made
    one, other = (member.asked for member in made.members)  # type: ignore[attr-defined]
    screened = [[what for what, effort in asked if effort == "screen"] for asked in (one, other)]
    assert all(screened), "both took their turns"
    assert all(member.closed for member in made.members)  # type: ignore[attr-defined]
    assert summary.phases == (Phase(name="turns", seconds=float(made.turns)),)


async def test_a_run_goes_on_with_the_executor_that_it_began_with_and_replays(
    toy: ModuleType, team: TeamKind, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    control = Control()
    control.stop()
    stopped = await begun(toy, tmp_path, control)
    summary = await resume_search(
        stopped.run, home=tmp_path, make_agents=lambda around: toy.toy_agents(toy.LOOPS)
    )
    assert isinstance(summary, Summary)
    assert len(team.made) == 2
    archive = Archive.open(summary.run, tmp_path)
    kept = kept_choice(archive)
    archive.close()
    assert kept is not None
    assert (kept.name, kept.remote) == ("team", False)
    monkeypatch.delitem(EXECUTORS, "team")
    with pytest.raises(RunError, match="needs the executor 'team', which is not here"):
        await resume_search(summary.run, home=tmp_path, rounds=9)
    again = await replay(
        summary.run, home=tmp_path, make_agents=lambda around: toy.toy_agents(toy.LOOPS)
    )
    assert again.difference is None
    assert again.same


@pytest.mark.exhaustive
@pytest.mark.usefixtures("nothing_compiled")
async def test_two_judges_of_this_machine_take_turns(
    team: TeamKind, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(TeamKind, "of", "local")
    path = tmp_path / "probe.py"
    path.write_text(FILE, encoding="utf-8")
    async with opened(None, "cpu", TEAM, rules=Rules(profile_s=1.0)) as judge:
        task = await judge.trace(path, TracePolicy())
        assert isinstance(task, Task)
        found = [await judge.evaluate(task, kernel("cpu"), "screen") for _ in range(2)]
    assert [item.verdict for item in found] == [Verdict.CORRECT] * 2


def test_an_executor_that_is_not_registered_is_a_complaint() -> None:
    with pytest.raises(Complaint, match="executor 'team' is not one of 'local', 'batch'"):
        wished("team", None, None, "cpu")


def test_what_only_bundles_take_is_refused_by_others(team: TeamKind) -> None:
    with pytest.raises(Complaint, match="--bundles and --gpu need --executor batch"):
        wished("team", None, "h200", "cuda")


def test_runs_from_before_executors_had_names_are_of_bundles(toy: ModuleType) -> None:
    stored = f'{{"hardware": {toy.HARDWARE.model_dump_json()}, "bundles": "there"}}'
    choice = ExecutorChoice.model_validate_json(stored)
    assert (choice.name, choice.hardware, choice.bundles) == ("batch", toy.HARDWARE, "there")


@pytest.mark.parametrize("name", list(EXECUTORS))
def test_every_line_of_the_registry_holds_a_kind(name: str) -> None:
    assert isinstance(executor_kind(name), ExecutorKind)
