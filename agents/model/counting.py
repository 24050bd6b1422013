"""Tokens and money: estimates before a question, prices after it.

An estimate is on the safe side: code is rarely denser than three characters a token.
"""

from profiles.models import ModelProfile
from tools.nouns import Prompt
from tools.nouns.run import TokenCounts

_CHARACTERS = 3
# Roles and separators around a message.
_AROUND = 8


def tokens_of(text: str) -> int:
    """At most about this many tokens."""
    return -(-len(text) // _CHARACTERS)


def tokens_in(prompt: Prompt) -> int:
    """What a prompt amounts to, about."""
    return sum(tokens_of(item.text) + _AROUND for item in prompt.messages)


def price(profile: ModelProfile, tokens: TokenCounts) -> float | None:
    """US dollars; None where the profile knows no price."""
    per_input, per_output = profile.usd_per_million_input, profile.usd_per_million_output
    if per_input is None or per_output is None:
        return None
    return (tokens.input * per_input + tokens.output * per_output) / 1e6


def added(left: TokenCounts, right: TokenCounts) -> TokenCounts:
    """Both together."""
    return TokenCounts(input=left.input + right.input, output=left.output + right.output)


def added_usd(left: float | None, right: float | None) -> float | None:
    """Both together; None only when neither is known."""
    return None if left is None and right is None else (left or 0.0) + (right or 0.0)
