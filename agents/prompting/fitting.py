"""Keeps prompts within what a model of middling context can read beside its answer.

A prompt that is too long loses the middle of its longest blocks, those between fences in what a
person says, until it fits: sources, logs and listings are shortened, standing words never. What is
left out is said where it stood. Tokens are estimated on the safe side.
"""

import re
from collections.abc import Sequence

from kernelwright.tools.types import Message

# A prompt of ours, tools and their schemas included, has at most this many tokens.
MOST_TOKENS = 24_000
# What tools and their schemas take beside the prompt itself.
_TOOLS = 2_000
_CHARACTERS_A_TOKEN = 3
_BLOCK = re.compile(r"^(?P<fence>`{3,}|~{3,})[^\n]*\n(?P<text>.*?)^(?P=fence)[ \t]*$", re.M | re.S)
# A block is not shortened below this.
_LEAST = 1_200


def fitted(messages: Sequence[Message], tokens: int = MOST_TOKENS - _TOOLS) -> tuple[Message, ...]:
    """The messages, their longest blocks shortened until all of them fit."""
    found = list(messages)
    room = tokens * _CHARACTERS_A_TOKEN
    for _ in range(64):
        over = sum(len(item.text) for item in found) - room
        if over <= 0:
            break
        place = _longest(found)
        if place is None:
            break
        number, block = place
        text = found[number].text
        kept = _shortened(block["text"], max(_LEAST, len(block["text"]) - over - 80))
        whole = f"{text[: block.start('text')]}{kept}{text[block.end('text') :]}"
        found[number] = found[number].model_copy(update={"text": whole})
    return tuple(found)


def _longest(messages: Sequence[Message]) -> tuple[int, re.Match[str]] | None:
    """The longest block that a person's message holds; None where none can be shortened."""
    blocks = [
        (number, block)
        for number, message in enumerate(messages)
        if message.author == "person"
        for block in _BLOCK.finditer(message.text)
        if len(block["text"]) > _LEAST + 200
    ]
    return max(blocks, key=lambda item: len(item[1]["text"]), default=None)


def _shortened(text: str, characters: int) -> str:
    """Whole lines from its beginning and its end."""
    head = text[: characters // 2].rpartition("\n")[0]
    tail = text[-(characters // 2) :].partition("\n")[2]
    left_out = text.count("\n") - head.count("\n") - tail.count("\n")
    return f"{head}\n[... {left_out} lines are left out here ...]\n{tail}"
