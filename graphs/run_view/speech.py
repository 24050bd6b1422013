"""What models are saying right now, as far as they have come: shown meanwhile, and never kept.

Said on the loop of a search, read on that of a page. What was said in the end is kept with the
call that asked for it, and told as an event.
"""

import threading

from kernelwright.tools.types import Prompt, RoleName, Value

# Of one answer this much is shown while it comes; the event behind it knows where all of it is.
LONGEST = 60_000


class Speech(Value):
    """An answer in the making.

    `text` is all of it so far, thinking included. `ended` is true once: the answer is complete, or
    there will be none, and its event tells the rest.
    """

    key: str
    role: RoleName
    round: int
    text: str
    ended: bool = False


class Speeches:
    """The answers of one search that are in the making; any thread may say and read."""

    def __init__(self) -> None:
        self._speaking: dict[str, tuple[Prompt, list[str], int]] = {}
        self._lock = threading.Lock()

    def hear(self, prompt: Prompt, piece: str) -> None:
        """Take in a piece; an empty one begins the answer anew."""
        with self._lock:
            _, pieces, length = self._speaking.get(prompt.key, (prompt, [], 0))
            if not piece:
                pieces, length = [], 0
            elif length < LONGEST:
                pieces.append(piece[: LONGEST - length])
            self._speaking[prompt.key] = (prompt, pieces, length + len(piece))

    def end(self, key: str) -> None:
        """Nothing more will be said under that key."""
        with self._lock:
            self._speaking.pop(key, None)

    def clear(self) -> None:
        """Nobody says anything any more."""
        with self._lock:
            self._speaking.clear()

    def now(self) -> tuple[Speech, ...]:
        """Everything that is being said, in the order in which it began."""
        with self._lock:
            return tuple(
                Speech(key=key, role=prompt.role, round=prompt.round, text="".join(pieces))
                for key, (prompt, pieces, _) in self._speaking.items()
            )
