"""Lines, sheets and buttons as Chainlit's page takes them, and what goes to the side panel."""

from typing import ClassVar

from chainlit.action import Action
from chainlit.element import Element, ElementDict, ElementType
from chainlit.sidebar import ElementSidebar
from chainlit.step import StepDict
from pydantic.dataclasses import dataclass

from kernelwright.agents.assistant.types import COMMAND, Command
from kernelwright.ui.chat.messages.lines import Button, Line, Sheet, id_of, stamp
from kernelwright.ui.chat.messages.safe import text
from kernelwright.ui.chat.store.records import ADDRESS

# Every button is this action; which command it stands for is in its payload.
ACTION = "wish"


@dataclass
class Plot(Element):
    """A drawing whose JSON is made already."""

    type: ClassVar[ElementType] = "plotly"


@dataclass
class Tasks(Element):
    """A list of tasks whose JSON is made already."""

    type: ClassVar[ElementType] = "tasklist"


@dataclass
class Source(Element):
    """A text as Markdown."""

    type: ClassVar[ElementType] = "text"


KINDS: dict[str, type[Element]] = {"plotly": Plot, "tasklist": Tasks, "text": Source}
MIMES = {"plotly": "application/json", "tasklist": "application/json", "text": "text/plain"}


def step_of(thread: str, run: str, line: Line, author: str) -> StepDict:
    """A line as a step or a message."""
    message = line.kind == "message"
    ended = line.at if message else line.ended_at
    return StepDict(
        id=id_of(thread, run, line.key),
        threadId=thread,
        parentId=id_of(thread, run, line.parent) if line.parent else None,
        name=author if message else line.name,
        type="assistant_message" if message else "tool",
        input="",
        output=line.words,
        createdAt=stamp(line.at),
        start=stamp(line.at),
        end=stamp(ended) if ended else None,
        streaming=False,
        isError=line.failed,
        showInput=False,
        defaultOpen=line.open,
        # A step that was open while it went on folds itself when it is over.
        autoCollapse=not line.open and not message,
        metadata={"icon": line.icon} if line.icon else {},
        tags=None,
        language=None,
        generation=None,
    )


def element_of(thread: str, run: str, sheet: Sheet) -> Element:
    """A sheet as an element with its content."""
    return KINDS[sheet.kind](
        thread_id=thread,
        id=id_of(thread, run, sheet.key),
        name=sheet.name,
        content=sheet.content,
        display=sheet.display,
        mime=MIMES[sheet.kind],
    )


def kept_element(element: Element, version: int) -> ElementDict:
    """An element with the address of its kept content; another version is another address."""
    shown = element.to_dict()
    shown["url"] = f"{ADDRESS}/{element.thread_id}/{element.id}?v={version}"
    shown["chainlitKey"] = None
    return shown


def action_of(id: str, button: Button, message: str, run: str = "") -> Action:
    """A button under a message; its payload is only data, and is read as a command again.

    One of a run's own card names the run, as another may be talked about when it is pressed.
    """
    payload = {
        "wish": button.wish.model_dump_json(),
        "label": button.label,
        "quiet": button.quiet,
        "run": run,
    }
    return Action(
        id=id,
        name=ACTION,
        label=button.label,
        tooltip=button.hint,
        icon=button.icon or None,
        payload=payload,
        forId=message,
    )


def command_of(action: Action) -> Command | None:
    """The command behind a button; None where a page sent something else."""
    try:
        return COMMAND.validate_json(str(action.payload["wish"]))
    except (KeyError, ValueError):
        return None


def differs(stored: StepDict, step: StepDict) -> bool:
    """Whether a kept step is not what it should be."""
    keys = ("name", "output", "end", "isError", "parentId", "defaultOpen")
    return any(stored.get(key) != step.get(key) for key in keys)


def title(words: str) -> str:
    """A heading inside a message."""
    return f"**{text(words)}**"


# The button that puts a message's code there.
BESIDE = "beside"


def beside_of(message_id: str) -> tuple[Action, ...]:
    """The button under a message with code in it."""
    return (
        Action(
            id=f"{message_id}-{BESIDE}",
            name=BESIDE,
            label="Show beside",
            tooltip="In a panel that stays while you go on",
            icon="panel-right",
            payload={"message": message_id},
            forId=message_id,
        ),
    )


async def show_beside(thread: str, words: str) -> None:
    """Put a message's words into the side panel of the page that asks."""
    element = Source(
        thread_id=thread, name="code", content=words, display="side", mime="text/plain"
    )
    await ElementSidebar.set_title("Beside the conversation")
    await ElementSidebar.set_elements([element])
