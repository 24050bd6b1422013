"""Language models as data: where one is reached, what it may be asked, and what it costs.

`profiles/models/*.toml` hold servers and models that people use; a command line or the environment
can name any other. Prices carry the date on which they were read. Keys never stand here: a profile
names the environment variable that holds one.
"""

from datetime import date
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue


class ModelProfile(BaseModel):
    """One model behind one OpenAI-compatible endpoint, or a person who answers by files.

    `schema_mode` says how a structured answer is asked for beyond the words of the prompt: not at
    all, or by the server's `response_format`. `timeout_s` is for one attempt; `retry_wait_s` is the
    first pause between attempts and doubles with each. `extra_body` goes to the server as it is.
    Prices are US dollars per million tokens as of `priced_on`; None is unknown, 0 is free.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Literal["endpoint", "manual"] = "endpoint"
    model: str = ""
    base_url: str = ""
    api_key_env: str = ""
    context_tokens: int = Field(default=32_768, ge=1024)
    reply_tokens: int = Field(default=8192, ge=64)
    temperature: float | None = Field(default=None, ge=0)
    timeout_s: float = Field(default=300.0, gt=0)
    retries: int = Field(default=4, ge=0)
    retry_wait_s: float = Field(default=1.0, ge=0)
    requests_per_second: float | None = Field(default=None, gt=0)
    stream: bool = True
    stream_usage: bool = True
    schema_mode: Literal["text", "json_object", "json_schema"] = "text"
    reasoning_effort: str | None = None
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    usd_per_million_input: float | None = Field(default=None, ge=0)
    usd_per_million_output: float | None = Field(default=None, ge=0)
    priced_on: date | None = None
    source: str = ""


class Models(BaseModel):
    """Which model answers for which role; roles beyond these five stand beside them by name."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, ModelProfile] = Field(init=False)

    planner: ModelProfile
    coder: ModelProfile
    profiler: ModelProfile
    critic: ModelProfile
    strategist: ModelProfile

    @classmethod
    def same(cls, profile: ModelProfile) -> "Models":
        """One model for all roles."""
        return cls(
            planner=profile, coder=profile, profiler=profile, critic=profile, strategist=profile
        )

    @property
    def by_role(self) -> dict[str, ModelProfile]:
        """The profiles by the names of their roles."""
        return dict(self)

    def of(self, role: str) -> ModelProfile:
        """Who answers for a role; one that nobody was named for asks the planner's model."""
        return self.by_role.get(role, self.planner)
