"""Contrastive reinforcement: groups of answers, judged, and each weighed against the others.

In every step a few tasks are drawn, and a group of answers is sampled for each. Where verified
answers of distinct speeds are known, from the data set or from earlier steps, the prompt shows some
of them with what was measured. The update is on-policy: one step of the gradient for each batch of
answers, whose weight is the advantage, and every answer's sum is divided by the same length, so
that neither short nor long ones are favoured. While one part of a batch is sampled the judge
already compiles the part before it; nothing is timed until the model has left the device.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright.tools.learning.contract.launches import interface
from kernelwright.tools.learning.contract.prompts import Question, question, size_of
from kernelwright.tools.learning.data.records import (
    Attempt,
    Problem,
    Provenance,
    read_lines,
    write_lines,
)
from kernelwright.tools.learning.data.rows import exemplars, honest, shots
from kernelwright.tools.learning.judging import CHEATS, Judge, Worth
from kernelwright.tools.learning.training.course import (
    Course,
    optimizer_of,
    rate_at,
    stepped,
    together,
)
from kernelwright.tools.learning.training.policy import Policy, Sample, Sampling
from kernelwright.tools.learning.training.rewards import advantages, reward
from kernelwright.tools.threads import in_thread
from kernelwright.tools.types import Value

POOL = "pool.jsonl"
# Verified answers of a task that are remembered, the latest.
_REMEMBERED = 16


class RlSettings(Value):
    """How a model is reinforced.

    Attributes:
        data: The data set's folder, for the record.
        model: The model's folder, and the adapter it begins with.
        rank: Of the adapter, where it begins with none.
        steps: Updates.
        tasks: Tasks of a step.
        group: Answers to each.
        tokens: At most, of an answer.
        temperature: Of sampling.
        batch: Sequences sampled together.
        micro: Sequences that go through the model together in the update.
        rate: The highest learning rate.
        contrast: The share of prompts that show verified answers, where there are any.
        shown: Tokens at most of a prompt that shows some.
        eager_only: Whether speed is told beside eager alone, or beside torch.compile as well.
        written: How many tasks are drawn for it alone, as modules of learnt families; 0 takes those
            of the data set, whose answers the adapter may have been trained on already.
        save_every: Steps between checkpoints.
        seed: Of tasks, exemplars and sampling.
    """

    data: str
    model: str
    rank: int = 16
    steps: int = 12
    tasks: int = 8
    group: int = 16
    tokens: int = 768
    temperature: float = 1.0
    batch: int = 128
    micro: int = 8
    rate: float = 3e-5
    contrast: float = 0.5
    shown: int = 2400
    eager_only: bool = True
    written: int = 0
    save_every: int = 1
    seed: int = 0


class RlStep(Value):
    """One update: what its answers earned, and where its time went.

    `flat` is the share of groups whose answers all earned the same, from which nothing is learnt.
    """

    step: int
    of: int
    reward: float
    correct: float
    fast: float
    cheats: int
    flat: float
    contrasted: int
    length: float
    rate: float
    norm: float
    sampled_s: float
    judged_s: float
    updated_s: float


@dataclass(frozen=True)
class Rollout:
    """The answers of one step: a group for each problem, in order."""

    problems: tuple[Problem, ...]
    questions: tuple[Question, ...]
    samples: tuple[Sample, ...]
    worth: tuple[Worth, ...]


class Pool:
    """Verified answers by task, which prompts may show; kept in the run's folder.

    Args:
        path: The file.
        known: What the data set brings.
    """

    def __init__(self, path: Path, known: Sequence[Attempt]) -> None:
        self._path = path
        self._of: dict[str, list[Attempt]] = defaultdict(list)
        self._own = read_lines(path, Attempt) if path.is_file() else []
        for one in (*known, *self._own):
            self._take(one)

    def _take(self, one: Attempt) -> None:
        if one.speedup is None or one.repairs or one.contract != "short":
            return
        kept = honest([*self._of[one.task], one])
        self._of[one.task] = kept[-_REMEMBERED:]

    def of(self, task: str) -> list[Attempt]:
        """The verified answers of a task."""
        return list(self._of[task])

    def add(self, attempts: Sequence[Attempt]) -> None:
        """Remember what was verified."""
        self._own += attempts
        for one in attempts:
            self._take(one)
        write_lines(self._path, self._own)


class Reinforcement:
    """Reinforces a model.

    Args:
        policy: With an adapter.
        problems: The tasks to draw from.
        judge: Who judges.
        pool: Verified answers to contrast.
        settings: How.
        course: Where steps and checkpoints go.
    """

    def __init__(
        self,
        policy: Policy,
        problems: Sequence[Problem],
        judge: Judge,
        pool: Pool,
        settings: RlSettings,
        course: Course,
    ) -> None:
        if settings.group < 2:
            raise ValueError("a group has at least two answers")
        self._policy, self._judge, self._pool = policy, judge, pool
        self._problems, self._settings, self._course = problems, settings, course

    async def run(self, tell: Callable[[RlStep], None]) -> None:
        """All steps that are left."""
        settings = self._settings
        optimizer = optimizer_of(self._policy)
        for step in range(self._course.resumed(self._policy, optimizer), settings.steps):
            begin = time.perf_counter()
            drawn = await self._sampled(step)
            sampled = time.perf_counter()
            rollout = await self._judged(*drawn)
            judged = time.perf_counter()
            earned = [reward(worth) for worth in rollout.worth]
            rate = rate_at(step, settings.steps, settings.rate)
            self._backward(rollout.samples, advantages(earned, settings.group))
            norm = stepped(self._policy, optimizer, rate)
            times = (sampled - begin, judged - sampled, time.perf_counter() - judged)
            self._pool.add(self._verified(rollout, step))
            told = self._told(step, rollout, earned, rate, norm, times)
            self._course.tell(told)
            tell(told)
            if (step + 1) % settings.save_every == 0 or step + 1 == settings.steps:
                self._course.keep(self._policy, optimizer, step + 1)
        self._course.finish(self._policy)

    async def _sampled(self, step: int) -> tuple[list[Problem], list[Question], list[list[Sample]]]:
        """The step's groups; what is sampled is compiled while the rest is sampled."""
        settings = self._settings
        draw = random.Random(f"{settings.seed} {step}")
        count = min(settings.tasks, len(self._problems))
        problems = draw.sample(list(self._problems), count)
        questions = [self._question(problem, draw) for problem in problems]
        sampling = Sampling(settings.tokens, settings.temperature, settings.batch)
        together = max(1, settings.batch // settings.group)
        found: list[list[Sample]] = []
        for first in range(0, count, together):
            part = slice(first, first + together)
            seed = draw.randrange(1 << 30)
            groups = await in_thread(
                self._policy.sampled, questions[part], settings.group, sampling, seed
            )
            for problem, group in zip(problems[part], groups, strict=True):
                self._judge.foresee(problem.task, [sample.text for sample in group])
            found += groups
        return problems, questions, found

    def _question(self, problem: Problem, draw: random.Random) -> Question:
        """The plain question, or one with exemplars where they are known and fit."""
        names = interface(problem.task)
        language = self._judge.language
        plain = question(problem.task, names, language)
        known = [one for one in self._pool.of(problem.key) if one.language == language]
        if draw.random() >= self._settings.contrast:
            return plain
        shown = exemplars(known, draw)
        if len(shown) < 2:
            return plain
        asked = question(problem.task, names, language, exemplars=shots(shown))
        return asked if size_of(asked) <= self._settings.shown else plain

    async def _judged(
        self,
        problems: Sequence[Problem],
        questions: Sequence[Question],
        groups: Sequence[Sequence[Sample]],
    ) -> Rollout:
        worth: list[Worth] = []
        for problem, group in zip(problems, groups, strict=True):
            texts = [sample.text for sample in group]
            worth += await self._judge.judged(
                problem.task, texts, eager_only=self._settings.eager_only
            )
        samples = tuple(sample for group in groups for sample in group)
        return Rollout(tuple(problems), tuple(questions), samples, tuple(worth))

    def _backward(self, samples: Sequence[Sample], weights: Sequence[float]) -> None:
        """Gradients of the answers, each weighed by its advantage."""
        import torch

        self._policy.model.train()
        used = [at for at, weight in enumerate(weights) if weight]
        lengths = [len(samples[at].prompt) + len(samples[at].answer) for at in used]
        divisor = self._settings.tokens * len(samples)
        for places in together(lengths, self._settings.micro):
            part = [used[place] for place in places]
            likely, mask = self._policy.log_likelihoods(
                [samples[at].prompt for at in part],
                [samples[at].answer for at in part],
                self._settings.temperature,
            )
            weight = torch.tensor([weights[at] for at in part], device=likely.device)
            # The ratio is 1; only its gradient counts, as there is one update for a batch.
            ratio = torch.exp(likely - likely.detach())
            loss = -(ratio * mask * weight[:, None]).sum() / divisor
            loss.backward()  # type: ignore[no-untyped-call]

    def _verified(self, rollout: Rollout, step: int) -> list[Attempt]:
        """The right answers of a step, as attempts."""
        group, found = self._settings.group, []
        for at, (sample, worth) in enumerate(zip(rollout.samples, rollout.worth, strict=True)):
            problem = rollout.problems[at // group]
            if worth.speedup is not None:
                found.append(
                    Attempt(
                        id=f"{problem.name}/step{step}.{at % group}",
                        task=problem.key,
                        family=problem.family,
                        contract="short",
                        language=self._judge.language,
                        question=rollout.questions[at // group],
                        answer=sample.text,
                        verdict=worth.verdict,
                        speedup=worth.speedup,
                        provenance=Provenance(source="sampled", run=self._policy.name),
                    )
                )
        return found

    def _told(
        self,
        step: int,
        rollout: Rollout,
        earned: Sequence[float],
        rate: float,
        norm: float,
        times: tuple[float, float, float],
    ) -> RlStep:
        group, count = self._settings.group, len(earned)
        groups = [earned[first : first + group] for first in range(0, count, group)]
        return RlStep(
            step=step + 1,
            of=self._settings.steps,
            reward=sum(earned) / count,
            correct=sum(worth.is_correct for worth in rollout.worth) / count,
            fast=sum((worth.speedup or 0.0) > 1.0 for worth in rollout.worth) / count,
            cheats=sum(worth.verdict in CHEATS for worth in rollout.worth),
            flat=sum(len(set(part)) == 1 for part in groups) / len(groups),
            contrasted=sum("measured" in asked[-1].content for asked in rollout.questions),
            length=sum(len(sample.answer) for sample in rollout.samples) / count,
            rate=rate,
            norm=norm,
            sampled_s=times[0],
            judged_s=times[1],
            updated_s=times[2],
        )
