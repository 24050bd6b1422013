"""A search that ends with nothing right says why in its own lines: each kind of failure once."""

import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

from rich.console import Console

from kernelwright.graphs.conversation import Told
from kernelwright.graphs.run_view import story as stories
from kernelwright.graphs.run_view.events import Event, Noted, RunFinished
from kernelwright.graphs.run_view.failures import failure_lines
from kernelwright.tools.codegen.library.plan_check import PlanError
from kernelwright.tools.types import Candidate, Effort, Evaluation, Task, Verdict, Verification
from kernelwright.tools.types.run import Summary
from kernelwright.ui.chat.messages.progress import result
from kernelwright.ui.report.page import render
from kernelwright.ui.terminal.cards import show
from kernelwright.ui.terminal.progress import PlainProgress
from kernelwright.ui.terminal.trace import trace

Search = Callable[..., Awaitable[Summary]]
WRONG = (
    "output 0 on heavy_tail inputs: 12 of 4096 elements (0.293 %) are wrong; at [3, 7]: got 1.5, "
    "expected 2.5; error 0.1 in the norm and 1 at the worst element, PyTorch's own 1e-07 and 2e-07 "
    "(9e+05x, allowed 4x)"
)
LOG = "kernel.cpp:7:3: error: 'y' was not declared in this scope\n    7 |   y[i] = 1;\n"


def failing(toy: ModuleType) -> object:
    """A judge before whom nothing is right, in three ways that take turns."""

    class Failing(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
            await super().evaluate(task, candidate, effort)
            number = sum(what not in ("eager", "compile") for what, _ in self.asked)
            kinds = (
                (Verdict.WRONG_RESULT, WRONG, ""),
                (Verdict.COMPILE_ERROR, "g++ refused it", LOG),
                (Verdict.TIMED_OUT, "it did not come back within 8 s", ""),
            )
            verdict, reason, log = kinds[number % 3]
            found = Verification(verdict=verdict, reason=reason)
            return Evaluation(candidate=candidate.id, verification=found, compiler_log=log)

    return Failing()


def printed(printer: Callable[..., None], story: stories.Story) -> str:
    console = Console(file=io.StringIO(), width=2000, highlight=False)
    printer(story, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


async def test_log_trace_show_chat_and_report_name_each_kind_with_its_first_reason(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    events: list[Event] = []
    summary = await search(executor=failing(toy), events=events, rounds=2, repairs=0)
    assert summary.status == "nothing_correct"
    story = stories.load(summary.run, tmp_path)
    lines = failure_lines(story.view)
    assert len(lines) == 3
    log = io.StringIO()
    with PlainProgress(log) as progress:
        for event in events:
            progress.show(event)
    ended = events[-1]
    assert isinstance(ended, RunFinished)
    card = result(Told(run=summary.run, seq=1, event=ended), story.view)
    assert card is not None
    places = {
        "log": log.getvalue(),
        "trace": printed(trace, story),
        "show": printed(show, story),
        "chat": card.words,
        "report": render(story),
    }
    for place, words in places.items():
        for part in ("wrong result, ", "heavy_tail inputs", "allowed 4x", "compile error, ",
                     "was not declared in this scope", "timed out, ", "within 8 s"):  # fmt: skip
            plain = words.replace("&#39;", "'").replace("\\_", "_")
            assert part in plain, (place, part)
    assert sum(isinstance(event, Noted) and "first v" in event.words for event in events) >= 1


async def test_where_one_is_right_no_failure_is_told(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    events: list[Event] = []
    first: list[str] = []

    def wrong(candidate: Candidate, effort: Effort) -> Verdict | None:
        first.append(candidate.id)
        return Verdict.WRONG_RESULT if candidate.id == first[0] else None

    summary = await search(executor=toy.ToyExecutor(wrong=wrong), events=events)
    assert summary.best is not None
    assert failure_lines(stories.load(summary.run, tmp_path).view) == ()
    assert not [e for e in events if isinstance(e, Noted) and "wrong result" in e.words]


async def test_what_could_not_be_written_is_told_too(
    search: Search, toy: ModuleType, tmp_path: Path, monkeypatch: object
) -> None:
    def draft(self: object, choices: object) -> None:
        raise PlanError("the plan cannot be assembled: in forward, `y = empty(3)` names y twice")

    monkeypatch.setattr(toy.ToyRepertoire, "draft", draft)  # type: ignore[attr-defined]
    summary = await search(rounds=1)
    assert summary.best is None
    story = stories.load(summary.run, tmp_path)
    (line,) = failure_lines(story.view)
    assert "could not be written: the plan cannot be assembled: in forward" in line
    assert "names y twice" in printed(show, story)
