"""Whether an idea was there before, by its words.

Two ideas are alike when most of their telling words are the same, whatever the order and the
numbers: a cluster of 8 instead of 16 is the tuner's business. Not covered: the same idea in
entirely other words, which the ledger in the prompt is there to prevent.
"""

import re
from functools import lru_cache

from tools.nouns import Idea

ALIKE = 0.6
_WORD = re.compile(r"[a-z][a-z0-9]+")
# Words that every idea has say nothing about which one it is.
_COMMON_WORDS = (
    "a an and are as at be but by each else every for from has have in into is it its more of on "
    "one only or other over so than that the their them then there they this through to together "
    "too under use used uses using what when where which while will with within without instead "
    "same all kernel kernels thread threads block blocks data value values compute computes "
    "element elements"
)
_COMMON = frozenset(_COMMON_WORDS.split())


def like(title: str, mechanism: str, idea: Idea) -> bool:
    """Whether these words say what an idea says."""
    if _plain(title) == _plain(idea.title):
        return True
    one, other = _telling(f"{title} {mechanism}"), _telling(f"{idea.title} {idea.mechanism}")
    shared = len(one & other)
    return bool(shared) and shared / len(one | other) >= ALIKE


def _plain(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))


@lru_cache(maxsize=4096)
@lru_cache(maxsize=4096)  # what was tried is compared with every new idea, round after round
def _telling(text: str) -> frozenset[str]:
    """Stems of the words that tell ideas apart; every idea is asked about again each round."""
    words = (word for word in _WORD.findall(text.lower()) if word not in _COMMON)
    return frozenset(re.sub(r"(?:ings?|ed|es|s)$", "", word) for word in words if len(word) > 2)
