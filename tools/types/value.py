"""The base of every value, and the two exceptions that end a question without an answer.

A value is frozen and strict about unknown fields, and its JSON keeps infinities. The exceptions,
which every layer may raise, say what this machine lacks, or that a search has to wait for somebody
outside: a person who is the model, a far GPU host.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen value; equal when its fields are equal, hashable when they are."""

    # Masked softmaxes carry -inf as a constant; plain JSON would turn it into null.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class EnvironmentLacksError(Exception):
    """This machine lacks something needed; the message names the command that would fix it."""


class AwaitingError(Exception):
    """The run pauses here; nothing is lost, and a resume goes on once `paths` are there.

    Args:
        words: One sentence: what is awaited, and what to do.
        paths: The files whose arrival lets the run go on.
    """

    def __init__(self, words: str, paths: tuple[Path, ...] = ()) -> None:
        super().__init__(words)
        self.words = words
        self.paths = paths
