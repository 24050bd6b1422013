"""What a server keeps with a run: whether its search is to go on, and what the person wishes."""

from pathlib import Path

from kernelwright.agents.shared.steering import Steering
from kernelwright.graphs.run_view.events import Noted
from kernelwright.tools.archive import Archive, RunError

GOING, STEERING, TITLE = "going", "steering", "title"


def keep_going(folder: Path, *, going: bool) -> None:
    """Keep whether the search is to be taken up after the server ended."""
    archive = Archive(folder)
    try:
        archive.record_term(GOING, "true" if going else "false")
    finally:
        archive.close()


def keep_end(folder: Path, problem: str, *, going: bool) -> None:
    """Keep how a session ended: with a problem or none, and whether the search is to go on."""
    if not going:
        keep_going(folder, going=False)
    if problem:
        note(folder, problem)


def is_going(folder: Path) -> bool:
    """Whether a search went on when its server ended; False where the run cannot be read."""
    try:
        archive = Archive.open(folder)
    except RunError:
        return False
    try:
        term = archive.term(GOING)
        # Killed between its beginning and the first word of it, a run has no term yet.
        return term == "true" or (term is None and archive.record().status == "running")
    finally:
        archive.close()


def keep_steering(folder: Path, steering: Steering) -> None:
    """Keep the person's wishes, so that a resumed search has them."""
    archive = Archive(folder)
    try:
        archive.record_term(STEERING, steering.model_dump_json())
    finally:
        archive.close()


def kept_steering(folder: Path) -> Steering:
    """The person's wishes for a run."""
    archive = Archive(folder)
    try:
        term = archive.term(STEERING)
    finally:
        archive.close()
    return Steering.model_validate_json(term) if term else Steering()


def keep_title(folder: Path, title: str) -> None:
    """Keep the name that a person gave a run."""
    archive = Archive(folder)
    try:
        archive.record_term(TITLE, title)
    finally:
        archive.close()


def note(folder: Path, words: str) -> None:
    """Tell a plain sentence in the run's events."""
    archive = Archive(folder)
    try:
        event = Noted(words=words)
        archive.append_event(event.kind, event.round, event.model_dump_json())
    finally:
        archive.close()
