"""Bells: what a person's pages have called whenever there may be something new for them."""

from collections.abc import Callable
from pathlib import Path

Wake = Callable[[], None]


class Bells:
    """The listeners of every person, known by the person's folder.

    They are rung from whatever thread the news comes from, and say nothing of what it is.
    """

    def __init__(self) -> None:
        self._of: dict[Path, set[Wake]] = {}

    def hang(self, home: Path, wake: Wake) -> None:
        """Have something called whenever this person's bells are rung."""
        self._of.setdefault(home, set()).add(wake)

    def take_down(self, home: Path, wake: Wake) -> None:
        """The opposite of `hang`; nothing happens where it hangs no longer."""
        self._of.get(home, set()).discard(wake)

    def ring(self, home: Path) -> None:
        """Call everything that this person's pages hung up."""
        for wake in tuple(self._of.get(home, ())):
            wake()
