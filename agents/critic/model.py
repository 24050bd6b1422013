"""The critic by a language model: says why fast candidates are fast, and is held to its numbers.

The playbook's analysis comes first and stays underneath: it scores what was predicted, knows what
failed every time, and stands in where there is nothing to contrast or nobody answers. The critic
as a role of the search is declared here too. Not here: what of the model's answer is kept
(`agents.critic.claim_check`).
"""

from pathlib import Path

from kernelwright.agents.critic.claim_check import CriticAnswer, merged
from kernelwright.agents.critic.critic import Critic, CriticInput, PlaybookCritic, silenced
from kernelwright.agents.critic.exhibits import STEPS, Contrast, contrast
from kernelwright.agents.llm.answers import answer
from kernelwright.agents.llm.client import LLMClient, LLMError
from kernelwright.agents.prompting.cards import (
    hardware_card,
    ledger_table,
    progress_card,
    resources,
    roofline_card,
    steering_card,
    symptoms_card,
    task_card,
)
from kernelwright.agents.prompting.fitting import fitted
from kernelwright.agents.prompting.templates import PromptTemplate
from kernelwright.agents.role import Appearance, Role, RoleSetting
from kernelwright.agents.toolbox.readings import reading_client
from kernelwright.agents.toolbox.workbench import RoleTools
from kernelwright.tools.archive import Standing, strategy_words
from kernelwright.tools.types import Analysis, Prediction, Prompt, Verdict

HERE = Path(__file__).parent
FAILURES, FAILURES_NOW, RECORD = 5, 10, 6

WORDS = PromptTemplate(
    HERE / "critic.md",
    "round",
    "judged",
    "task",
    "hardware",
    "limits",
    "steering",
    "ledger",
    "symptoms",
    "exhibits",
    "alike",
    "differences",
    "values",
    "steps",
    "failures",
    "record",
    "held",
    "checked",
    "undecided",
    "refused",
    "advice",
)


class ModelCritic:
    """Asks a model to contrast exemplars.

    Args:
        client: Who is asked.
        fallback: Scores predictions, and answers where the client does not.
        tools: What the model may look up; None for nothing.
    """

    def __init__(self, client: LLMClient, fallback: Critic, tools: RoleTools | None = None) -> None:
        self._client = client
        self._fallback = fallback
        self._tools = tools

    async def critique(self, critic_input: CriticInput) -> Analysis:
        """See the class; without two candidates, or a round to come, nobody is asked."""
        known = await self._fallback.critique(critic_input)
        seen = contrast(critic_input)
        if critic_input.last or len(seen.exhibits) < 2:
            return known
        shown = tuple(dict.fromkeys(item.candidate for item in seen.exhibits))
        client = reading_client(self._client, self._tools, shown)
        try:
            answered = await answer(client, ask(critic_input, seen, known), CriticAnswer)
        except LLMError as error:
            note = f"the playbook contrasts alone in round {critic_input.round}: {error}"
            return known.model_copy(update={"notes": (*known.notes, note)})
        analysis = merged(answered.value, seen, known, critic_input)
        return analysis.model_copy(update={"notes": (*answered.notes, *analysis.notes)})


def ask(critic_input: CriticInput, seen: Contrast, known: Analysis) -> Prompt:
    """The question of a round."""
    last = critic_input.analyses[-1] if critic_input.analyses else None
    messages = WORDS.messages(
        round=critic_input.round,
        judged=len(critic_input.standings),
        task=task_card(critic_input.task) if critic_input.task else "",
        hardware=hardware_card(critic_input.hardware) if critic_input.hardware else "",
        limits=_limits(critic_input, seen),
        steering=steering_card(critic_input.steering),
        ledger=ledger_table(critic_input.ideas, critic_input.ledger),
        symptoms=symptoms_card(critic_input.symptoms),
        exhibits=seen.exhibits,
        alike=seen.alike,
        differences=seen.differences,
        values=seen.values,
        steps=STEPS,
        failures=_failures(critic_input),
        record=_record(critic_input, known),
        held=known.predictions_held,
        checked=known.predictions_checked,
        undecided=known.predictions_undecided,
        refused=last.notes if last else (),
        advice=known.advice.words if known.advice else "",
    )
    return Prompt(
        key=f"critic:{critic_input.round}",
        role="critic",
        messages=fitted(messages),
        round=critic_input.round,
    )


def _limits(critic_input: CriticInput, seen: Contrast) -> str:
    """How fast it could be, how fast PyTorch is, and the best there is."""
    from_roofline = (
        roofline_card(critic_input.task, critic_input.hardware, critic_input.floor_ms)
        if critic_input.task and critic_input.hardware and critic_input.floor_ms is not None
        else ""
    )
    best = critic_input.best or seen.exhibits[0].standing
    progress = progress_card(critic_input.floor_ms or 0.0, critic_input.baseline_ms, best)
    return f"{from_roofline}\n{progress}".strip()


def _record(critic_input: CriticInput, known: Analysis) -> tuple[Prediction, ...]:
    """The last round's predictions with their outcome, and those that were checked before."""
    earlier = tuple(p for a in critic_input.analyses for p in a.predictions if p.held is not None)
    return (
        *earlier[-RECORD:],
        *(p for p in known.predictions if p.made_in_round < critic_input.round),
    )


def _failures(critic_input: CriticInput) -> tuple[str, ...]:
    """The candidates of this round that did not hold, and the last few before them, a line each."""
    failed = [
        item for item in critic_input.standings if item.evaluation.verdict is not Verdict.CORRECT
    ]
    now = [item for item in failed if item.round == critic_input.round][-FAILURES_NOW:]
    before = [item for item in failed if item.round < critic_input.round]
    room = max(0, FAILURES - len(now))
    return tuple(_failure(item) for item in (*before[len(before) - room :], *now))


def _failure(item: Standing) -> str:
    declared = strategy_words(item.candidate.strategies) or "no attributes"
    reason = " ".join(item.evaluation.verification.reason.split())[:160]
    idea = f"idea {item.candidate.idea}, " if item.candidate.idea else ""
    known = resources(item.evaluation.reports)
    cost = f" ({known})" if known else ""
    verdict = item.evaluation.verdict.words
    return f"{item.candidate.id} ({idea}{declared}): {verdict}, {reason}{cost}"


def _by_rules(setting: RoleSetting) -> Critic:
    return PlaybookCritic()


def _by_model(client: LLMClient, setting: RoleSetting) -> Critic:

    return ModelCritic(client, PlaybookCritic(), setting.tools)


CRITIC: Role[Critic] = Role(
    name="critic",
    by_rules=_by_rules,
    by_model=_by_model,
    shown=Appearance("Critic", "red", "scale"),
    part="contrast",
    switch_off=silenced,
)
