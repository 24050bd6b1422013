"""Situations in which something is said, by name."""

import pytest

from kernelwright.agents.assistant.types import Turn

_RUN = {
    "task": "softmax",
    "run": "softmax-1121-ab3f",
    "candidates": tuple(f"{number:012x}" for number in range(20)),
    "ideas": ("read rows once", "warp per row", "wider vectors"),
}
_KNOWN: dict[str, dict[str, object]] = {
    "nothing": {},
    "task": {"task": "softmax"},
    "running": {**_RUN, "running": True},
    "ended": _RUN,
}


@pytest.fixture(scope="session")
def situations() -> dict[str, Turn]:
    """Turns without words: before anything, with a task, during a search, after it."""
    return {name: Turn.model_validate({"text": "", **known}) for name, known in _KNOWN.items()}
