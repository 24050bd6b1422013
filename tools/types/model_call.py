"""One question to a language model and what came back, as it is kept and replayed."""

from hashlib import sha256
from typing import Annotated, Literal

from pydantic import Field, field_validator

from kernelwright.tools.types.run import TokenCounts
from kernelwright.tools.types.value import Value

# Roles are added from outside, so any name of that form will do. `assistant` talks with the person
# and has no part in a search.
RoleName = Annotated[str, Field(pattern=r"^[a-z][a-z_]*$")]


class Message(Value):
    """One part of a prompt: our standing words, a question, or an earlier answer of the model."""

    author: Literal["system", "person", "model"]
    text: str


class Prompt(Value):
    """A question to a model.

    `key` names the question within its run (`planner:2`, `coder:r2i1:write`, `...:again` after
    an answer that could not be read): a step that is taken again asks the same key. `reply_tokens`
    is the most that the answer may have; None leaves it to the model's profile. `answer_schema` is
    the JSON schema of an answer that is JSON, for servers that can enforce one: the messages
    describe it in words as well, so it is no part of the hash. The same holds of `tools`, a JSON
    list of functions that the model may call; what it calls comes back in the reply's `calls`.
    """

    key: str
    role: RoleName
    messages: tuple[Message, ...]
    round: int = 0
    reply_tokens: int | None = None
    answer_schema: str = ""
    tools: str = ""

    @property
    def sha256(self) -> str:
        """What tells prompts apart, whatever they are called."""
        text = "\x1e".join(f"{item.author}\x1f{item.text}" for item in self.messages)
        return sha256(text.encode()).hexdigest()


class ToolCall(Value):
    """A function that a model wants called, with its arguments as JSON, as far as it is any."""

    name: str
    arguments: str = "{}"


class Reply(Value):
    """What a model said; `reasoning` is the thinking that it showed beside its answer.

    `usd` is None where no price is known. `attempts` counts requests, so 1 means no retry;
    `finish` is the server's word for why it stopped (`stop`, `length`, ...).
    """

    text: str
    reasoning: str = ""
    model: str = ""
    tokens: TokenCounts = TokenCounts()
    usd: float | None = None
    seconds: float = 0.0
    attempts: int = 1
    finish: str = "stop"
    calls: tuple[ToolCall, ...] = ()

    @field_validator("text", "reasoning", "model", "finish")
    @classmethod
    def _encodable(cls, value: str) -> str:
        """Servers send halves of surrogate pairs; whole pairs are joined, lone ones replaced."""
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Call(Value):
    """A question with its reply, or with why there is none (one sentence).

    `lost` and `lost_usd` were spent without a reply to show for it, as when a stream broke off.
    """

    prompt: Prompt
    reply: Reply | None = None
    failure: str = ""
    lost: TokenCounts = TokenCounts()
    lost_usd: float | None = None
