"""Supervised fine-tuning: answers are imitated, questions are only read.

Rows that are longer than the limit are left out and counted. The loss is the mean over the answers'
tokens of an update, so that long answers weigh what they are long.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from kernelwright.tools.learning.data.records import Row
from kernelwright.tools.learning.training.course import (
    Course,
    optimizer_of,
    rate_at,
    stepped,
    together,
)
from kernelwright.tools.learning.training.policy import Policy
from kernelwright.tools.types import Value


class SftSettings(Value):
    """How a model is fine-tuned.

    Attributes:
        data: The data set's folder, for the record.
        model: The model's folder, likewise.
        rank: Of the adapter.
        steps: Updates; 0 for as many as `epochs` take.
        epochs: How often every row is seen.
        batch: Rows of an update.
        micro: Rows that go through the model together.
        rate: The highest learning rate.
        longest: Tokens of a row, question and answer; longer ones are left out.
        save_every: Steps between checkpoints.
        seed: Of the rows' order.
    """

    data: str
    model: str
    rank: int = 16
    steps: int = 0
    epochs: float = 2.0
    batch: int = 32
    micro: int = 8
    rate: float = 2e-4
    longest: int = 2048
    save_every: int = 20
    seed: int = 0


class SftStep(Value):
    """One update: the loss a token, and what it took."""

    step: int
    of: int
    loss: float
    tokens: int
    rate: float
    norm: float
    seconds: float


@dataclass(frozen=True)
class Example:
    """A row as tokens."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


def examples(policy: Policy, rows: Sequence[Row], longest: int) -> list[Example]:
    """The rows with a completion that are short enough, as tokens."""
    found = []
    for row in rows:
        if not row.completion:
            continue
        prompt = policy.prompt(row.prompt)
        answer = policy.answer(row.completion[0].content)
        if len(prompt) + len(answer) <= longest:
            found.append(Example(tuple(prompt), tuple(answer)))
    return found


def updates(count: int, settings: SftSettings) -> int:
    """How many updates so many rows make."""
    return settings.steps or max(1, ceil(count * settings.epochs / settings.batch))


def rows_of_step(count: int, step: int, settings: SftSettings) -> list[int]:
    """The places of the rows of an update; every epoch has an order of its own."""
    chosen = []
    for place in range(step * settings.batch, (step + 1) * settings.batch):
        epoch, at = divmod(place, count)
        order = random.Random(f"{settings.seed} {epoch}").sample(range(count), count)
        chosen.append(order[at])
    return chosen


def fine_tune(
    policy: Policy,
    known: Sequence[Example],
    settings: SftSettings,
    course: Course,
    tell: Callable[[SftStep], None],
) -> None:
    """Train the adapter of a model, from where the course stands to its end.

    Args:
        policy: With an adapter.
        known: The rows as tokens.
        settings: How.
        course: Where steps and checkpoints go.
        tell: Told every step.

    Raises:
        ValueError: There is no row to learn from.
    """
    if not known:
        raise ValueError("no row is short enough to learn from")
    optimizer, total = optimizer_of(policy), updates(len(known), settings)
    for step in range(course.resumed(policy, optimizer), total):
        begin, rate = time.perf_counter(), rate_at(step, total, settings.rate)
        batch = [known[at] for at in rows_of_step(len(known), step, settings)]
        loss, tokens = _accumulated(policy, batch, settings.micro)
        norm = stepped(policy, optimizer, rate)
        told = SftStep(
            step=step + 1,
            of=total,
            loss=loss,
            tokens=tokens,
            rate=rate,
            norm=norm,
            seconds=time.perf_counter() - begin,
        )
        course.tell(told)
        tell(told)
        if (step + 1) % settings.save_every == 0 or step + 1 == total:
            course.keep(policy, optimizer, step + 1)
    course.finish(policy)


def _accumulated(policy: Policy, batch: Sequence[Example], micro: int) -> tuple[float, int]:
    """Gradients of a batch's mean loss a token, with that loss and the tokens."""
    policy.model.train()
    tokens, total = sum(len(one.answer) for one in batch), 0.0
    lengths = [len(one.prompt) + len(one.answer) for one in batch]
    for places in together(lengths, micro):
        part = [batch[at] for at in places]
        likely, mask = policy.log_likelihoods(
            [one.prompt for one in part], [one.answer for one in part]
        )
        loss = -(likely * mask).sum() / tokens
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total, tokens
