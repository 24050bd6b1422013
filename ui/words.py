"""Numbers, names and verdicts in words, as `graphs.words` says them everywhere."""

from graphs.words import (
    STATUS,
    VERDICT,
    amount,
    count,
    dollars,
    milliseconds,
    one_line,
    percent,
    plain,
    ratio,
    seconds,
    shape,
    tokens,
    waiting_words,
)

__all__ = [
    "STATUS",
    "VERDICT",
    "amount",
    "count",
    "dollars",
    "milliseconds",
    "one_line",
    "percent",
    "plain",
    "ratio",
    "seconds",
    "shape",
    "tokens",
    "waiting_words",
]
