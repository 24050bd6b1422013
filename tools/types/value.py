"""The base of every noun: frozen, strict about unknown fields, JSON that keeps infinities."""

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen value; equal when its fields are equal, hashable when they are."""

    # Masked softmaxes carry -inf as a constant; plain JSON would turn it into null.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
