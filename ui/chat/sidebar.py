"""The side panel: a source or a difference beside the conversation, for as long as it is wanted.

It is a page's own: other pages of the same conversation keep theirs as they are.
"""

from chainlit.action import Action
from chainlit.sidebar import ElementSidebar

from ui.chat.drawing import Source

# The button that puts a message's code there.
ACTION = "beside"


def beside_of(message_id: str) -> tuple[Action, ...]:
    """The button under a message with code in it."""
    return (
        Action(
            id=f"{message_id}-{ACTION}",
            name=ACTION,
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
