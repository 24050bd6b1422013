"""Inputs for a module that brings none, from the sizes that stand in its source."""

from pathlib import Path

from agents.assistant.sayings import Offer
from tools.nouns import Refusal, TracePolicy


def proposals(file: Path, policy: TracePolicy, refusal: Refusal) -> tuple[Offer, ...]:
    """Inputs worth trying; none where the refusal is about something else."""
    return ()
