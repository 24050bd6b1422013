"""A step for a role of its own: it is asked once a round, and what it answers is told and kept."""

from typing import Protocol

from langgraph.runtime import Runtime

from kernelwright.agents.role import RoundView, StepRole
from kernelwright.graphs.run_view.events import Noted, RoleAnswered
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.state import SearchState, Update


class Step(Protocol):
    """A step of the graph."""

    async def __call__(self, state: SearchState, runtime: Runtime[SearchContext]) -> Update:
        """Take it."""
        ...


def step_of(role: StepRole) -> Step:
    """The step that asks this role; one that is taken again asks nothing that is known."""

    async def ask(state: SearchState, runtime: Runtime[SearchContext]) -> Update:
        context = runtime.context
        view = _view(context, state, role)
        key = f"role:{role.name}:{view.round}"
        if context.archive.event(key) is not None:
            return {}
        answer = await context.minds.of(role)(view)
        for number, words in enumerate(answer.notes):
            context.emit(Noted(round=view.round, words=words), key=f"{key}:{number}")
        event = RoleAnswered(
            round=view.round, role=role.name, words=answer.words, answer=answer.model_dump_json()
        )
        context.emit(event, key=key)
        return {}

    return ask


def _view(context: SearchContext, state: SearchState, role: StepRole) -> RoundView:
    archive, standings = context.archive, context.archive.standings()
    round = state["round"] + 1 if role.place == "before_plan" else state["round"]
    profiled = archive.profile(state["best"]) if state["best"] else None
    return RoundView(
        round=round,
        task=context.task,
        hardware=context.hardware,
        floor_ms=context.floor_ms,
        baseline_ms=context.best_baseline_ms or None,
        best=next((item for item in standings if item.candidate.id == state["best"]), None),
        standings=standings,
        ideas=archive.ideas(),
        ledger=archive.ledger(),
        analyses=archive.analyses(),
        symptoms=profiled[1] if profiled else (),
        steering=context.wishes(f"{role.name}:{round}"),
    )
