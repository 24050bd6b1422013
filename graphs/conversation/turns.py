"""What a message may be about: the task, the run, its candidates and ideas."""

from kernelwright.agents.assistant.types.chat import Attachment, Turn
from kernelwright.graphs.conversation.place import Place
from kernelwright.graphs.run_view.wording import one_line
from kernelwright.tools.archive import Archive, RunError


def turn_of(place: Place, text: str, attachments: tuple[Attachment, ...]) -> Turn:
    """What the person said, with what it may be about; a few milliseconds."""
    task = place.now.task
    candidates, ideas = _named(place)
    return Turn(
        text=text,
        attachments=attachments,
        task=one_line(task.name, 60) if task else "",
        run=place.now.run,
        running=place.life is not None,
        candidates=candidates,
        ideas=ideas,
    )


def _named(place: Place) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if place.folder is None:
        return (), ()
    try:
        archive = Archive.open(place.folder)
    except RunError:  # the words may be about something else
        return (), ()
    try:
        return archive.candidate_ids(), tuple(idea.title for idea in archive.ideas())
    finally:
        archive.close()
