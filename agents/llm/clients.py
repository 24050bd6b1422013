"""One voice a role, made of its parts: recorded, patient, paid from one purse."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agents.llm.budget import Purse, PursedVoice
from agents.llm.client import Voice
from agents.llm.endpoint import EndpointVoice, OnPiece
from agents.llm.recording import Book, RecordedVoice, Tell
from agents.llm.retries import PatientVoice
from profiles.models import ModelProfile, Models

# Makes the voice of a person; only who knows the run's folder can.
MakeManual = Callable[[ModelProfile], Voice]


@dataclass(frozen=True)
class Surroundings:
    """What voices work with.

    Attributes:
        book: Where calls are kept, looked up before anything is asked.
        purse: What may be spent, by all of them together.
        manual: Makes the voice of a person.
        tell: Called with every call after it was kept.
        on_piece: Called with the pieces of streamed answers.
    """

    book: Book
    purse: Purse
    manual: MakeManual
    tell: Tell | None = None
    on_piece: OnPiece | None = None


def voices_for(models: Models, roles: Iterable[str], around: Surroundings) -> dict[str, Voice]:
    """A voice a role; roles with one profile share a voice, and so its rate limit."""
    made: list[tuple[ModelProfile, Voice]] = []

    def voice(profile: ModelProfile) -> Voice:
        for known, before in made:
            if known == profile:
                return before
        made.append((profile, RecordedVoice(_asked(profile, around), around.book, around.tell)))
        return made[-1][1]

    return {role: voice(models.of(role)) for role in roles}


def endpoint_voice(
    profile: ModelProfile, purse: Purse | None = None, on_piece: OnPiece | None = None
) -> Voice:
    """An endpoint that is asked again where that helps; every attempt is paid from the purse."""
    once = PursedVoice(EndpointVoice(profile, on_piece), purse or Purse(), profile)
    return PatientVoice(once, profile.retries, profile.retry_wait_s)


def _asked(profile: ModelProfile, around: Surroundings) -> Voice:
    if profile.kind == "manual":
        return around.manual(profile)
    return endpoint_voice(profile, around.purse, around.on_piece)
