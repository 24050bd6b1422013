"""The values that an archive hands out and that are no nouns of their own."""

from datetime import datetime
from typing import Literal

from kernelwright.profiles.load import Hardware, SearchProfile
from kernelwright.tools.types import (
    Baselines,
    Candidate,
    Effort,
    Evaluation,
    Task,
    TracePolicy,
    Value,
)
from kernelwright.tools.types.run import Summary

Author = Literal["coder", "tuner", "repair"]
RunStatus = Literal["running", "stopped", "finished"]
Target = Literal["auto", "cuda", "cpu"]

# From the least to the most trusted; the last one there is stands for the candidate.
EFFORTS: tuple[Effort, ...] = ("screen", "precise", "certify")


class RunRecord(Value):
    """What a run is over and under which terms; `baselines` and `summary` once they exist."""

    id: str
    created_at: datetime
    status: RunStatus
    target: Target
    seed: int
    task: Task
    policy: TracePolicy
    profile: SearchProfile
    hardware: Hardware
    baselines: Baselines | None = None
    summary: Summary | None = None


class RunInfo(Value):
    """A run in a list: `live` when a process works on it; `problem` when it cannot be read."""

    id: str
    folder: str
    created_at: datetime | None = None
    task: str = ""
    hardware: str = ""
    status: RunStatus | None = None
    live: bool = False
    summary: Summary | None = None
    problem: str = ""


class StoredEvent(Value):
    """An event as text: `payload` is the JSON of one of `graphs.run_view.events`."""

    seq: int
    kind: str
    round: int
    at: datetime
    payload: str
    key: str | None = None


class Written(Value):
    """A candidate with when and by whom it was written; `number` counts from 1 in a run."""

    number: int
    candidate: Candidate
    round: int
    author: Author


class Standing(Value):
    """A candidate with the most trusted evaluation that it has."""

    number: int
    candidate: Candidate
    round: int
    author: Author
    effort: Effort
    evaluation: Evaluation
