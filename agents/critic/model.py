"""The critic by a language model: says why fast candidates are fast, and is held to its numbers.

The playbook's analysis comes first and stays underneath: it scores what was predicted, knows what
failed every time, and stands in where there is nothing to contrast or nobody answers. What of the
model's answer is kept is for `agents.critic.claim_check` to say.
"""

from pathlib import Path

from kernelwright.agents.critic.claim_check import STEPS, Contrast, CriticAnswer, contrast, merged
from kernelwright.agents.critic.critic import Critic, CriticInput
from kernelwright.agents.llm.answers import answer
from kernelwright.agents.llm.client import LLMClient, LLMError
from kernelwright.agents.prompting.cards import (
    hardware_card,
    progress_card,
    resources,
    roofline_card,
    steering_card,
    symptoms_card,
    task_card,
)
from kernelwright.agents.prompting.tables import ledger_table
from kernelwright.agents.prompting.templates import PromptTemplate
from kernelwright.tools.archive import Standing
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
    "differences",
    "values",
    "steps",
    "failures",
    "record",
    "held",
    "checked",
    "refused",
)


class ModelCritic:
    """Asks a model to contrast exemplars.

    Args:
        client: Who is asked.
        fallback: Scores predictions, and answers where the client does not.
    """

    def __init__(self, client: LLMClient, fallback: Critic) -> None:
        self._client = client
        self._fallback = fallback

    async def critique(self, hearing: CriticInput) -> Analysis:
        """See the class; without two candidates, or a round to come, nobody is asked."""
        known = await self._fallback.critique(hearing)
        seen = contrast(hearing)
        if hearing.last or len(seen.exhibits) < 2:
            return known
        try:
            answered = await answer(self._client, ask(hearing, seen, known), CriticAnswer)
        except LLMError as error:
            note = f"the playbook contrasts alone in round {hearing.round}: {error}"
            return known.model_copy(update={"notes": (*known.notes, note)})
        analysis = merged(answered.value, seen, known, hearing)
        return analysis.model_copy(update={"notes": (*answered.notes, *analysis.notes)})


def ask(hearing: CriticInput, seen: Contrast, known: Analysis) -> Prompt:
    """The question of a round."""
    last = hearing.analyses[-1] if hearing.analyses else None
    messages = WORDS.messages(
        round=hearing.round,
        judged=len(hearing.standings),
        task=task_card(hearing.task) if hearing.task else "",
        hardware=hardware_card(hearing.hardware) if hearing.hardware else "",
        limits=_limits(hearing, seen),
        steering=steering_card(hearing.steering),
        ledger=ledger_table(hearing.ideas, hearing.ledger),
        symptoms=symptoms_card(hearing.symptoms),
        exhibits=seen.exhibits,
        differences=seen.differences,
        values=seen.values,
        steps=STEPS,
        failures=_failures(hearing),
        record=_record(hearing, known),
        held=known.predictions_held,
        checked=known.predictions_checked,
        refused=last.notes if last else (),
    )
    return Prompt(
        key=f"critic:{hearing.round}", role="critic", messages=messages, round=hearing.round
    )


def _limits(hearing: CriticInput, seen: Contrast) -> str:
    """How fast it could be, how fast PyTorch is, and the best there is."""
    from_roofline = (
        roofline_card(hearing.task, hearing.hardware, hearing.floor_ms)
        if hearing.task and hearing.hardware and hearing.floor_ms is not None
        else ""
    )
    best = hearing.best or seen.exhibits[0].standing
    progress = progress_card(hearing.floor_ms or 0.0, hearing.baseline_ms, best)
    return f"{from_roofline}\n{progress}".strip()


def _record(hearing: CriticInput, known: Analysis) -> tuple[Prediction, ...]:
    """The last round's predictions with their outcome, and those that were checked before."""
    earlier = tuple(p for a in hearing.analyses for p in a.predictions if p.held is not None)
    return (*earlier[-RECORD:], *(p for p in known.predictions if p.made_in_round < hearing.round))


def _failures(hearing: CriticInput) -> tuple[str, ...]:
    """The candidates of this round that did not hold, and the last few before them, a line each."""
    failed = [item for item in hearing.standings if item.evaluation.verdict is not Verdict.CORRECT]
    now = [item for item in failed if item.round == hearing.round][-FAILURES_NOW:]
    before = [item for item in failed if item.round < hearing.round]
    room = max(0, FAILURES - len(now))
    return tuple(_failure(item) for item in (*before[len(before) - room :], *now))


def _failure(item: Standing) -> str:
    declared = ", ".join(item.candidate.strategies) or "no attributes"
    reason = " ".join(item.evaluation.verification.reason.split())[:160]
    idea = f"idea {item.candidate.idea}, " if item.candidate.idea else ""
    known = resources(item.evaluation.reports)
    cost = f" ({known})" if known else ""
    verdict = item.evaluation.verdict.value.replace("_", " ")
    return f"{item.candidate.id} ({idea}{declared}): {verdict}, {reason}{cost}"
