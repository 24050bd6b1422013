"""One question to a coder's model and, where its drafts break the contract, one more.

The second question shows the model its own answer and what is wrong with it; drafts that were
fine the first time stay as they are.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from kernelwright.agents.coder.answers import Draft, Source, read_answer
from kernelwright.agents.coder.repairs import problems
from kernelwright.agents.llm.answers import CUT_OFF
from kernelwright.agents.llm.client import LLMClient, LLMError
from kernelwright.agents.prompting.templates import PromptTemplate
from kernelwright.tools.languages import language_named
from kernelwright.tools.types import LanguageName, Message, Prompt, Reply, Task, Value

Find = Callable[[str], Source | None]

HERE = Path(__file__).parent
_GIVEN_UP = "GIVE UP"
# Of an answer without usable code, this much goes back to the model.
_ECHO = 40_000


class Checked(Value):
    """Drafts that keep the contract; `said` around them; `gave_up` is why there are none."""

    drafts: tuple[Draft, ...] = ()
    said: str = ""
    gave_up: str = ""
    notes: tuple[str, ...] = ()


class _Sorted(Value):
    """The drafts of one answer, those that can be judged and those that cannot, with reasons."""

    said: str
    good: tuple[Draft, ...] = ()
    bad: tuple[tuple[Draft, str], ...] = ()


class Rounds:
    """Asks one client for candidates of one task."""

    def __init__(self, client: LLMClient, task: Task, language: LanguageName) -> None:
        self._client = client
        self._task = task
        self._language = language
        self._again = PromptTemplate(
            HERE / "coder-again.md",
            "nothing",
            "cut",
            "problems",
            "accepted",
            "names",
            "first",
            "fence",
        )

    async def ask(self, prompt: Prompt, base: str, find: Find, count: int) -> Checked:
        """At most `count` drafts that keep the contract.

        Args:
            prompt: The question.
            base: What an edit changes that names nothing; "" for nothing.
            find: A source by the name that an edit refers to it by.
            count: How many drafts are wanted.

        Raises:
            LLMError: There was no answer at all.
            AwaitingError: The answer comes from outside and is not there yet.
        """
        reply = await self._client.say(prompt)
        first = self._sorted(reply, base, find, count)
        if not first.good and not first.bad and (why := _given_up(reply.text)):
            return Checked(gave_up=why)
        if len(first.good) >= count or (first.good and not first.bad):
            return Checked(drafts=first.good[:count], said=first.said)
        return await self._once_more(prompt, reply, first, find, count)

    async def _once_more(
        self, prompt: Prompt, reply: Reply, first: _Sorted, find: Find, count: int
    ) -> Checked:
        notes = tuple(f"not judged: {_line(why)}" for _, why in first.bad)
        notes = notes or ("there was no candidate in the first answer",)
        names = {f"draft-{n}": draft for n, (draft, _) in enumerate(first.bad, start=1)}

        def find_here(name: str) -> Source | None:
            draft = names.get(name)
            return _as_source(draft) if draft is not None else find(name)

        try:
            second = await self._client.say(self._question(prompt, reply, first, tuple(names)))
        except LLMError as error:
            if not first.good:
                raise
            return Checked(drafts=first.good, said=first.said, notes=(*notes, str(error)))
        base = next(iter(names), "")
        later = self._sorted(second, base, find_here, count)
        if not later.good and not later.bad and (why := _given_up(second.text)):
            notes += (f"the model gave up: {why}",)
        notes += tuple(f"still not judged: {_line(why)}" for _, why in later.bad)
        drafts = (*first.good, *(_traced(draft, names) for draft in later.good))[:count]
        return Checked(drafts=drafts, said=first.said or later.said, notes=notes)

    def _sorted(self, reply: Reply, base: str, find: Find, count: int) -> _Sorted:
        reading = read_answer(reply.text, base, find)
        good: list[Draft] = []
        bad: list[tuple[Draft, str]] = []
        for draft in reading.drafts[: 2 * count]:
            why = problems(draft, self._task, self._language)
            if why:
                bad.append((draft, why))
            else:
                good.append(draft)
        return _Sorted(said=reading.said, good=tuple(good), bad=tuple(bad[:count]))

    def _question(
        self, prompt: Prompt, reply: Reply, first: _Sorted, names: tuple[str, ...]
    ) -> Prompt:
        words = self._again.messages(
            nothing=not first.bad,
            cut=reply.finish in CUT_OFF,
            problems=[f"`{n}`: {why}" for n, (_, why) in zip(names, first.bad, strict=True)],
            accepted=len(first.good),
            names=", ".join(f"`{name}`" for name in names),
            first=next(iter(names), ""),
            fence=language_named(self._language).spec.fences[0],
        )
        own = (Message(author="model", text=reply.text[:_ECHO]),) if reply.text.strip() else ()
        update = {"key": f"{prompt.key}:again", "messages": (*prompt.messages, *own, *words)}
        return prompt.model_copy(update=update)


def _as_source(draft: Draft) -> Source | None:
    if not draft.kernel:
        return None
    return Source(kernel=draft.kernel, plan=draft.plan, labels=draft.labels)


def _traced(draft: Draft, names: Mapping[str, Draft]) -> Draft:
    """A corrected draft with the candidate that the first version of it was an edit of."""
    first = names.get(draft.base)
    return draft if first is None else draft.model_copy(update={"base": first.base})


def _given_up(text: str) -> str:
    """Why a model says that it cannot be done, where it says so."""
    _, found, why = text.partition(_GIVEN_UP)
    return " ".join(why.strip(" :*\n").split())[:300] if found else ""


def _line(why: str) -> str:
    """A problem without its excerpt, for people."""
    return why.split("\n", 1)[0]
