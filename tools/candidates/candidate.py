"""Makes candidates with their identity.

An identity is a hash of what would run: language, kernel, plan and complete settings. Two
candidates from different ideas that come to the same code are one candidate.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from tools.candidates.settings import complete_settings
from tools.candidates.signature import parse_kernel
from tools.nouns import Candidate, Language, Setting

_ID_DIGITS = 12


def new_candidate(
    language: Language,
    kernel: str,
    plan: str,
    *,
    settings: Iterable[Setting] = (),
    idea: str = "",
    parents: tuple[str, ...] = (),
    origin: Literal["playbook", "model", "person"] = "playbook",
    strategies: tuple[str, ...] = (),
    note: str = "",
) -> Candidate:
    """A candidate with its id and complete settings.

    Raises:
        ContractError: When the kernel's exports, declarations or settings break the contract.
    """
    complete = complete_settings(parse_kernel(kernel, language), settings)
    return Candidate(
        id=_identity(language, kernel, plan, complete),
        language=language,
        kernel=kernel,
        plan=plan,
        settings=complete,
        idea=idea,
        parents=parents,
        origin=origin,
        strategies=strategies,
        note=note,
    )


def with_settings(
    candidate: Candidate, settings: Iterable[Setting], *, note: str | None = None
) -> Candidate:
    """The same implementation with other settings; tunables not named keep their value.

    Raises:
        ContractError: When a name or value is not declared or a requirement is not met.
    """
    chosen = {item.name: item for item in candidate.settings}
    chosen |= {item.name: item for item in settings}
    source = parse_kernel(candidate.kernel, candidate.language)
    complete = complete_settings(source, chosen.values())
    identity = _identity(candidate.language, candidate.kernel, candidate.plan, complete)
    update: dict[str, object] = {"id": identity, "settings": complete}
    return candidate.model_copy(update=update if note is None else update | {"note": note})


def implementation_key(candidate: Candidate) -> str:
    """What candidates share that differ only in their settings."""
    return _implementation(candidate.language, candidate.kernel, candidate.plan)


@lru_cache(maxsize=4096)  # asked for every candidate of a run, in every round
def _implementation(language: Language, kernel: str, plan: str) -> str:
    return _identity(language, kernel, plan, ())


def _identity(language: Language, kernel: str, plan: str, settings: tuple[Setting, ...]) -> str:
    values = ",".join(f"{item.name}={item.value}" for item in settings)
    content = "\0".join((language.value, kernel, plan, values))
    return hashlib.sha256(content.encode("utf-8", errors="replace")).hexdigest()[:_ID_DIGITS]
