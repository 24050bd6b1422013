"""Understands a sentence, with several commands in it as far as each can stand alone.

`pause and show me the code` are two commands, `compare v3 and v5` is one: a word that joins parts
the sentence only where every part is understood. Steerings in a row are one command, changes of the
task too.
"""

import re
from collections.abc import Callable, Sequence

from kernelwright.agents.assistant.parsing.changes import change_in, resizing_in
from kernelwright.agents.assistant.parsing.commands import command_in
from kernelwright.agents.assistant.parsing.questions import name_in, question_in
from kernelwright.agents.assistant.parsing.steering import steering_in
from kernelwright.agents.assistant.parsing.text import bare, is_question, plain, translated
from kernelwright.agents.assistant.parsing.topics import topic_in
from kernelwright.agents.assistant.types import (
    ChangeTask,
    Command,
    RenameRun,
    SetBudget,
    StartSearch,
    Steer,
    Turn,
)

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


def clause_in(part: str, turn: Turn, *, alone: bool) -> tuple[Command, ...]:
    """The commands of one clause; none when it is not understood.

    Args:
        part: Its words as written.
        turn: What they may be about.
        alone: Whether the clause is its whole sentence; only then may a name lack a verb.
    """
    if asked_about := topic_in(plain(part[:LONGEST_CLAUSE]), turn):
        return (asked_about,)
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


def _wanted(words: str, part: str, turn: Turn) -> tuple[Command, ...]:
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


def _as_written(order: Command, part: str) -> Command:
    """A name keeps its capitals."""
    if not isinstance(order, RenameRun):
        return order
    found = re.search(re.escape(order.name), part, re.IGNORECASE)
    return order.model_copy(update={"name": found[0]}) if found else order


def _imperative(words: str, turn: Turn) -> tuple[Command, ...]:
    """`increase the block size`: what a kernel should do is a hint while one is looked for."""
    return (Steer(hints=(words[:120],)),) if turn.running and _CRAFT.match(words) else ()


def _steered(words: str, turn: Turn) -> tuple[Command, ...]:
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


# One clause is understood, or it is not.
Understand = Callable[[str], tuple[Command, ...]]

_STRONG = re.compile(
    (
        r"(?:(?<=[\w)\]\"'])[.!?;]+(?=\s|$)|\n+|[,;]?\s+(?:and\s+)?(?:then|afterwards|"
        r"after that|und dann)\s+)"
    ),
    re.I,
)
_WEAK = re.compile(
    r"\s*,\s+(?:and |but |or )?(?!\d)|\s+(?:and also|and|but|also|plus|und|aber)\s+|"
    r"\s+with\s+(?=no\s)|\s+(?=without\s)",
    re.I,
)
# A message of more sentences than these is not a row of orders.
_SENTENCES = 8
# Parts of one sentence that are put together in every way; more are read as they come.
_MOST = 8


def sentences(text: str) -> list[str]:
    """A message's parts between full stops, line breaks and `then`; questions keep their mark."""
    found, begin = [], 0
    for match in _STRONG.finditer(text):
        mark = "?" if "?" in match[0] else ""
        found.append(text[begin : match.start()].strip() + mark)
        begin = match.end()
    found.append(text[begin:].strip())
    return [part for part in found if re.search(r"\w|\?", part)][:_SENTENCES]


def commands_in(sentence: str, understand: Understand) -> tuple[Command, ...]:
    """The commands of one sentence: of as many parts as can be told apart, in their order."""
    parts, joints = _parted(sentence)
    if len(parts) > _MOST:
        return understand(sentence)
    return _best(parts, joints, understand) or ()


def parts(sentence: str) -> list[str]:
    """All that could stand alone in a sentence."""
    return _parted(sentence)[0]


def _best(
    parts: list[str], joints: list[str], understand: Understand
) -> tuple[Command, ...] | None:
    """The finest way to part the sentence in which every part is understood; None if none is."""
    known: list[tuple[int, tuple[Command, ...]] | None] = [(0, ())]
    for end in range(1, len(parts) + 1):
        best: tuple[int, tuple[Command, ...]] | None = None
        for begin in range(end):
            before = known[begin]
            if before is None or (best and before[0] + 1 < best[0]):
                continue
            found = understand(_joined(parts, joints, begin, end))
            if found and (best is None or before[0] + 1 > best[0]):
                best = (before[0] + 1, before[1] + found)
        known.append(best)
    last = known[-1]
    return last[1] if last else None


def _parted(sentence: str) -> tuple[list[str], list[str]]:
    joints = [match[0] for match in _WEAK.finditer(sentence)]
    return [part.strip() for part in _WEAK.split(sentence)], joints


def _joined(parts: list[str], joints: list[str], begin: int, end: int) -> str:
    text = parts[begin]
    for context in range(begin + 1, end):
        text += joints[context - 1] + parts[context]
    return text.strip(" ,")


_ALLOWED = re.compile(r"\b(?:allow\w*|permit\w*|fine|ok|okay|may|can|accept\w*|precision)\b")


def merged(commands: Sequence[Command]) -> tuple[Command, ...]:
    """The commands with neighbours of one kind joined, and nothing twice in a row."""
    found: list[Command] = []
    for command in commands:
        last = found[-1] if found else None
        joined = _as_one(last, command)
        if joined is not None:
            found[-1] = joined
        elif command != last:
            found.append(command)
    return tuple(found)


def with_types(commands: tuple[Command, ...], sentence: str, turn: Turn) -> tuple[Command, ...]:
    """In `fp16, shapes (8, 128) and (128,)` the type is that of the shapes, wherever it stands."""
    words = translated(plain(sentence))
    shaped = [item for item in commands if isinstance(item, ChangeTask) and item.inputs]
    if not shaped or _ALLOWED.search(words):
        return commands
    whole = change_in(words, sentence, turn)
    if not isinstance(whole, ChangeTask):
        return commands
    others = [item for item in commands if not isinstance(item, ChangeTask)]
    return (whole, *others)


def _as_one(last: Command | None, command: Command) -> Command | None:
    if isinstance(command, Steer) and isinstance(last, Steer):
        return Steer(
            hints=(*last.hints, *command.hints),
            pins=(*last.pins, *command.pins),
            bans=(*last.bans, *command.bans),
            forget=(*last.forget, *command.forget),
        )
    if isinstance(command, StartSearch) and isinstance(last, StartSearch | SetBudget):
        said = last.model_dump(include=_LIMITS) | _said(command)
        return StartSearch.model_validate(said)
    if isinstance(command, SetBudget) and isinstance(last, StartSearch):
        return last.model_copy(update=_said(command))
    if isinstance(command, SetBudget) and isinstance(last, SetBudget):
        return last.model_copy(update=_said(command))
    if isinstance(command, ChangeTask) and isinstance(last, ChangeTask):
        return ChangeTask(
            inputs=(*last.inputs, *command.inputs),
            sizes=(*last.sizes, *command.sizes),
            entry=command.entry or last.entry,
            precisions=(*last.precisions, *command.precisions),
            gpu=command.gpu or last.gpu,
            evaluation=last.evaluation if command.evaluation is None else command.evaluation,
            shapes=command.shapes or last.shapes,
        )
    return None


# What a beginning takes over from a budget that was named with it.
_LIMITS = {"search", "rounds", "seconds", "tokens", "usd"}


def _said(command: StartSearch | SetBudget) -> dict[str, object]:
    return command.model_dump(include=_LIMITS, exclude_none=True)
