"""The shape of the planner's answer; the descriptions are what the model reads."""

from math import isfinite

from pydantic import BaseModel, ConfigDict, Field, field_validator

CATEGORIES = ("memory", "latency", "parallelism", "arithmetic", "fusion", "algebra")


class PlannedIdea(BaseModel):
    """One idea as the model writes it; words it leaves out are empty."""

    model_config = ConfigDict(frozen=True)

    title: str = Field(description="under ten words; names the change, not the hope", min_length=1)
    mechanism: str = Field(
        description="two to six sentences: how work and data are laid out over threads, blocks and "
        "memories, what is kept where, and what happens in which order; concrete enough that "
        "somebody else can write it without asking",
        min_length=1,
    )
    reason: str = Field(
        default="", description="why it should be faster here, with numbers (bytes, FLOP, launches)"
    )
    category: str = Field(default="", description=f"one of {', '.join(CATEGORIES)}")
    metric: str = Field(
        default="",
        description="the one reading that must change if the mechanism is right, and by how much, "
        "such as 'bytes read: 2.0x -> 1.0x of the input'",
    )
    predicted_ms: float | None = Field(
        default=None, description="expected time of the whole task, in milliseconds"
    )
    risk: str = Field(default="", description="what would make it fail or disappoint")
    start_from: str = Field(
        default="",
        description="id of the candidate that it changes; empty for one written afresh",
    )
    playbook: str = Field(
        default="",
        description="number of the playbook's option (such as P1) if the idea is that option and "
        "the playbook shall write it; else empty",
    )

    @field_validator(
        "title", "mechanism", "reason", "category", "metric", "risk", "start_from", "playbook",
        mode="before",
    )  # fmt: skip
    @classmethod
    def _words(cls, value: object) -> object:
        """Models write null, numbers and lists of sentences where words are asked for."""
        if value is None:
            return ""
        if isinstance(value, int | float):
            return str(value)
        if isinstance(value, list):
            return " ".join(str(item) for item in value)
        return value

    @field_validator("predicted_ms", mode="before")
    @classmethod
    def _time(cls, value: object) -> object:
        """`"0.41 ms"` is a time; what is none at all is no reason to lose an idea."""
        try:
            number = float(str(value).lower().removesuffix("ms").strip().lstrip("~"))
        except ValueError:
            return None
        return number if isfinite(number) and number > 0 else None


class PlannedRound(BaseModel):
    """The whole answer."""

    model_config = ConfigDict(frozen=True)

    reasoning: str = Field(
        default="",
        description="three to eight sentences: what holds the best candidate up now, what the "
        "measurements so far say, why these ideas and why in this order",
    )
    ideas: list[PlannedIdea] = Field(description="the most promising first", min_length=1)
