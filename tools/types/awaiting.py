"""When a search has to wait for somebody outside: a person who is the model, a far GPU host."""

from pathlib import Path


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
