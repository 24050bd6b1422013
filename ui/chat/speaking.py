"""What a model is saying right now, as a step that goes when its answer is there."""

from datetime import UTC, datetime

from chainlit.step import StepDict

from graphs.speech import Speech
from ui.chat.drawing import step_of
from ui.chat.lines import Line
from ui.chat.safe import fence

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
