"""Asks a coder's model for drafts: what it may start from, one question, and one for corrections.

It may start from the person's kernel, a parent, elites, or the playbook's draft. Sources are
offered whole, as an edit needs the exact text; few of them, as a prompt is read from beginning to
end. Where drafts break the contract a second question shows the model its own answer and what is
wrong with it; drafts that were fine the first time stay as they are.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kernelwright.agents.coder.answers import Draft, Source, read_answer
from kernelwright.agents.coder.coder import UNWRITTEN, CoderRequest
from kernelwright.agents.coder.distinct import SAME, same_work
from kernelwright.agents.coder.repairs import problems
from kernelwright.agents.llm.answers import CUT_OFF
from kernelwright.agents.llm.client import LLMClient, LLMError
from kernelwright.agents.prompting.cards import candidate_card, fenced
from kernelwright.agents.prompting.fitting import fitted
from kernelwright.agents.prompting.templates import template
from kernelwright.agents.shared.facts import LABELS, PERSON, Start
from kernelwright.tools.archive import Standing
from kernelwright.tools.codegen.library.kernel_library import LibraryDraft, Repertoire, in_form
from kernelwright.tools.codegen.library.plan_check import PlanError
from kernelwright.tools.languages import language_named
from kernelwright.tools.types import Candidate, LanguageName, Message, Prompt, Reply, Task, Value

PLAYBOOK = "playbook"
# The parent and this many others; and no source longer than a prompt of a small model can hold.
_OTHERS = 1
_CHARACTERS = 24_000


class Offer(Value):
    """A source that is shown, under the name by which an edit refers to it."""

    name: str
    title: str
    text: str
    source: Source


class Offers(Value):
    """Everything that is shown, and which of it the idea starts from ("" for nothing).

    `notes` say what would have been shown and could not be written.
    """

    items: tuple[Offer, ...] = ()
    start: str = ""
    notes: tuple[str, ...] = ()


def offers(request: CoderRequest, repertoire: Repertoire, start: Start | None) -> Offers:
    """What this order may start from, the most important first."""
    judged = {item.candidate.id: item for item in request.parents}
    written = {item.id: item for item in request.written}
    found: dict[str, Offer] = {}
    if start is not None and request.idea.origin == PERSON:
        found[PERSON] = _of_person(start)
    for offer in (*_parent(request, judged, written), *_elites(request)):
        found.setdefault(offer.name, offer)
    notes: tuple[str, ...] = ()
    if not found:
        try:
            draft = _draft(repertoire)
        except PlanError as error:
            draft, notes = None, (f"what built-in expertise would write {UNWRITTEN}: {error}",)
        found |= {PLAYBOOK: draft} if draft is not None else {}
    first = next(iter(found), "")
    start_from = first if first in _firm(request) else ""
    return Offers(items=tuple(found.values()), start=start_from, notes=notes)


def find_source(name: str, shown: Offers, request: CoderRequest) -> Source | None:
    """The source of that name: one that is shown, or any candidate of the run by its id."""
    for offer in shown.items:
        if offer.name == name:
            return offer.source
    for candidate in request.written:
        if candidate.id == name or (len(name) >= 8 and candidate.id.startswith(name)):
            return source_of(candidate)
    return None


def source_of(candidate: Candidate) -> Source:
    """A candidate's text with its three labels."""
    labels = (text for text in candidate.strategies if text.split("=")[0] in LABELS)
    return Source(kernel=candidate.kernel, plan=candidate.plan, labels=tuple(labels))


def first_choices(repertoire: Repertoire) -> dict[str, str]:
    """The most promising strategy of every loop; empty where the playbook knows no loop."""
    first: dict[str, str] = {}
    for option in repertoire.options():
        first = option.change | first
    return in_form(repertoire.options(), first)


def _firm(request: CoderRequest) -> tuple[str, ...]:
    """What the idea itself says to start from."""
    return tuple(filter(None, (request.idea.parent, PERSON)))


def _of_person(start: Start) -> Offer:
    parts = [fenced(start.language, start.kernel)]
    parts += [fenced("python", start.plan)] if start.plan else []
    return Offer(
        name=PERSON,
        title=f"The person's own kernel: `{PERSON}`",
        text="\n\n".join(parts),
        source=Source(kernel=start.kernel, plan=start.plan),
    )


def _parent(
    request: CoderRequest, judged: Mapping[str, Standing], written: Mapping[str, Candidate]
) -> Iterator[Offer]:
    parent = request.idea.parent or ""
    if parent in judged:
        yield _judged(judged[parent], "To start from")
    elif parent in written:
        yield _offer(written[parent], "To start from", candidate_card(written[parent]))


def _elites(request: CoderRequest) -> Iterator[Offer]:
    """The fastest of what is worth starting from, besides the idea's own parent."""
    others = [item for item in request.parents if item.candidate.id != request.idea.parent]
    for item in others[:_OTHERS]:
        if len(item.candidate.kernel) <= _CHARACTERS:
            yield _judged(item, "For comparison" if request.idea.parent else "The fastest so far")


def _judged(item: Standing, title: str) -> Offer:
    return _offer(item.candidate, title, candidate_card(item.candidate, item.evaluation))


def _offer(candidate: Candidate, title: str, text: str) -> Offer:
    title = f"{title}: candidate `{candidate.id}`"
    return Offer(name=candidate.id, title=title, text=text, source=source_of(candidate))


def _draft(repertoire: Repertoire) -> Offer | None:
    """What the playbook would write first; it has not been judged.

    Raises:
        PlanError: Its plan cannot be assembled, which is a bug of ours and no choice's.
    """
    chosen = first_choices(repertoire)
    try:
        draft = repertoire.draft(chosen) if chosen else None
    except PlanError:
        raise
    except ValueError:
        return None
    if draft is None or len(draft.kernel) > _CHARACTERS:
        return None
    language = repertoire.language
    text = f"{fenced(language, draft.kernel)}\n\n{fenced('python', draft.plan)}"
    title = f"What built-in expertise would write, not measured yet: `{PLAYBOOK}`"
    return Offer(name=PLAYBOOK, title=title, text=text, source=_source(draft))


def _source(draft: LibraryDraft) -> Source:
    labels = tuple(text for text in draft.strategies if text.split("=")[0] in LABELS)
    return Source(kernel=draft.kernel, plan=draft.plan, labels=labels)


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
    """Asks one client for candidates of one task.

    Args:
        client: Who is asked.
        task: What is implemented.
        language: What in.
        others: Earlier drafts by name, of which and of each other new ones have to differ in what
            they do; None where any draft is a candidate.
    """

    def __init__(
        self,
        client: LLMClient,
        task: Task,
        language: LanguageName,
        others: tuple[tuple[str, Draft], ...] | None = None,
    ) -> None:
        self._client = client
        self._others = others
        self._task = task
        self._language = language
        self._again = template(
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
        later = self._sorted(second, base, find_here, count, first.good)
        if not later.good and not later.bad and (why := _given_up(second.text)):
            notes += (f"the model gave up: {why}",)
        notes += tuple(f"still not judged: {_line(why)}" for _, why in later.bad)
        drafts = (*first.good, *(_traced(draft, names) for draft in later.good))[:count]
        return Checked(drafts=drafts, said=first.said or later.said, notes=notes)

    def _sorted(
        self, reply: Reply, base: str, find: Find, count: int, accepted: tuple[Draft, ...] = ()
    ) -> _Sorted:
        reading = read_answer(reply.text, base, find)
        good: list[Draft] = []
        bad: list[tuple[Draft, str]] = []
        for draft in reading.drafts[: 2 * count]:
            why = problems(draft, self._task, self._language)
            why = why or self._once_written(draft, (*accepted, *good))
            if why:
                bad.append((draft, why))
            else:
                good.append(draft)
        return _Sorted(said=reading.said, good=tuple(good), bad=tuple(bad[:count]))

    def _once_written(self, draft: Draft, accepted: tuple[Draft, ...]) -> str:
        """Why a draft is none of its own; "" where it is, or that was not asked."""
        if self._others is None:
            return ""
        here = ((f"candidate {n} of your answer", one) for n, one in enumerate(accepted, start=1))
        other = same_work(draft, (*self._others, *here))
        return SAME.format(other=other) if other else ""

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
        told = fitted((*prompt.messages, *own, *words))
        update = {"key": f"{prompt.key}:again", "messages": told}
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
