"""The identity of candidates: a hash of what would run.

Two candidates from different ideas that come to the same code are one candidate.
"""

import hashlib
from functools import lru_cache

from kernelwright.tools.types import Candidate, LanguageName, Setting

_ID_DIGITS = 12


def identity(language: LanguageName, kernel: str, plan: str, settings: tuple[Setting, ...]) -> str:
    """The id of language, kernel, plan and complete settings."""
    values = ",".join(f"{item.name}={item.value}" for item in settings)
    content = "\0".join((language, kernel, plan, values))
    return hashlib.sha256(content.encode("utf-8", errors="replace")).hexdigest()[:_ID_DIGITS]


def implementation_key(candidate: Candidate) -> str:
    """What candidates share that differ only in their settings."""
    return _implementation(candidate.language, candidate.kernel, candidate.plan)


@lru_cache(maxsize=4096)  # asked for every candidate of a run, in every round
def _implementation(language: LanguageName, kernel: str, plan: str) -> str:
    return identity(language, kernel, plan, ())
