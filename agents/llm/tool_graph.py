"""The loop in which a model calls tools, as a graph: ask, act on what was called, ask again.

`ask` puts the question with everything that was found out so far, `act` runs the calls, and their
results go back as tools' messages, or in words to a model that calls in words. Its state is of one
question and kept nowhere: questions and calls are recorded each by itself. Imports langgraph, so
it is imported where a model with tools is asked.
"""

import asyncio
import contextvars
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypedDict

from langchain_core.runnables.config import var_child_runnable_config
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langsmith import tracing_context

from kernelwright.agents.llm.client import LLMClient, tokens_in
from kernelwright.agents.llm.tool_loop import Bench, ToolLimits, shortened
from kernelwright.agents.llm.tools import calls_of, sendable
from kernelwright.tools.types import Message, Prompt, Reply, ToolCall, ToolRun

# Of one answer, so many calls are looked at; who writes more has lost the thread.
_CALLS_LOOKED_AT = 16
# Of what a model says beside its calls, this much stays in the conversation.
_SAID = 8_000
# A loop has at most as many steps as calls, twice, and a few to end it.
_SPARE_STEPS = 8
_LAST = "(No more tools can be called. Answer now.)"


class _State(TypedDict, total=False):
    """One loop: the conversation so far, the last reply, and what it has cost.

    `over` once the model was asked for the last time, when it may call nothing.
    """

    prompt: Prompt
    reply: Reply
    asked: int
    over: bool
    runs: tuple[ToolRun, ...]
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Loop:
    """Who is asked, and what is run."""

    client: LLMClient
    bench: Bench


async def _ask(state: _State, runtime: Runtime[Loop]) -> _State:
    """Put the question with everything that was found out so far."""
    prompt, asked = state["prompt"], state["asked"]
    over = not _may_call(state, runtime.context.bench.limits)
    key = f"{prompt.key}:tools:{asked}" if asked else prompt.key
    reply = await runtime.context.client.say(
        prompt.model_copy(update={"key": key, "no_calls": over})
    )
    return {
        "reply": reply.model_copy(update={"calls": ()}) if over else reply,
        "asked": asked + 1,
        "over": over,
        "tokens": state["tokens"] + reply.tokens.input + reply.tokens.output,
        "seconds": state["seconds"] + reply.seconds,
    }


async def _act(state: _State, runtime: Runtime[Loop]) -> _State:
    """Run what the model called, and put the results behind its answer."""
    bench, prompt, reply = runtime.context.bench, state["prompt"], state["reply"]
    read = calls_of(reply, bench.tools)
    runs, seconds = list(state["runs"]), state["seconds"]
    sent: list[ToolCall] = []
    results: list[str] = []
    for number, call in enumerate(read.calls[:_CALLS_LOOKED_AT]):
        sent.append(sendable(call, f"call_{state['asked']}_{number + 1}"))
        if len(runs) >= bench.limits.calls or seconds >= bench.limits.seconds:
            results.append("not run: no more tools can be called")
            continue
        if (same := _same(call, runs)) is not None:
            results.append(f"You called that before, and it said:\n{same.result}")
            continue
        run = await bench.run(prompt, len(runs) + 1, call, bench.limits.seconds - seconds)
        runs.append(run)
        seconds += run.seconds
        results.append(run.result)
    grown = (*prompt.messages, *_said(reply, sent, results, native=read.native))
    after: _State = {
        **state,
        "prompt": prompt.model_copy(update={"messages": grown}),
        "runs": tuple(runs),
        "seconds": seconds,
    }
    if not _may_call(after, bench.limits):
        *before, last = grown
        ended = last.model_copy(update={"text": f"{last.text}\n\n{_LAST}"})
        after["prompt"] = prompt.model_copy(update={"messages": (*before, ended)})
    return after


def _after_ask(state: _State, runtime: Runtime[Loop]) -> Literal["act", "__end__"]:
    """Run what was called, or be done."""
    called = calls_of(state["reply"], runtime.context.bench.tools).calls
    return "act" if called and not state["over"] else "__end__"


def _may_call(state: _State, limits: ToolLimits) -> bool:
    return (
        len(state["runs"]) < limits.calls
        and state["asked"] <= limits.calls
        and state["tokens"] < limits.tokens
        and state["seconds"] < limits.seconds
        and tokens_in(state["prompt"]) < limits.prompt_tokens
    )


def _same(call: ToolCall, runs: Sequence[ToolRun]) -> ToolRun | None:
    """An earlier call of the same with the same arguments."""
    wanted = (call.name, call.arguments)
    return next((run for run in runs if (run.tool, run.arguments) == wanted), None)


def _said(
    reply: Reply, calls: Sequence[ToolCall], results: Sequence[str], *, native: bool
) -> tuple[Message, ...]:
    """The model's answer and the results, in the form in which it called."""
    text = shortened(reply.text, _SAID)
    if native:
        own = Message(author="model", text=text, calls=tuple(calls))
        found = zip(calls, results, strict=True)
        return (own, *(Message(author="tool", text=said, call=call.id) for call, said in found))
    named = [
        f"Result of `{call.name}`:\n\n{said}" for call, said in zip(calls, results, strict=True)
    ]
    return (
        Message(author="model", text=text),
        Message(author="person", text="\n\n".join(named)),
    )


@cache
def _graph() -> CompiledStateGraph[_State, Loop, _State, _State]:
    graph = StateGraph(_State, context_schema=Loop)
    graph.add_node("ask", _ask)
    graph.add_node("act", _act)
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", _after_ask)
    graph.add_edge("act", "ask")
    return graph.compile(checkpointer=False)


async def run_loop(loop: Loop, prompt: Prompt) -> Reply:
    """Ask until there is an answer, apart from the graph that may be running around.

    A loop is no step of that graph: its pauses and checkpoints are of whole questions.
    """
    state: _State = {
        "prompt": prompt,
        "asked": 0,
        "over": False,
        "runs": (),
        "tokens": 0,
        "seconds": 0.0,
    }
    steps = 2 * loop.bench.limits.calls + _SPARE_STEPS

    async def run() -> Reply:
        with tracing_context(enabled=False):  # nothing goes to a tracing service
            found = await _graph().ainvoke(state, {"recursion_limit": steps}, context=loop)
        reply: Reply = found["reply"]
        return reply

    around = contextvars.copy_context()
    around.run(var_child_runnable_config.set, None)
    return await asyncio.create_task(run(), context=around)
