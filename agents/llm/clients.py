"""Builds one client a role: recorded, retried, and paid from the budget that all roles share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kernelwright.agents.llm.budget import BudgetedClient, TokenBudget
from kernelwright.agents.llm.client import LLMClient
from kernelwright.agents.llm.endpoint import EndpointClient, OnPiece
from kernelwright.agents.llm.wrappers import Book, RecordingClient, RetryingClient, Tell
from kernelwright.profiles.models import ModelProfile, Models

# Makes the client of a person; only who knows the run's folder can.
MakeManual = Callable[[ModelProfile], LLMClient]


@dataclass(frozen=True)
class ClientContext:
    """What clients work with.

    Attributes:
        book: Where calls are kept, looked up before anything is asked.
        budget: What may be spent, by all of them together.
        manual: Makes the client of a person.
        tell: Called with every call after it was kept.
        on_piece: Called with the pieces of streamed answers.
    """

    book: Book
    budget: TokenBudget
    manual: MakeManual
    tell: Tell | None = None
    on_piece: OnPiece | None = None


def clients_for(
    models: Models, roles: Iterable[str], around: ClientContext
) -> dict[str, LLMClient]:
    """A client a role; roles with one profile share a client, and so its rate limit."""
    made: list[tuple[ModelProfile, LLMClient]] = []

    def client(profile: ModelProfile) -> LLMClient:
        for known, before in made:
            if known == profile:
                return before
        made.append((profile, RecordingClient(_asked(profile, around), around.book, around.tell)))
        return made[-1][1]

    return {role: client(models.of(role)) for role in roles}


def endpoint_client(
    profile: ModelProfile, budget: TokenBudget | None = None, on_piece: OnPiece | None = None
) -> LLMClient:
    """An endpoint that is asked again where that helps; every attempt is paid from the budget."""
    once = BudgetedClient(EndpointClient(profile, on_piece), budget or TokenBudget(), profile)
    return RetryingClient(once, profile.retries, profile.retry_wait_s)


def _asked(profile: ModelProfile, around: ClientContext) -> LLMClient:
    if profile.kind == "manual":
        return around.manual(profile)
    return endpoint_client(profile, around.budget, around.on_piece)
