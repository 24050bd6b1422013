"""What a coder may start from: the person's kernel, a parent, elites, the playbook's draft.

Sources are offered whole, as an edit needs the exact text; few of them, as a prompt is read from
beginning to end.
"""

from collections.abc import Iterator, Mapping

from kernelwright.agents.coder.answers import Source
from kernelwright.agents.coder.coder import CoderRequest
from kernelwright.agents.prompting.cards import candidate_card
from kernelwright.agents.prompting.tables import fenced
from kernelwright.agents.shared.attributes import LABELS
from kernelwright.agents.shared.start import PERSON, Start
from kernelwright.tools.archive import Standing
from kernelwright.tools.codegen.library.ideas import Draft, Repertoire, in_form
from kernelwright.tools.types import Candidate, Value

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
    """Everything that is shown, and which of it the idea starts from ("" for nothing)."""

    items: tuple[Offer, ...] = ()
    start: str = ""


def offers(order: CoderRequest, repertoire: Repertoire, start: Start | None) -> Offers:
    """What this order may start from, the most important first."""
    judged = {item.candidate.id: item for item in order.parents}
    written = {item.id: item for item in order.written}
    found: dict[str, Offer] = {}
    if start is not None and order.idea.origin == PERSON:
        found[PERSON] = _of_person(start)
    for offer in (*_parent(order, judged, written), *_elites(order)):
        found.setdefault(offer.name, offer)
    if not found and (draft := _draft(repertoire)) is not None:
        found[PLAYBOOK] = draft
    first = next(iter(found), "")
    return Offers(items=tuple(found.values()), start=first if first in _firm(order) else "")


def find_source(name: str, shown: Offers, order: CoderRequest) -> Source | None:
    """The source of that name: one that is shown, or any candidate of the run by its id."""
    for offer in shown.items:
        if offer.name == name:
            return offer.source
    for candidate in order.written:
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
        first.setdefault(option.loop, option.strategy.name)
    return in_form(repertoire.options(), first)


def _firm(order: CoderRequest) -> tuple[str, ...]:
    """What the idea itself says to start from."""
    return tuple(filter(None, (order.idea.parent, PERSON)))


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
    order: CoderRequest, judged: Mapping[str, Standing], written: Mapping[str, Candidate]
) -> Iterator[Offer]:
    parent = order.idea.parent or ""
    if parent in judged:
        yield _judged(judged[parent], "To start from")
    elif parent in written:
        yield _offer(written[parent], "To start from", candidate_card(written[parent]))


def _elites(order: CoderRequest) -> Iterator[Offer]:
    """The fastest of what is worth starting from, besides the idea's own parent."""
    others = [item for item in order.parents if item.candidate.id != order.idea.parent]
    for item in others[:_OTHERS]:
        if len(item.candidate.kernel) <= _CHARACTERS:
            yield _judged(item, "For comparison" if order.idea.parent else "The fastest so far")


def _judged(item: Standing, title: str) -> Offer:
    return _offer(item.candidate, title, candidate_card(item.candidate, item.evaluation))


def _offer(candidate: Candidate, title: str, text: str) -> Offer:
    title = f"{title}: candidate `{candidate.id}`"
    return Offer(name=candidate.id, title=title, text=text, source=source_of(candidate))


def _draft(repertoire: Repertoire) -> Offer | None:
    """What the playbook would write first; it has not been judged."""
    chosen = first_choices(repertoire)
    try:
        draft = repertoire.draft(chosen) if chosen else None
    except ValueError:
        return None
    if draft is None or len(draft.kernel) > _CHARACTERS:
        return None
    language = repertoire.language
    text = f"{fenced(language, draft.kernel)}\n\n{fenced('python', draft.plan)}"
    title = f"What built-in expertise would write, not measured yet: `{PLAYBOOK}`"
    return Offer(name=PLAYBOOK, title=title, text=text, source=_source(draft))


def _source(draft: Draft) -> Source:
    labels = tuple(text for text in draft.strategies if text.split("=")[0] in LABELS)
    return Source(kernel=draft.kernel, plan=draft.plan, labels=labels)
