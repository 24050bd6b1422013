"""Takes in a message of a server, whole or in pieces."""

import json
from typing import TYPE_CHECKING

from tools.nouns.run import TokenCounts

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage


class Heard:
    """What a server has said so far.

    `tokens` is None until the server counts; `finish` is "" until it says why it stopped.
    """

    def __init__(self) -> None:
        self.thinking = ""
        self.model = ""
        self.finish = ""
        self.tokens: TokenCounts | None = None
        self._text: list[str] = []
        self._arguments: list[str] = []

    def take(self, message: "BaseMessage") -> str:
        """Take in a message or a piece of one; what it adds, thinking included."""
        text = _proper(str(message.text))
        thought = _proper(str(message.additional_kwargs.get("reasoning_content", "")))
        self._text.append(text)
        self.thinking += thought
        self._take_call(message)
        about = message.response_metadata
        self.model = str(about.get("model_name") or self.model)
        self.finish = str(about.get("finish_reason") or self.finish)
        used = getattr(message, "usage_metadata", None)
        if used:
            self.tokens = TokenCounts(input=used["input_tokens"], output=used["output_tokens"])
        return thought + text

    @property
    def answer(self) -> str:
        """The text; where a server took the answer for a call of a tool, what the call holds."""
        return "".join(self._text) or "".join(self._arguments)

    @property
    def anything(self) -> bool:
        """Whether the server began to work on an answer."""
        return bool(self.answer or self.thinking or self.tokens)

    def _take_call(self, message: "BaseMessage") -> None:
        pieces = getattr(message, "tool_call_chunks", None)
        if pieces is not None:
            self._arguments += [_proper(str(piece.get("args") or "")) for piece in pieces]
            return
        calls = getattr(message, "tool_calls", None) or []
        wrong = getattr(message, "invalid_tool_calls", None) or []
        self._arguments += [json.dumps(call["args"]) for call in calls[:1]]
        self._arguments += [str(call.get("args") or "") for call in wrong[:1] if not calls]


def _proper(text: str) -> str:
    """Text that can be kept: half a character, which JSON can carry, becomes a question mark."""
    return text.encode("utf-8", "replace").decode()
