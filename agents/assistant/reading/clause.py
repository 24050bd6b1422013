"""Understands one clause: a question, a change of the task, an order, or where to look."""

import re

from agents.assistant.assistant import Turn
from agents.assistant.reading.changes import change_in, resizing_in
from agents.assistant.reading.commands import command_in
from agents.assistant.reading.german import translated
from agents.assistant.reading.plain import bare, is_question, plain
from agents.assistant.reading.questions import name_in, question_in
from agents.assistant.reading.steering import steering_in
from agents.assistant.wishes import ChangeTask, RenameRun, Steer, Wish

# What is longer says more than rules can know.
LONGEST_CLAUSE = 240
_PROPOSES = re.compile(r"(?:what|how) about |what if (?:you|we) |why not ")
_POLITE = re.compile(r"(?:please )?(?:can|could|would|will|may|might) (?:you|we|i)\b")
_CRAFT = re.compile(
    r"(?:increase|decrease|reduce|enlarge|raise|lower|unroll|fuse|merge|split|tile|vectorize|cache"
    r"|prefetch|pipeline|keep|store|hoist|inline|overlap|double|halve|transpose|pad|align|pack"
    r"|load|shuffle|parallelize|combine|avoid|minimize|maximize|optimize) \w"
)
_SHOWING = re.compile(
    r"\b(?:code|source|profile|ledger|report|leaderboard|progress|v\d+|status|steering)\b"
)


def clause_in(part: str, turn: Turn, *, alone: bool) -> tuple[Wish, ...]:
    """The wishes of one clause; none when it is not understood.

    Args:
        part: Its words as written.
        turn: What they may be about.
        alone: Whether the clause is its whole sentence; a name without a verb is a wish only then.
    """
    said = translated(plain(part[:LONGEST_CLAUSE]))
    words = bare(said)
    if resized := resizing_in(words, turn):  # `what about 4096 columns?` is no hint
        return (resized,)
    if is_question(words):
        return _steered(words, turn) or question_in(words, turn)
    asked = said.endswith("?") and not _POLITE.match(said)
    found = question_in(words, turn) if asked else _wanted(words, part, turn)
    if asked and not found:
        change = change_in(words, part, turn)
        found = _steered(words, turn) or ((change,) if change is not None else ())
    return found or (name_in(words, turn) if alone else ())


def _wanted(words: str, part: str, turn: Turn) -> tuple[Wish, ...]:
    change = change_in(words, part, turn)
    if orders := command_in(words, turn):
        orders = tuple(_as_written(order, part) for order in orders)
        return (change, *orders) if isinstance(change, ChangeTask) else orders
    if change is not None:
        return (change,)
    if steering := steering_in(words):
        shown = question_in(words, turn) if _is_about_showing(words) else ()
        return shown or (steering,)
    return question_in(words, turn) or _imperative(words, turn)


def _as_written(order: Wish, part: str) -> Wish:
    """A name keeps its capitals."""
    if not isinstance(order, RenameRun):
        return order
    found = re.search(re.escape(order.name), part, re.IGNORECASE)
    return order.model_copy(update={"name": found[0]}) if found else order


def _imperative(words: str, turn: Turn) -> tuple[Wish, ...]:
    """`increase the block size`: what a kernel should do is a hint while one is looked for."""
    return (Steer(hints=(words[:120],)),) if turn.running and _CRAFT.match(words) else ()


def _steered(words: str, turn: Turn) -> tuple[Wish, ...]:
    """`what about X?`, `what if you used X?`, `try X?` are hints, unless X is a candidate."""
    if is_question(words) and not _PROPOSES.match(words):
        return ()
    steering = steering_in(words.removeprefix("why not "))
    if isinstance(steering, Steer) and not re.search(r"\bv\d+|\bbest\b|\bround\b", words):
        return (steering,)
    return ()


def _is_about_showing(words: str) -> bool:
    """`look at the profile`, `more about v3`: about showing, whatever the verb."""
    shows = re.match(r"(?:look at|see|do|more|less|test|forget|remove)\b", words)
    return bool(
        shows and _SHOWING.search(words) and not re.search(r"\b(?:ban|pin|hint|said)\b", words)
    )
