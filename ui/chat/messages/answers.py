"""An answer as a message: words, sources and tables in its text, pictures and files beside it."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from chainlit.action import Action
from chainlit.element import Element, File
from chainlit.step import StepDict

from kernelwright.agents.assistant.types import (
    ChatReply,
    ContinueSearch,
    Offer,
    PauseSearch,
    StopSearch,
)
from kernelwright.agents.assistant.types.pieces import Code, Download, Picture, Piece, Table, Words
from kernelwright.graphs.run_view.events import Speech
from kernelwright.ui.chat.messages.elements import action_of, beside_of, step_of, title
from kernelwright.ui.chat.messages.lines import Button, Line, stamp
from kernelwright.ui.chat.messages.safe import fence, mend, table

# Where the buttons of a message are kept, for a page that is opened later.
OFFERS = "offers"
ICONS = {
    "start_search": "play",
    "continue_search": "play",
    "pause_search": "pause",
    "stop_search": "square",
    "cancel_task": "x",
    "change_task": "pencil",
    "export_result": "download",
    "get_report": "file-text",
    "explain_candidate": "circle-help",
    "show_code": "code",
    "show_progress": "activity",
}


@dataclass
class Note:
    """An answer, ready to be shown; `pictures` are still to be drawn."""

    step: StepDict
    files: list[Element] = field(default_factory=list)
    actions: tuple[Action, ...] = ()
    pictures: tuple[Picture, ...] = ()


def note_of(thread: str, saying: ChatReply, author: str, id: str = "") -> Note:
    """An answer as a message with its files and buttons, a new one or one that is there."""
    id = id or str(uuid.uuid4())
    words = "\n\n".join(part for part in map(_words, saying.pieces) if part)
    downloads = [piece for piece in saying.pieces if isinstance(piece, Download)]
    step = message(thread, id, words or title("Here it is."), author)
    step["metadata"] = {OFFERS: [offer.model_dump_json() for offer in saying.offers]}
    beside = beside_of(id) if any(isinstance(p, Code) for p in saying.pieces) else ()
    return Note(
        step,
        files=[_file(thread, piece) for piece in downloads],
        actions=(*actions_of(id, saying.offers), *beside),
        pictures=tuple(piece for piece in saying.pieces if isinstance(piece, Picture)),
    )


def message(thread: str, id: str, words: str, author: str, *, by_person: bool = False) -> StepDict:
    """A message as the page and the store take it."""
    now = stamp(datetime.now(UTC))
    return StepDict(
        id=id,
        threadId=thread,
        parentId=None,
        name=author,
        type="user_message" if by_person else "assistant_message",
        input="",
        output=words,
        createdAt=now,
        start=now,
        end=now,
        streaming=False,
        isError=False,
        metadata={},
        tags=None,
        language=None,
    )


def actions_of(message_id: str, offers: Sequence[Offer]) -> tuple[Action, ...]:
    """The buttons of a message; the same message always has the same ones."""
    return tuple(
        action_of(f"{message_id}-{number}", _button(offer), message_id)
        for number, offer in enumerate(offers)
    )


def kept_offers(step: StepDict) -> tuple[Offer, ...]:
    """The buttons that a kept message had; those of an older version are left out."""
    found = (step.get("metadata") or {}).get(OFFERS) or []
    offers = []
    for item in found:
        try:
            offers.append(Offer.model_validate_json(str(item)))
        except ValueError:
            continue
    return tuple(offers)


def without_offers(step: StepDict) -> StepDict:
    """The same message with nothing to press."""
    bare = step.copy()
    bare["metadata"] = {**(step.get("metadata") or {}), OFFERS: []}
    return bare


def _button(offer: Offer) -> Button:
    quiet = isinstance(offer.wish, PauseSearch | ContinueSearch | StopSearch)
    return Button(
        label=offer.label,
        wish=offer.wish,
        hint=offer.hint,
        icon=ICONS.get(offer.wish.kind, ""),
        quiet=quiet,
    )


def _words(piece: Piece) -> str:
    match piece:
        case Words():
            return mend(piece.text)
        case Code():
            code = fence(piece.text, piece.language)
            return f"{title(piece.title)}\n\n{code}" if piece.title else code
        case Table():
            rows = table(piece.columns, piece.rows)
            return f"{title(piece.title)}\n\n{rows}" if piece.title else rows
        case _:
            return ""


def _file(thread: str, piece: Download) -> Element:
    return File(thread_id=thread, name=piece.name, path=str(piece.path), mime=piece.mime)


# The end of what was said: the beginning has been read by now.
SHOWN = 2_400


def spoken(thread: str, run: str, speech: Speech) -> tuple[StepDict, bool]:
    """A speech as a step, and whether it is over."""
    text = speech.text if len(speech.text) <= SHOWN else f"… {speech.text[-SHOWN:]}"
    line = Line(
        key=f"speech:{speech.key}",
        name=f"The {speech.role} is thinking",
        words=fence(text or "…"),
        at=datetime.now(UTC),
        icon="brain",
        open=True,
    )
    return step_of(thread, run, line, ""), speech.ended
