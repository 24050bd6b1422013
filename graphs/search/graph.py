"""The search as a graph: which step follows which.

intake -> baseline -> plan -> [write x N] -> evaluate -> tune -> profile -> critique -> select, and
from there by evolve to the next plan, or to certify and report. Ideas whose candidates all failed
go back from evaluate to their writers, a bounded number of times. Roles with a step of their own
are asked before plan, or after profile, critique or select, as each of them says.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import RetryPolicy, Send

from kernelwright.agents.role import Place, StepRole
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.learn import critique, evolve, profile, select
from kernelwright.graphs.search.measure import baseline, certify, evaluate, intake, report, tune
from kernelwright.graphs.search.plan_and_write import plan, step_of, write
from kernelwright.graphs.search.state import SearchState, Work
from kernelwright.tools.evaluate.sandbox.worker import WorkerBrokenError

# A machine short of memory may refuse a worker now and grant it in a moment. A step that is taken
# again finds what it had measured in the archive.
AGAIN = RetryPolicy(initial_interval=2.0, max_attempts=3, retry_on=WorkerBrokenError)

Builder = StateGraph[SearchState, SearchContext, SearchState, SearchState]
SearchGraph = CompiledStateGraph[SearchState, SearchContext, SearchState, SearchState]


def build_search(
    checkpointer: BaseCheckpointSaver[str] | None = None, roles: Sequence[StepRole] = ()
) -> SearchGraph:
    """The graph, ready to run, with a step for each of these roles."""
    graph = StateGraph(SearchState, context_schema=SearchContext)
    graph.add_node("intake", intake)
    graph.add_node("baseline", baseline, retry_policy=AGAIN)
    graph.add_node("plan", plan)
    graph.add_node("write", write, input_schema=Work)
    graph.add_node("evaluate", evaluate, retry_policy=AGAIN)
    graph.add_node("tune", tune, retry_policy=AGAIN)
    graph.add_node("profile", profile)
    graph.add_node("critique", critique)
    graph.add_node("select", select)
    graph.add_node("evolve", evolve)
    graph.add_node("certify", certify, retry_policy=AGAIN)
    graph.add_node("report", report)
    for role in roles:
        graph.add_node(role.name, step_of(role))
    planning = _chain(graph, "before_plan", roles, "plan")
    graph.add_edge(START, "intake")
    graph.add_edge("intake", "baseline")
    graph.add_conditional_edges("baseline", after_baseline, {"plan": planning, END: END})
    graph.add_conditional_edges("plan", fan_out, ["write", "certify"])
    graph.add_edge("write", "evaluate")
    graph.add_conditional_edges("evaluate", after_evaluate, ["write", "tune"])
    graph.add_edge("tune", "profile")
    graph.add_edge("profile", _chain(graph, "after_profile", roles, "critique"))
    graph.add_edge("critique", _chain(graph, "after_critique", roles, "select"))
    graph.add_conditional_edges(_last(graph, "select", "after_select", roles), after_select)
    graph.add_edge("evolve", planning)
    graph.add_edge("certify", "report")
    graph.add_edge("report", END)
    return graph.compile(checkpointer=checkpointer)


def _chain(graph: Builder, place: Place, roles: Sequence[StepRole], then: str) -> str:
    """Where that place begins: its first role, whose like follow it up to the step after them."""
    names = [role.name for role in roles if role.place == place]
    for name, after in pairwise([*names, then]):
        graph.add_edge(name, after)
    return names[0] if names else then


def _last(graph: Builder, begin: str, place: Place, roles: Sequence[StepRole]) -> str:
    """Where that place ends, which begins behind a step: its last role, or that step itself."""
    names = [begin, *(role.name for role in roles if role.place == place)]
    for name, after in pairwise(names):
        graph.add_edge(name, after)
    return names[-1]


def after_baseline(state: SearchState) -> Literal["plan", "__end__"]:
    """A task whose reference does not run is not searched."""
    return "__end__" if state["refusal"] else "plan"


def fan_out(state: SearchState, runtime: Runtime[SearchContext]) -> list[Send] | Literal["certify"]:
    """One writer for each idea of this round, and for each repair that the last one owes."""
    if state["why_stop"] or not state["ideas"]:
        return "certify"
    owed = (runtime.context.archive.candidate(id) for id in state.get("owed", []))
    repairs = [_send(state, candidate.idea, candidate.id) for candidate in owed]
    return [*(_send(state, idea, "") for idea in state["ideas"]), *repairs]


def after_evaluate(
    state: SearchState, runtime: Runtime[SearchContext]
) -> list[Send] | Literal["tune"]:
    """Failed ideas go back to their writers while there are attempts left."""
    context = runtime.context
    if not state["failed"] or state["attempt"] > context.profile.repairs:
        return "tune"
    if context.is_out_of_time(f"repairs:{state['round']}:{state['attempt']}"):
        return "tune"
    failed = (context.archive.candidate(id) for id in state["failed"])
    return [_send(state, candidate.idea, candidate.id) for candidate in failed]


def after_select(state: SearchState) -> Literal["evolve", "certify"]:
    """Another round, for which prompts may evolve, or the end."""
    return "certify" if state["why_stop"] else "evolve"


def _send(state: SearchState, idea: str, failed: str) -> Send:
    work = Work(
        round=state["round"],
        idea=idea,
        failed=failed,
        best=state["best"],
        parents=state["parents"],
    )
    return Send("write", work)
