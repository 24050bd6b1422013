"""The profiler: reads what bounds an elite, and names the symptoms; a model may explain them.

The rules compute readings and symptoms from what is known without counters. A language model is
asked only where somebody wants to look closely; it adds an explanation, which is kept if it cites
readings that are there, as they were measured, and it never changes a reading. The profiler as a
role of the search is declared here too.
"""

from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, Field

from kernelwright.agents.llm.answers import answer
from kernelwright.agents.llm.client import LLMClient, LLMError
from kernelwright.agents.prompting.cards import (
    candidate_card,
    hardware_card,
    symptoms_card,
    task_card,
)
from kernelwright.agents.prompting.fitting import fitted
from kernelwright.agents.prompting.templates import PromptTemplate
from kernelwright.agents.role import Appearance, Role, RoleSetting
from kernelwright.agents.shared.facts import Texts, citations, complaint, known, reading
from kernelwright.agents.toolbox.readings import reading_client
from kernelwright.agents.toolbox.workbench import RoleTools
from kernelwright.profiles.load import Hardware
from kernelwright.tools.profile import evidence_for, headline, symptoms, tensor_roof
from kernelwright.tools.profile.host_counters import PERF
from kernelwright.tools.profile.measured import NSIGHT
from kernelwright.tools.types import Candidate, Evaluation, Evidence, Prompt, Symptom, Task, Value


class ProfileReading(Value):
    """What bounds one candidate; `explanation` in words where somebody was asked for them.

    `notes` say what went wrong on the way, an answer that the numbers did not bear out included.
    """

    candidate: str
    evidence: tuple[Evidence, ...]
    symptoms: tuple[Symptom, ...]
    explanation: str = ""
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """The most important sentence: whether the times can be trusted, then what bounds it."""
        return headline(self.symptoms)


class Profiler(Protocol):
    """Says what bounds a candidate."""

    async def profile(
        self,
        candidate: Candidate,
        evaluation: Evaluation,
        task: Task,
        hardware: Hardware,
        *,
        measured: tuple[Evidence, ...] = (),
        closely: bool = False,
        round: int = 0,
    ) -> ProfileReading:
        """Read one evaluated candidate; `closely` asks for an explanation in words too.

        `measured` is what a profiler of the device has measured of it, if one was asked.
        """
        ...


class PlaybookProfiler:
    """Reads the roofline, the compiler's report and telemetry."""

    async def profile(
        self,
        candidate: Candidate,
        evaluation: Evaluation,
        task: Task,
        hardware: Hardware,
        *,
        measured: tuple[Evidence, ...] = (),
        closely: bool = False,
        round: int = 0,
    ) -> ProfileReading:
        """See the class; its symptoms are words already, so it looks no closer."""
        known = evidence_for(evaluation, candidate, task, hardware)
        evidence = (*_without_absent(known, measured), *measured)
        evidence = (*evidence, *tensor_roof(evidence, hardware))
        return ProfileReading(
            candidate=candidate.id, evidence=evidence, symptoms=symptoms(evidence, hardware)
        )


def _without_absent(
    known: tuple[Evidence, ...], measured: tuple[Evidence, ...]
) -> tuple[Evidence, ...]:
    """Where a profiler was asked for counters, it says itself whether there are any."""
    counted = (NSIGHT, PERF)
    asked = any(item.name == "counters" or item.source.startswith(counted) for item in measured)
    return tuple(item for item in known if not asked or item.name != "counters")


HERE = Path(__file__).parent
WORDS = PromptTemplate(
    HERE / "profiler.md", "task", "hardware", "candidate", "facts", "missing", "symptoms"
)
# There is one exhibit; it has the name that the critic would give it.
EXHIBIT = "K1"


class ProfilerAnswer(BaseModel):
    """What bounds the candidate, and the readings that show it."""

    words: str = Field(
        description="two to four sentences: what bounds the kernel now, by which mechanism, and "
        "which change would move that bound"
    )
    numbers: Texts = Field(
        description="the readings that show it, copied from the table, as K1.registers=64"
    )


class ModelProfiler:
    """Asks a model what readings mean.

    Args:
        client: Who is asked.
        fallback: Who makes the readings and names the symptoms.
        tools: What the model may look up; None for nothing.
    """

    def __init__(
        self, client: LLMClient, fallback: Profiler, tools: RoleTools | None = None
    ) -> None:
        self._client = client
        self._fallback = fallback
        self._tools = tools

    async def profile(
        self,
        candidate: Candidate,
        evaluation: Evaluation,
        task: Task,
        hardware: Hardware,
        *,
        measured: tuple[Evidence, ...] = (),
        closely: bool = False,
        round: int = 0,
    ) -> ProfileReading:
        """See the class; where nobody answers, the readings stand for themselves."""
        plain = await self._fallback.profile(
            candidate, evaluation, task, hardware, measured=measured, round=round
        )
        facts = known(candidate, evaluation, task, hardware, plain.evidence)
        if not closely or not facts:
            return plain
        prompt = _ask(candidate, evaluation, task, hardware, plain, facts)
        client = reading_client(self._client, self._tools, (candidate.id,))
        try:
            answered = await answer(
                client, prompt.model_copy(update={"round": round}), ProfilerAnswer
            )
        except LLMError as error:
            note = f"nobody explains the readings of {candidate.id}: {error}"
            return plain.model_copy(update={"notes": (note,)})
        explanation, notes = _explained(answered.value, facts, candidate.id)
        return plain.model_copy(
            update={"explanation": explanation, "notes": (*answered.notes, *notes)}
        )


def _ask(
    candidate: Candidate,
    evaluation: Evaluation,
    task: Task,
    hardware: Hardware,
    plain: ProfileReading,
    facts: tuple[Evidence, ...],
) -> Prompt:
    messages = WORDS.messages(
        task=task_card(task),
        hardware=hardware_card(hardware),
        candidate=candidate_card(candidate, evaluation),
        facts=facts,
        missing=tuple(item for item in plain.evidence if item.value is None),
        symptoms=symptoms_card(plain.symptoms),
    )
    return Prompt(key=f"profiler:{candidate.id}", role="profiler", messages=fitted(messages))


def _explained(
    said: ProfilerAnswer, facts: tuple[Evidence, ...], candidate: str
) -> tuple[str, tuple[str, ...]]:
    """The words with the numbers that hold; no words where none does."""
    numbers, wrong = [], []
    for text in said.numbers:
        found = citations(text if EXHIBIT in text else f"{EXHIBIT}.{text}")
        wrong += [] if found else [f"{text[:60]!r} is no reading"]
        for cited in found:
            problem = complaint(cited, {EXHIBIT: facts})
            if problem:
                wrong.append(problem)
            else:
                numbers.append(f"{cited.name} {reading(facts, cited.name):.6g}")
    notes = (f"of the explanation of {candidate}: {'; '.join(wrong)}",) if wrong else ()
    if not numbers:
        return "", (*notes, f"an explanation of {candidate} cited no reading and was left out")
    words = " ".join(said.words.split()).replace(EXHIBIT, candidate)
    return f"{words} ({'; '.join(dict.fromkeys(numbers))})", notes


def _by_rules(setting: RoleSetting) -> Profiler:
    return PlaybookProfiler()


def _by_model(client: LLMClient, setting: RoleSetting) -> Profiler:

    return ModelProfiler(client, PlaybookProfiler(), setting.tools)


PROFILER: Role[Profiler] = Role(
    name="profiler",
    by_rules=_by_rules,
    by_model=_by_model,
    shown=Appearance("Profiler", "yellow", "gauge"),
)
