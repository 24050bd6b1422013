"""What the person said about where to look, typed, so that every role reads the same wish.

Turning a sentence into these values belongs to the conversation, not here.
"""

from kernelwright.tools.types import Value


class Steering(Value):
    """Wishes that hold until the person takes them back.

    Each text names a strategy, a category, an attribute (`memory=on chip`) or simply words
    that may occur in an idea. Pins come first, bans never come, hints tip the balance.
    """

    hints: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    bans: tuple[str, ...] = ()


def speaks_of(wish: str, texts: tuple[str, ...]) -> bool:
    """Whether a wish names one of these texts or has all its words among them."""
    wanted = wish.strip().lower()
    described = [text.lower() for text in texts]
    words = set(" ".join(described).replace("=", " ").replace("_", " ").split())
    return bool(wanted) and (wanted in described or set(wanted.replace("_", " ").split()) <= words)
