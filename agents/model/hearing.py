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
        self._calls: dict[int, tuple[str, str]] = {}

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
    def said(self) -> str:
        """The text alone."""
        return "".join(self._text)

    @property
    def answer(self) -> str:
        """The text; where a server took the answer for a call of a tool, what the call holds."""
        return self.said or "".join(self._arguments)

    @property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """The tools that were called, each with its arguments as they were written."""
        return tuple(call for _, call in sorted(self._calls.items()) if call[0])

    @property
    def anything(self) -> bool:
        """Whether the server began to work on an answer."""
        return bool(self.answer or self.thinking or self.tokens)

    def _take_call(self, message: "BaseMessage") -> None:
        pieces = getattr(message, "tool_call_chunks", None)
        if pieces is not None:
            for piece in pieces:
                args = _proper(str(piece.get("args") or ""))
                self._arguments.append(args)
                self._call(piece.get("index"), _proper(str(piece.get("name") or "")), args)
            return
        calls = getattr(message, "tool_calls", None) or []
        wrong = getattr(message, "invalid_tool_calls", None) or []
        self._arguments += [json.dumps(call["args"]) for call in calls[:1]]
        self._arguments += [str(call.get("args") or "") for call in wrong[:1] if not calls]
        for call in calls:
            self._call(None, _proper(call["name"]), _proper(json.dumps(call["args"])))
        for call in wrong:
            self._call(None, _proper(str(call.get("name") or "")), str(call.get("args") or ""))

    def _call(self, place: object, name: str, args: str) -> None:
        """A call, or the next piece of one that stands at that place."""
        at = place if isinstance(place, int) else len(self._calls)
        before = self._calls.get(at, ("", ""))
        self._calls[at] = (before[0] + name, before[1] + args)


def _proper(text: str) -> str:
    """Text that can be kept: half a character, which JSON can carry, becomes a question mark."""
    return text.encode("utf-8", "replace").decode()
