"""Which agents a search has: the playbook's, which need no key, or models with these behind them.

An agent with a model asks its client; where no answer comes it falls back to the playbook for that
step and says so. Every call is kept in the archive before anyone acts upon it.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace

from kernelwright.agents.llm.client import LLMClient, spent_words
from kernelwright.agents.llm.endpoint import OnPiece
from kernelwright.agents.llm.tool_loop import ToolLimits
from kernelwright.agents.llm.wrappers import ClientContext, RecordingClient, clients_for
from kernelwright.agents.role import Role, RoleSetting
from kernelwright.agents.roles import AgentSet
from kernelwright.agents.toolbox.workbench import RoleTools
from kernelwright.graphs.run_view.events import Awaited, ModelCalled
from kernelwright.graphs.search.context import Circumstances, MakeAgents
from kernelwright.graphs.search.options.run_terms import start_of
from kernelwright.profiles.load import ModelProfile, Models, SearchProfile, ToolMode
from kernelwright.tools.archive import Archive
from kernelwright.tools.codegen.library.kernel_library import Repertoire
from kernelwright.tools.types import Call, Prompt

log = logging.getLogger(__name__)

# Where a person's questions and answers lie, in the run's folder.
QUESTIONS = "questions"
TERM = "models"


def playbook_agents(around: Circumstances) -> AgentSet:
    """Every role by built-in expertise."""
    return _seated(around, {})


def agents_for(models: Models | None) -> MakeAgents:
    """Who thinks by these models; the playbook alone where there are none."""
    if models is None:
        return playbook_agents
    return lambda around: _seated(around, _clients(models, around))


def agents_by(client: LLMClient) -> MakeAgents:
    """Who thinks by one client for all roles, whose calls are kept as a model's are."""

    def make(around: Circumstances) -> AgentSet:
        kept = RecordingClient(client, around.archive, lambda call: _tell(call, around))
        return _seated(around, {role.name: kept for role in around.roles})

    return make


def models_of(archive: Archive) -> Models | None:
    """The models that a run was started with; None is the playbook."""
    known = archive.term(TERM)
    return Models.model_validate_json(known) if known else None


def keep_models(archive: Archive, models: Models | None) -> None:
    """Write down who thinks from now on; keys are no part of that."""
    if models is not None:
        archive.record_term(TERM, models.model_dump_json())


def spent_on_models(archive: Archive, profile: SearchProfile) -> str:
    """Why no model is asked any more; "" while there is something left to spend."""
    if profile.tokens is None and profile.usd is None:
        return ""
    words = spent_words(profile.tokens, profile.usd)
    return words if any(call.failure == words for call in archive.calls()) else ""


def _repertoire(around: Circumstances) -> Repertoire:
    from kernelwright.tools.codegen.library.kernel_library import repertoire_for

    return repertoire_for(around.task, around.hardware)


def _seated(around: Circumstances, clients: Mapping[str, LLMClient]) -> AgentSet:
    """An agent for each role: by a model where it has a client, by rules otherwise."""
    start, models = start_of(around.archive), models_of(around.archive)
    setting = RoleSetting(around.task, around.hardware, _repertoire(around), start)

    def agent(role: Role[object]) -> object:
        profile = models.of(role.name) if models is not None else None
        tools = _tools(around, profile)
        return role.agent(replace(setting, tools=tools), clients.get(role.name))

    return AgentSet({role.name: agent(role) for role in around.roles})


def _tools(around: Circumstances, profile: ModelProfile | None) -> RoleTools | None:
    """What a role's tools work with; a person who answers by files calls none, and is told."""
    if around.bench is None or around.book is None:
        return None
    if profile is None:
        return RoleTools(around.bench, around.book)
    mode: ToolMode = "none" if profile.kind == "manual" else profile.tools
    tokens = min(ToolLimits().prompt_tokens, profile.context_tokens - profile.reply_tokens)
    limits = ToolLimits(prompt_tokens=max(tokens, 1))
    return RoleTools(around.bench, around.book, mode, limits)


def _clients(models: Models, around: Circumstances) -> dict[str, LLMClient]:
    return clients_for(
        models,
        [role.name for role in around.roles],
        ClientContext(
            book=around.archive,
            budget=around.budget,
            manual=lambda person: _manual(person, around),
            tell=lambda call: _tell(call, around),
            on_piece=_overheard(around),
            left_s=around.left_s,
        ),
    )


def _overheard(around: Circumstances) -> OnPiece | None:
    """Who listens in may fail without spoiling the answer that is being given."""
    overhear = around.overhear
    if overhear is None:
        return None

    def pass_on(prompt: Prompt, piece: str) -> None:
        try:
            overhear(prompt, piece)
        except Exception:
            log.exception("somebody who listened in on %s failed", prompt.key)

    return pass_on


def _manual(profile: ModelProfile, around: Circumstances) -> LLMClient:
    from kernelwright.agents.llm.manual import ManualClient

    return ManualClient(
        around.archive.folder / QUESTIONS,
        around.patience_s,
        away=around.archive.waiting,
        tell=lambda words, paths: around.emit(
            Awaited(words=words, paths=tuple(str(path) for path in paths))
        ),
    )


def _tell(call: Call, around: Circumstances) -> None:
    prompt, reply = call.prompt, call.reply
    event = ModelCalled(round=prompt.round, key=prompt.key, role=prompt.role, failure=call.failure)
    if reply is not None:
        event = event.model_copy(
            update={
                "model": reply.model,
                "tokens": reply.tokens,
                "usd": reply.usd,
                "seconds": reply.seconds,
                "attempts": reply.attempts,
                "reasoning": reply.reasoning,
            }
        )
    else:
        event = event.model_copy(update={"tokens": call.lost, "usd": call.lost_usd})
    around.emit(event)
