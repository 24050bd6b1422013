"""A toy role: after the critic an editor says in one remark what the round came to.

All of it stands here: question, answer, both minds, its prompt beside it, and the role's value.
"""

from pathlib import Path

from pydantic import Field

from kernelwright.agents.llm.answers import answer
from kernelwright.agents.llm.client import LLMClient, LLMError
from kernelwright.agents.prompting.templates import PromptTemplate
from kernelwright.agents.role import (
    Appearance,
    RoleAgent,
    RoleAnswer,
    RoleSetting,
    RoundView,
    step_role,
)
from kernelwright.tools.types import Prompt, Value


class Draft(Value):
    """What the editor reads."""

    round: int
    best: str
    implies: str


class Remark(RoleAnswer):
    """What the editor says, and of which candidate."""

    candidate: str = Field(default="", description="the candidate that the remark is about")


class PlainEditor:
    """Repeats the critic's first sentence."""

    async def answer(self, question: Draft) -> Remark:
        return Remark(words=question.implies.split(". ")[0], candidate=question.best)


class ModelEditor:
    """Asks a model, and repeats the critic where nobody answers."""

    def __init__(self, client: LLMClient, behind: RoleAgent[Draft]) -> None:
        self._client, self._behind = client, behind
        file = Path(__file__).with_name("editor.md")
        self._words = PromptTemplate(file, "round", "best", "implies")

    async def answer(self, question: Draft) -> RoleAnswer:
        messages = self._words.messages(**dict(question))
        key, round = f"editor:{question.round}", question.round
        prompt = Prompt(key=key, role="editor", messages=messages, round=round)
        try:
            return (await answer(self._client, prompt, Remark)).value
        except LLMError as error:
            plain = await self._behind.answer(question)
            return plain.model_copy(update={"notes": (f"nobody edits: {error}",)})


def _draft(view: RoundView) -> Draft:
    best = view.best.candidate.id if view.best else ""
    return Draft(round=view.round, best=best, implies=view.analyses[-1].implies)


def _by_rules(setting: RoleSetting) -> PlainEditor:
    return PlainEditor()


def _by_model(client: LLMClient, setting: RoleSetting) -> ModelEditor:
    return ModelEditor(client, PlainEditor())


EDITOR = step_role(
    "editor",
    "after_critique",
    question=_draft,
    by_rules=_by_rules,
    by_model=_by_model,
    shown=Appearance("Editor", "bright_white", "pencil"),
)
