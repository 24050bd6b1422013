"""The planner by a language model, with the playbook behind it.

The question has standing words once, then what this round looks like. The model sees what was tried
and what came of it, and what the playbook would do; it answers with ideas, some of which may be the
playbook's own. What it may not propose is told to it once. When it does not answer, the playbook
plans the round. The planner as a role of the search is declared here too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelwright.agents.llm.answers import answer
from kernelwright.agents.llm.client import BudgetSpentError, LLMClient, LLMError
from kernelwright.agents.planner.planner import (
    PlannedRound,
    Planner,
    PlannerInput,
    Proposal,
    Reviewed,
    in_order,
    review,
    texts_of,
    unmet_pins,
)
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.agents.planner.unplanned import FreeHand, unplanned
from kernelwright.agents.prompting.cards import (
    analysis_card,
    candidate_card,
    hardware_card,
    ledger_table,
    milliseconds,
    progress_card,
    readings_card,
    roofline_card,
    shortened,
    standings_table,
    steering_card,
    symptoms_card,
    task_card,
)
from kernelwright.agents.prompting.fitting import fitted
from kernelwright.agents.prompting.templates import (
    contract_summary,
    craft,
    template,
)
from kernelwright.agents.role import Appearance, Role, RoleSetting
from kernelwright.agents.shared.facts import speaks_of
from kernelwright.agents.toolbox.history import HistoryDesk
from kernelwright.agents.toolbox.workbench import RoleTools, with_tools
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Standing, behaviour, gain, origin
from kernelwright.tools.codegen.library.kernel_library import Repertoire
from kernelwright.tools.types import Idea, LanguageName, Message, Prompt, Task

HERE = Path(__file__).parent
# Of the best candidate's source, this much is shown: structure matters here, not every line.
_SHOWN = 14_000


class Question:
    """The planner's prompt for one task on one device.

    Args:
        task: What is to become faster.
        hardware: Where.
        language: What candidates are written in.

    Raises:
        PromptError: When a prompt file does not fit.
    """

    def __init__(self, task: Task, hardware: Hardware, language: LanguageName) -> None:
        self._task, self._hardware = task, hardware
        self._words = template(
            HERE / "planner.md",
            "contract", "craft", "task", "hardware", "roofline", "progress", "round", "rounds",
            "wanted", "ledger", "standings", "best", "symptoms", "analysis", "moves", "steering",
            "options", "strategy", "parents", "island", "islands",
        )  # fmt: skip
        self._turned_away = template(
            HERE / "planner-again.md", "accepted", "turned_away", "pins", "wanted"
        )
        # What stays the same in every round is written once, and stands before what does not, so
        # that a server can keep it.
        self._standing = {
            "contract": contract_summary(language),
            "craft": craft(language),
            "task": task_card(task),
            "hardware": hardware_card(hardware),
        }

    def prompt(self, planner_input: PlannerInput, options: Sequence[Idea]) -> Prompt:
        """The question of one round.

        Args:
            planner_input: What the planner may look at.
            options: What the playbook would do, as P1, P2, ...
        """
        best, home = planner_input.best, _home(planner_input)
        messages = self._words.messages(
            **self._standing,
            roofline=roofline_card(self._task, self._hardware, planner_input.floor_ms),
            progress=progress_card(planner_input.floor_ms, planner_input.baseline_ms, best),
            round=planner_input.round,
            rounds=planner_input.rounds,
            wanted=planner_input.wanted,
            ledger=ledger_table(planner_input.tried, planner_input.ledger),
            standings=standings_table(planner_input.standings),
            best=candidate_card(home.candidate, home.evaluation, _SHOWN) if home else "",
            symptoms=_profiled(planner_input) if planner_input.best else "",
            analysis=analysis_card(planner_input.analysis) if planner_input.analysis else "",
            moves="\n".join(f"- {line}" for line in planner_input.moves),
            steering=steering_card(planner_input.steering) if _said(planner_input) else "",
            options="\n".join(_option(*item) for item in enumerate(options, start=1)),
            strategy=planner_input.strategy.text if planner_input.strategy else "",
            parents=parents_card(planner_input.parents, planner_input.standings),
            island=planner_input.island,
            islands=planner_input.islands,
        )
        return Prompt(
            key=f"planner:{planner_input.round}",
            role="planner",
            messages=fitted(messages),
            round=planner_input.round,
        )

    def again(
        self,
        prompt: Prompt,
        answered: str,
        accepted: Sequence[Idea],
        turned_away: Sequence[str],
        pins: Sequence[str],
        wanted: int,
    ) -> Prompt:
        """The same question with the model's answer and what was turned away."""
        more = self._turned_away.messages(
            accepted=[idea.title for idea in accepted],
            turned_away=turned_away,
            pins=pins,
            wanted=wanted,
        )
        own = Message(author="model", text=answered)
        update = {"key": f"{prompt.key}:differently", "messages": (*prompt.messages, own, *more)}
        return prompt.model_copy(update=update)


def _home(planner_input: PlannerInput) -> Standing | None:
    """The best of the population that this round grows; of all, where there is but one."""
    if planner_input.islands == 1:
        return planner_input.best
    return planner_input.parents[0] if planner_input.parents else None


def _profiled(planner_input: PlannerInput) -> str:
    """Symptoms, what the profiler made of them where it spoke, and the readings behind them."""
    best, readings = planner_input.best, planner_input.readings
    told = readings_card(best.candidate.id, readings) if best is not None else ""
    words = (planner_input.explanation, symptoms_card(planner_input.symptoms), told)
    return "\n\n".join(part for part in words if part)


def _said(planner_input: PlannerInput) -> bool:
    said = planner_input.steering
    return bool(said.hints or said.pins or said.bans)


def _option(number: int, idea: Idea) -> str:
    predicted = milliseconds(idea.predicted_ms)
    return f"- P{number}: {idea.title} ({idea.category}, expects {predicted}). {idea.mechanism}"


_NOTE_CHARACTERS = 160


def parents_card(parents: Sequence[Standing], standings: Sequence[Standing]) -> str:
    """The parents, the fastest first; "" where there are none."""
    if not parents:
        return ""
    known = {item.candidate.id: item for item in standings}
    return "\n".join(f"- {_line(item, _brought(item, known))}" for item in parents)


def _brought(item: Standing, known: Mapping[str, Standing]) -> float | None:
    source = origin(item, known)
    return gain(source.evaluation, item.evaluation) if source else None


def _line(item: Standing, brought: float | None) -> str:
    candidate, cell = item.candidate, behaviour(item.candidate, item.evaluation)
    parts = [
        f"`{candidate.id}` ({candidate.idea}): {milliseconds(item.evaluation.median_ms)}",
        f"memory '{cell.memory}', compute '{cell.compute}', parallel '{cell.parallel}'",
        f"{brought:.2f} times as fast as what it set out from" if brought else "",
        shortened(" ".join(candidate.note.split()), _NOTE_CHARACTERS),
    ]
    return "; ".join(part for part in parts if part)


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
        tools: What the model may look up; None for nothing.

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
        tools: RoleTools | None = None,
    ) -> None:
        looking_up = HistoryDesk(tools.bench).tools() if tools is not None else ()
        self._client = with_tools(client, tools, looking_up) if tools is not None else client
        self._fallback = fallback
        self._question = Question(task, hardware, repertoire.language)

    async def plan(self, planner_input: PlannerInput) -> Proposal:
        """Ask for ideas; the playbook's when there is no answer or none may be tried.

        Raises:
            AwaitingError: The answer comes from outside and is not there yet.
        """
        options = await self._options(planner_input)
        try:
            return await self._asked(planner_input, options)
        except LLMError as error:
            return await self._without_an_answer(planner_input, error)

    async def _without_an_answer(self, planner_input: PlannerInput, error: LLMError) -> Proposal:
        """The playbook's plan; where it knows nothing, the coder has a free hand for once."""
        proposal = await self._fallback.plan(planner_input)
        note = f"the playbook planned round {planner_input.round}: {_sentence(error)}"
        if not proposal.ideas and not isinstance(error, BudgetSpentError):
            proposal = await _free_hand(planner_input)
            note = f"nobody planned round {planner_input.round}: {_sentence(error)}"
        return proposal.model_copy(update={"notes": (*proposal.notes, note)})

    async def _options(self, planner_input: PlannerInput) -> tuple[Idea, ...]:
        """What the playbook would do, more of it than fits into the round."""
        wider = planner_input.model_copy(update={"wanted": max(OPTIONS, planner_input.wanted)})
        return (await self._fallback.plan(wider)).ideas

    async def _asked(self, planner_input: PlannerInput, options: tuple[Idea, ...]) -> Proposal:
        prompt = self._question.prompt(planner_input, options)
        first = await answer(self._client, prompt, PlannedRound)
        found = review(first.value.ideas, planner_input, options)
        notes = [*first.notes, *found.notes, *found.turned_away]
        if _lacking(found, planner_input):
            second = await self._again(prompt, first.value, found, planner_input, options)
            notes += [item for item in (*second.notes, *second.turned_away) if item not in notes]
            found = second
        ideas, more = _with_pins(found.ideas, planner_input, options)
        if not ideas:
            raise LLMError("every idea of the model was turned away")
        return Proposal(
            ideas=in_order(ideas, planner_input),
            reasoning=first.value.reasoning.strip(),
            notes=(*notes, *more),
        )

    async def _again(
        self,
        prompt: Prompt,
        first: PlannedRound,
        found: Reviewed,
        planner_input: PlannerInput,
        options: tuple[Idea, ...],
    ) -> Reviewed:
        """Tell the model once what was turned away, and take what it offers instead."""
        asked = self._question.again(
            prompt,
            first.model_dump_json(exclude_defaults=True),
            found.ideas,
            found.turned_away,
            unmet_pins(found.ideas, planner_input),
            max(1, planner_input.wanted - len(found.ideas)),
        )
        try:
            second = await answer(self._client, asked, PlannedRound)
        except LLMError as error:
            return found.model_copy(update={"notes": (_sentence(error),)})
        return review(second.value.ideas, planner_input, options, accepted=found.ideas)


async def _free_hand(planner_input: PlannerInput) -> Proposal:
    """One idea without a plan, beginning with the best candidate where there is one."""
    free = await FreeHand().plan(planner_input.model_copy(update={"wanted": 1}))
    parent = planner_input.best.candidate.id if planner_input.best else None
    update = {"reason": "no plan could be had in this round", "parent": parent}
    ideas = tuple(idea.model_copy(update=update) for idea in free.ideas)
    return Proposal(ideas=ideas, reasoning="No plan could be had: the coder has a free hand.")


def _lacking(found: Reviewed, planner_input: PlannerInput) -> bool:
    """Whether something was turned away for which there is room, or a pin was passed over."""
    room = len(found.ideas) < planner_input.wanted
    return bool(found.turned_away and room) or bool(unmet_pins(found.ideas, planner_input))


def _with_pins(
    ideas: tuple[Idea, ...], planner_input: PlannerInput, options: tuple[Idea, ...]
) -> tuple[tuple[Idea, ...], tuple[str, ...]]:
    """What the person pinned and the model did not take up, from the playbook if it knows it."""
    notes = []
    for pin in unmet_pins(ideas, planner_input):
        known = next((idea for idea in options if speaks_of(pin, texts_of(idea))), None)
        if known is None:
            notes.append(f"nobody knows how to try what was pinned: {pin}")
        else:
            ideas = (known, *ideas)
    return ideas, tuple(notes)


def _sentence(error: LLMError) -> str:
    return " ".join(str(error).split()) or "the model did not answer"


def _by_rules(setting: RoleSetting) -> Planner:
    return PlaybookPlanner(setting.repertoire)


def _by_model(client: LLMClient, setting: RoleSetting) -> Planner:

    behind = _by_rules(setting)
    task, hardware, repertoire = setting.task, setting.hardware, setting.repertoire
    return ModelPlanner(client, task, hardware, behind, repertoire, setting.tools)


PLANNER: Role[Planner] = Role(
    name="planner",
    by_rules=_by_rules,
    by_model=_by_model,
    shown=Appearance("Planner", "magenta", "lightbulb"),
    part="ideas",
    switch_off=unplanned,
)
