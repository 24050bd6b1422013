"""The planner by a language model, with the playbook behind it.

The model sees what was tried and what came of it, and what the playbook would do; it answers with
ideas, some of which may be the playbook's own. What it may not propose is told to it once. When it
does not answer, the playbook plans the round.
"""

from kernelwright.agents.llm.answers import answer
from kernelwright.agents.llm.client import BudgetSpentError, LLMClient, LLMError
from kernelwright.agents.planner.planner import Planner, PlannerInput, Proposal
from kernelwright.agents.planner.question import Question
from kernelwright.agents.planner.review import (
    PlannedRound,
    Reviewed,
    in_order,
    review,
    texts_of,
    unmet_pins,
)
from kernelwright.agents.planner.unplanned import FreeHand
from kernelwright.agents.shared.steering import speaks_of
from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.library.ideas import Repertoire
from kernelwright.tools.types import Idea, Prompt, Task

# Options of the playbook that are shown; its own order is by expected time.
OPTIONS = 6


class ModelPlanner:
    """Plans by asking a client.

    Args:
        client: Who answers.
        task: What is to become faster.
        hardware: Where.
        fallback: Plans when there is no answer; what it would do is shown to the model.
        repertoire: The playbook's, for the language that candidates are written in.

    Raises:
        PromptError: When a prompt file does not fit.
    """

    def __init__(
        self,
        client: LLMClient,
        task: Task,
        hardware: Hardware,
        fallback: Planner,
        repertoire: Repertoire,
    ) -> None:
        self._client = client
        self._fallback = fallback
        self._question = Question(task, hardware, repertoire.language)

    async def plan(self, situation: PlannerInput) -> Proposal:
        """Ask for ideas; the playbook's when there is no answer or none may be tried.

        Raises:
            AwaitingError: The answer comes from outside and is not there yet.
        """
        options = await self._options(situation)
        try:
            return await self._asked(situation, options)
        except LLMError as error:
            return await self._without_an_answer(situation, error)

    async def _without_an_answer(self, situation: PlannerInput, error: LLMError) -> Proposal:
        """The playbook's plan; where it knows nothing, the coder has a free hand for once."""
        proposal = await self._fallback.plan(situation)
        note = f"the playbook planned round {situation.round}: {_sentence(error)}"
        if not proposal.ideas and not isinstance(error, BudgetSpentError):
            proposal = await _free_hand(situation)
            note = f"nobody planned round {situation.round}: {_sentence(error)}"
        return proposal.model_copy(update={"notes": (*proposal.notes, note)})

    async def _options(self, situation: PlannerInput) -> tuple[Idea, ...]:
        """What the playbook would do, more of it than fits into the round."""
        wider = situation.model_copy(update={"wanted": max(OPTIONS, situation.wanted)})
        return (await self._fallback.plan(wider)).ideas

    async def _asked(self, situation: PlannerInput, options: tuple[Idea, ...]) -> Proposal:
        prompt = self._question.prompt(situation, options)
        first = await answer(self._client, prompt, PlannedRound)
        found = review(first.value.ideas, situation, options)
        notes = [*first.notes, *found.notes, *found.turned_away]
        if _lacking(found, situation):
            second = await self._again(prompt, first.value, found, situation, options)
            notes += [item for item in (*second.notes, *second.turned_away) if item not in notes]
            found = second
        ideas, more = _with_pins(found.ideas, situation, options)
        if not ideas:
            raise LLMError("every idea of the model was turned away")
        return Proposal(
            ideas=in_order(ideas, situation),
            reasoning=first.value.reasoning.strip(),
            notes=(*notes, *more),
        )

    async def _again(
        self,
        prompt: Prompt,
        first: PlannedRound,
        found: Reviewed,
        situation: PlannerInput,
        options: tuple[Idea, ...],
    ) -> Reviewed:
        """Tell the model once what was turned away, and take what it offers instead."""
        asked = self._question.again(
            prompt,
            first.model_dump_json(exclude_defaults=True),
            found.ideas,
            found.turned_away,
            unmet_pins(found.ideas, situation),
            max(1, situation.wanted - len(found.ideas)),
        )
        try:
            second = await answer(self._client, asked, PlannedRound)
        except LLMError as error:
            return found.model_copy(update={"notes": (_sentence(error),)})
        return review(second.value.ideas, situation, options, accepted=found.ideas)


async def _free_hand(situation: PlannerInput) -> Proposal:
    """One idea without a plan, beginning with the best candidate where there is one."""
    free = await FreeHand().plan(situation.model_copy(update={"wanted": 1}))
    parent = situation.best.candidate.id if situation.best else None
    update = {"reason": "no plan could be had in this round", "parent": parent}
    ideas = tuple(idea.model_copy(update=update) for idea in free.ideas)
    return Proposal(ideas=ideas, reasoning="No plan could be had: the coder has a free hand.")


def _lacking(found: Reviewed, situation: PlannerInput) -> bool:
    """Whether something was turned away for which there is room, or a pin was passed over."""
    room = len(found.ideas) < situation.wanted
    return bool(found.turned_away and room) or bool(unmet_pins(found.ideas, situation))


def _with_pins(
    ideas: tuple[Idea, ...], situation: PlannerInput, options: tuple[Idea, ...]
) -> tuple[tuple[Idea, ...], tuple[str, ...]]:
    """What the person pinned and the model did not take up, from the playbook if it knows it."""
    notes = []
    for pin in unmet_pins(ideas, situation):
        known = next((idea for idea in options if speaks_of(pin, texts_of(idea))), None)
        if known is None:
            notes.append(f"nobody knows how to try what was pinned: {pin}")
        else:
            ideas = (known, *ideas)
    return ideas, tuple(notes)


def _sentence(error: LLMError) -> str:
    return " ".join(str(error).split()) or "the model did not answer"
