"""Understands a person by rules: natural phrasings of every command, and buttons when unsure.

Code and files are taken out first; an open question may be answered; then the words are read
clause by clause. Not here: how a command is carried out (`graphs.conversation`).
"""

import re
from collections.abc import Sequence

from kernelwright.agents.assistant.parsing.budgets import (
    Limits,
    limits_beforehand,
    limits_in,
    without_limits,
)
from kernelwright.agents.assistant.parsing.changes import (
    device_in,
    precisions_in,
    resizing_in,
    shapes_in,
    sizes_in,
    sizes_with,
    wants_shapes,
)
from kernelwright.agents.assistant.parsing.clauses import (
    clause_in,
    commands_in,
    merged,
    parts,
    sentences,
    with_types,
)
from kernelwright.agents.assistant.parsing.commands import command_in
from kernelwright.agents.assistant.parsing.offers import answer_in, guesses, is_no, is_yes
from kernelwright.agents.assistant.parsing.ranges import range_in, without_range
from kernelwright.agents.assistant.parsing.text import (
    LONGEST,
    bare,
    mended,
    plain,
    python_files,
    take_apart,
    translated,
)
from kernelwright.agents.assistant.parsing.topics import topic_in
from kernelwright.agents.assistant.types import (
    AskForHelp,
    AuditTask,
    CancelTask,
    ChangeTask,
    Command,
    CommandResult,
    ContinueSearch,
    LoadTask,
    PauseSearch,
    SetBudget,
    ShowCode,
    ShowProgress,
    StartSearch,
    Steer,
    StopSearch,
    Turn,
    Unclear,
    Understanding,
)
from kernelwright.tools.tasks.refusals import not_a_module
from kernelwright.tools.types import Value

NEEDS_A_FILE = (
    "Attach your module's file (`.py`), or paste its code into a message: a PyTorch module with "
    "`get_inputs()`, or without, then I propose shapes."
)
NOT_PYTHON = "I can read Python files, notebooks and .zip archives of them only."
WELCOME = "You are welcome."
ALL_RIGHT = "All right."
AS_IT_IS = "All right, everything stays as it is."
# What is over once it was done; nobody here waits for a condition, so it is asked about.
_FINAL = StopSearch | CancelTask
_LATER = re.compile(
    r"\b(?:if|when|whenever|once|after|until|unless|as soon as|whether|before|later|tomorrow"
    r"|tonight|eventually)\b"
)
_NODS = frozenset(
    {"yes", "yeah", "yep", "ok", "okay", "k", "sure", "fine", "right", "alright", "ja"}
)
_LONGEST_THANKS = 80
_THANKS = re.compile(
    r"(?:(?:many |ok |great |cool |perfect )?(?:thanks?(?: (?:you|a lot|so much))?|"
    r"thx|ty|danke(?: schön)?|cheers|merci|bye|goodbye|see you|that is (?:all|"
    r"it)(?: for (?:now|today))?)[ ,.!]*|(?:cool|nice|great|wow|awesome|"
    r"amazing|perfect|super|excellent|good job|well done|impressive|toll)[ ,.!]*)+"
)
_GREETING = re.compile(
    r"\?+|(?:hi|hello|hey|hallo|moin|servus|yo|greetings|good (?:morning|evening|afternoon|day))"
    r"(?:[ ,]+(?:there|all|everyone|again|kernelwright|you))*"
)
_ANOTHER = re.compile(
    r"(?:(?:start|begin|try|do|load|open|use|have|take)(?: with| over with)? )?(?:a |"
    r"an )?(?:new|another|different|other) "
    r"(?:task|file|module|model|layer|function)"
)
_BEGINNINGS = re.compile(
    r"\b(?:faster|fast|speed|optimi[sz]e|optimi[sz]ation|accelerate|tune|improve|"
    r"quicker|slow|kernel for|write (?:me )?a kernel)\b"
)


class ParsedMessage(Value):
    """What was understood; `sure` when every part of the message was, to the letter.

    `taken` says that it answers an open question with one of its buttons.
    """

    understanding: Understanding
    sure: bool = False
    taken: bool = False


class RulesAssistant:
    """Understands by rules; it asks nobody and raises on nothing."""

    async def understand(self, turn: Turn, done: tuple[CommandResult, ...] = ()) -> Understanding:
        """What a message wants, once: what was done is answered."""
        return Understanding(commands=()) if done else read(turn).understanding


def urgent(turn: Turn) -> tuple[Command, ...]:
    """What must not wait for an answer that is being made: to pause, to stop, where to look."""
    reading = read(turn)
    commands = reading.understanding.commands
    orders = all(
        isinstance(command, PauseSearch | StopSearch | Steer | SetBudget) for command in commands
    )
    return commands if reading.sure and orders else ()


def read(turn: Turn) -> ParsedMessage:
    """Understand one message."""
    pasted = take_apart(turn.text)
    files = python_files(turn.attachments)
    if files:
        first, *others = files
        load = LoadTask(
            source=first.text, name=first.name, content=first.content, beside=tuple(others)
        )
        return _loaded(load, pasted.words)
    if pasted.source:
        return _loaded(LoadTask(source=pasted.source), pasted.words)
    if turn.attachments:
        said = (not_a_module(item.name) for item in turn.attachments)
        words = " ".join(dict.fromkeys(filter(None, said))) or NOT_PYTHON
        return ParsedMessage(understanding=Understanding(commands=(), words=words), sure=True)
    return _said(pasted.words, turn)


def _loaded(load: LoadTask, words: str) -> ParsedMessage:
    """A file, and what was said of its shapes, precision and device; the rest is for its card."""
    # What a search may spend is no shape, and no wish for where it looks.
    words = without_limits(words) if limits_beforehand(words) != Limits() else words
    said = translated(plain(words))
    commands: list[Command] = [load.model_copy(update={"gpu": device_in(said)})]
    asked, said = range_in(said), without_range(said)
    inputs = shapes_in(said)
    without = bool(re.search(r"\b(?:no|not|without|avoid)\b", said))
    precisions = () if inputs or without else precisions_in(said)
    sizes = () if inputs else sizes_with(said)
    if inputs or precisions or sizes or asked:
        change = ChangeTask(inputs=inputs, sizes=sizes, precisions=precisions, shapes=asked)
        commands.append(change)
    commands += _commands_for_later(words)
    note = f"I take {load.name}, with your other files beside it." if load.beside else ""
    return ParsedMessage(
        understanding=Understanding(commands=tuple(commands), words=note), sure=True
    )


def _commands_for_later(words: str) -> list[Command]:
    """Where the search is to look; that it is to be fast need not be said."""
    turn, found = Turn(text=words), list[Command]()
    for sentence in sentences(words[:LONGEST]):
        said = _sentence(sentence, turn)
        found += said or [command for part in parts(sentence) for command in _sentence(part, turn)]
    steered = [command for command in found if isinstance(command, Steer)]
    return list(
        merged([command for command in steered if not _BEGINNINGS.search(" ".join(command.hints))])
    )


def _said(text: str, turn: Turn) -> ParsedMessage:
    whole = bare(plain(text)) or plain(text).strip(" ,.!;:-")
    if taken := answer_in(plain(text).strip(" .!"), turn.offers) or answer_in(whole, turn.offers):
        return _sure(taken).model_copy(update={"taken": True})
    if asked_about := topic_in(plain(text), turn):
        return _sure(asked_about)
    if turn.task and (ranged := resizing_in(whole, turn)) and ranged.shapes:
        return _sure(ranged)
    told = shapes_in(whole) or sizes_in(whole)
    if turn.task and not turn.running and wants_shapes(whole) and not told:
        return _sure(ChangeTask())  # the controller asks which
    if _ANOTHER.fullmatch(whole):
        return ParsedMessage(
            understanding=Understanding(commands=(), words=NEEDS_A_FILE), sure=True
        )
    if small := _small_talk(plain(text).strip(" .!,:)"), turn):
        return small
    return _clauses(re.sub(r"\s*\n\s*", "\n", text[:LONGEST]), turn)


def _small_talk(words: str, turn: Turn) -> ParsedMessage | None:
    if _GREETING.fullmatch(words):
        return _sure(AskForHelp())
    if len(words) < _LONGEST_THANKS and _THANKS.fullmatch(words):
        return ParsedMessage(understanding=Understanding(commands=(), words=WELCOME), sure=True)
    if words in ("no", "nope", "nein") or (
        is_no(words) and not (turn.running or (turn.task and not turn.run))
    ):
        if turn.task and not turn.run:
            return _sure(CancelTask())
        return ParsedMessage(understanding=Understanding(commands=(), words=AS_IT_IS), sure=True)
    if is_yes(words) and turn.task and not turn.run:
        return _sure(StartSearch())
    if words in _NODS:
        return ParsedMessage(understanding=Understanding(commands=(), words=ALL_RIGHT), sure=True)
    return None


def _clauses(text: str, turn: Turn) -> ParsedMessage:
    commands: list[Command] = []
    missed = False
    for sentence in sentences(text.strip()):
        found = _sentence(sentence, turn) or _sentence(mended(plain(sentence)), turn)
        commands += found
        missed = missed or not (found or _says_nothing(sentence))
    if _BEGINNINGS.search(plain(text)) and _needs_a_file(commands, turn):
        return ParsedMessage(
            understanding=Understanding(commands=(), words=NEEDS_A_FILE), sure=True
        )
    if _comes_later(plain(text)) and any(isinstance(command, _FINAL) for command in commands):
        said = Unclear(words=_shown(text), guesses=merged(commands))
        return ParsedMessage(understanding=Understanding(commands=(said,)))
    if commands:
        return ParsedMessage(
            understanding=Understanding(commands=merged(commands)), sure=not missed
        )
    return _unclear(bare(translated(plain(text))), text, turn)


def _sentence(sentence: str, turn: Turn) -> tuple[Command, ...]:
    found = commands_in(
        sentence, lambda part: clause_in(part, turn, alone=len(part) >= len(sentence.strip(" ,")))
    )
    return with_types(found, sentence, turn)


def _says_nothing(sentence: str) -> bool:
    words = plain(sentence).strip(" .!,:)")
    return not re.search(r"\w", bare(words)) or (
        len(words) < _LONGEST_THANKS and bool(_THANKS.fullmatch(words))
    )


def _needs_a_file(commands: Sequence[Command], turn: Turn) -> bool:
    """Whether nothing of that can be done, as there is neither a task nor a run."""
    about = StartSearch | ContinueSearch | ShowProgress | AuditTask | Steer | SetBudget | ShowCode
    return (
        not turn.task and not turn.run and all(isinstance(command, about) for command in commands)
    )


def _comes_later(words: str) -> bool:
    """Whether something is to happen only if, or when, something else did."""
    return bool(_LATER.search(words)) or limits_in(words).any


def _shown(text: str) -> str:
    return " ".join(text.split())[:200]


def _unclear(words: str, text: str, turn: Turn) -> ParsedMessage:
    begins = command_in(words, turn.model_copy(update={"task": words}))
    if any(isinstance(command, StartSearch) for command in begins) and _needs_a_file(begins, turn):
        return ParsedMessage(
            understanding=Understanding(commands=(), words=NEEDS_A_FILE), sure=True
        )
    command = Unclear(words=_shown(text), guesses=guesses(words, turn))
    return ParsedMessage(understanding=Understanding(commands=(command,)))


def _sure(*commands: Command) -> ParsedMessage:
    return ParsedMessage(understanding=Understanding(commands=commands), sure=True)
