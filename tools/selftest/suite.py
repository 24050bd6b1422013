"""Judges evils and twins, one case after another, with the judge of this machine.

A twin that several cases share is judged once. Timing is short: what is proved here is what the
judge lets pass, not how fast anything is. What the suite found on one machine is a value, and a
table for the docs.

An evil may try to reach things outside of every wall: a file, and somebody who listens. Both are
made here, and texts of evils name them by placeholders. A wall hides both or refuses them; where
there is none an evil that needs them is right, and the table says so.
"""

import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernelwright.tools.evaluate.executors.local.baselines import STANDARD
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.messages import Foreign
from kernelwright.tools.evaluate.rules import CERTIFY, Rules
from kernelwright.tools.selftest.catalogue import (
    Case,
    CaseFinding,
    Device,
    Outcome,
    Row,
    base,
    cases,
    evil_of,
    twin_of,
)
from kernelwright.tools.types import (
    Baseline,
    Baselines,
    Candidate,
    Effort,
    Evaluation,
    Isolation,
    Refusal,
    Task,
    TracePolicy,
    Value,
)

_PORT, _FILE = "OUTSIDE_PORT", "OUTSIDE_FILE"


@contextmanager
def reachable(made: Foreign) -> Iterator[Foreign]:
    """The file with the placeholders filled in, and what they name as long as this lasts."""
    if _PORT not in made.source and _FILE not in made.source:
        yield made
        return
    with (
        tempfile.TemporaryDirectory(prefix="kernelwright-outside-") as folder,
        socket.create_server(("127.0.0.1", 0), backlog=64) as listener,
    ):
        file = Path(folder) / "kept.txt"
        file.write_text("nothing yet\n", encoding="utf-8")
        port = str(listener.getsockname()[1])
        source = made.source.replace(_PORT, port).replace(_FILE, str(file))
        yield made.model_copy(update={"source": source})


class Report(Value):
    """Every outcome, with the device and the day."""

    device: str
    isolation: Isolation
    date: str
    holds: bool
    outcomes: tuple[Outcome, ...]

    @property
    def words(self) -> str:
        """How it went, in a sentence."""
        caught = sum(outcome.caught for outcome in self.outcomes)
        accepted = sum(outcome.twin_accepted for outcome in self.outcomes)
        total = len(self.outcomes)
        return f"{caught} of {total} cheats found out, {accepted} of {total} honest twins accepted"


def markdown_table(report: Report) -> str:
    """The report as Markdown."""
    lines = [
        f"{report.device}, {report.date}, {report.isolation}: {report.words}.",
        "",
        "| # | what the evil does | as | verdict | its honest twin |",
        "|---|---|---|---|---|",
    ]
    for outcome in report.outcomes:
        found = outcome.evil.verdict.words
        if found == "correct" and outcome.caught:
            found = f"labelled: {outcome.words[0]}"
        caught = found if outcome.caught else f"**not found out** ({found})"
        twin = "correct" if outcome.twin_accepted else f"**{outcome.twin.verdict.value}**"
        lines.append(f"| {outcome.row} | {outcome.case} | {outcome.kind} | {caught} | {twin} |")
    return "\n".join(lines) + "\n"


RULES = Rules(
    candidate_s=30.0,
    screen_s=0.03,
    screen_samples_min=6,
    screen_samples_max=12,
    precise_s=0.1,
    certify_s=0.3,
    mode_s=0.05,
    pairs_max=24,
    warm_up_s=0.0,
    cold_warm_up_s=0.05,
    compile_ahead=False,
)


class Suite:
    """The catalogue on one device.

    Args:
        executor: judges; its owner closes it.
        device: what it judges on.
    """

    def __init__(self, executor: LocalExecutor, device: Device) -> None:
        self._executor = executor
        self._device = device
        self._tasks: dict[str, Task] = {}
        self._twins: dict[str, CaseFinding] = {}

    async def run(self, rows: Sequence[int] = (), kind: str = "") -> AsyncIterator[Outcome]:
        """Every case of these rows and this kind (of all, when none is named), as each is done."""
        for row, case in cases(self._device, rows):
            if kind in ("", case.kind):
                yield await self.case(row, case)

    async def case(self, row: Row, case: Case) -> Outcome:
        """Judge one evil and its twin."""
        evil = await self.evil(case)
        return Outcome(
            row=row.row,
            cheat=row.cheat,
            case=case.name,
            kind=case.kind,
            device=self._device,
            expected=case.verdicts,
            words=case.words,
            evil=evil,
            twin=await self.twin(case),
        )

    async def evil(self, case: Case) -> CaseFinding:
        """Judge the evil of a case, until it is found out or its tries are used up."""
        made = evil_of(case, self._device)
        found = await self._find(case.base, made, case)
        for _ in range(1, case.tries):
            if found.verdict in case.verdicts:
                break
            found = await self._find(case.base, made, case)
        return found

    async def twin(self, case: Case) -> CaseFinding:
        """Judge the twin of a case, once however many cases share it."""
        made = twin_of(case, self._device)
        text = made.source if isinstance(made, Foreign) else made.id
        key = f"{case.timed} {case.certified} {text}"
        if key not in self._twins:
            task = case.twin_base or case.base
            self._twins[key] = await self._find(task, made, case)
        return self._twins[key]

    async def _find(self, task: str, made: Candidate | Foreign, case: Case) -> CaseFinding:
        traced = await self.task(task)
        start = time.perf_counter()
        if isinstance(made, Foreign):
            against = ("eager",) if case.timed else ()
            with reachable(made) as filled:
                found = await self._executor.check_foreign(traced, filled, against=against)
        else:
            if case.certified:
                await self._beside_eager_alone(traced)
            effort: Effort = "certify" if case.certified else "screen"
            found = await self._executor.evaluate(traced, made, effort)
        return CaseFinding(
            verdict=found.verdict, said=_said(found), seconds=time.perf_counter() - start
        )

    async def _beside_eager_alone(self, task: Task) -> None:
        """No compiler's baseline: what it takes shows nothing here."""
        known = await self._executor.baselines(task, eager_only=True)
        if isinstance(known, Refusal):
            raise RuntimeError(f"the suite's own task does not run: {known.sentence}")
        every = (*STANDARD[self._device], *CERTIFY[self._device])
        others = [name for name in every if known.named(name) is None]
        left_out = tuple(Baseline(name=name, failure="left out") for name in others)
        self._executor.remember(task, Baselines(items=(*known.items, *left_out)))

    async def task(self, name: str) -> Task:
        """The task of a base, traced once."""
        if name not in self._tasks:
            with tempfile.TemporaryDirectory(prefix="kernelwright-selftest-") as folder:
                path = Path(folder) / f"{name}.py"
                path.write_text(base(name).task, encoding="utf-8")
                found = await self._executor.trace(path, TracePolicy(device=self._device))
            if isinstance(found, Refusal):
                raise RuntimeError(f"the suite's own task {name} is refused: {found.sentence}")
            self._tasks[name] = found
        return self._tasks[name]


def _said(found: Evaluation) -> str:
    checked = found.verification
    labels = f"method: {checked.method}; precision: {checked.precision}; shapes: {checked.shapes}"
    return "\n".join((checked.reason, labels, *checked.not_verified))
