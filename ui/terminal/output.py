"""Where results go (stdout, a file, remarks to stderr), and questions to models in words.

What a model was asked, what it cost and what it thought are said in one way for trace, cards and
report. A call in full is shown by `ui.cli.data.runs`.
"""

import difflib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel
from rich.console import Console

from kernelwright.graphs.run_view.events import (
    ModelCalled,
    StrategyEvolved,
    ToolCalled,
    count,
    dollars,
    milliseconds,
    one_line,
    plain,
    seconds,
    tokens,
)
from kernelwright.graphs.run_view.story import Story
from kernelwright.tools.types import Analysis, Call, Prediction, Reply
from kernelwright.tools.types.run import TokenCounts
from kernelwright.tools.whole_files import write_whole
from kernelwright.ui.complaints import Complaint, writable_file

STDOUT = "-"


def console() -> Console:
    """The terminal for results; wide enough for tables when it is none."""
    return _console(error=False)


def remarks() -> Console:
    """The terminal for everything that is no result."""
    return _console(error=True)


def _console(*, error: bool) -> Console:
    stream = sys.stderr if error else sys.stdout
    width = None if stream.isatty() else 120
    # In a notebook a console would leave its stream alone, and display.
    return Console(file=stream, width=width, highlight=False, soft_wrap=False, force_jupyter=False)


def check_json(target: str | None) -> None:
    """Say before any work is done that JSON could not be written there."""
    if target not in (None, STDOUT):
        writable_file(Path(str(target)))


def write_json(value: BaseModel, target: str) -> None:
    """Write a value as JSON; Complaint when that is impossible after all."""
    text = value.model_dump_json(indent=2) + "\n"
    if target == STDOUT:
        sys.stdout.write(text)
        return
    try:
        write_whole(Path(target), text)
    except OSError as error:
        raise Complaint(f"cannot write {target}: {error.strerror}") from None


# Of a model's reasoning, this much stands in a trace; `prompts` shows all of it.
REASONING = 240
# Of what a tool answered, this much is shown; its event holds the rest.
CALLED = 1_200


@dataclass(frozen=True)
class Spending:
    """What the questions of one role came to; `usd` is None where no price is known."""

    role: str
    calls: int
    failed: int
    tokens: TokenCounts
    usd: float | None
    seconds: float

    @property
    def words(self) -> str:
        """All of it in a line."""
        parts = [count(self.calls, "question"), tokens(self.tokens)]
        parts += [dollars(self.usd)] if self.usd is not None else []
        parts += [f"{seconds(self.seconds)} of waiting"]
        parts += [f"{self.failed} without an answer"] if self.failed else []
        return ", ".join(parts)


def spending(calls: Iterable[Call], role: str = "") -> Spending:
    """What calls came to, those of a role or all; lost answers are paid for as well."""
    of = [call for call in calls if not role or call.prompt.role == role]
    replies = [call.reply for call in of if call.reply is not None]
    known = [*(reply.usd for reply in replies), *(call.lost_usd for call in of)]
    priced = [usd for usd in known if usd is not None]
    counts = [*(reply.tokens for reply in replies), *(call.lost for call in of)]
    return Spending(
        role=role,
        calls=len(of),
        failed=len(of) - len(replies),
        tokens=TokenCounts(
            input=sum(item.input for item in counts), output=sum(item.output for item in counts)
        ),
        usd=sum(priced) if priced else None,
        seconds=sum(reply.seconds for reply in replies),
    )


def by_role(calls: tuple[Call, ...]) -> list[Spending]:
    """A line for each role that asked anything, in the order they first asked."""
    roles = dict.fromkeys(call.prompt.role for call in calls)
    return [spending(calls, role) for role in roles]


def asked_words(event: ModelCalled) -> str:
    """A question in a line: who answered, how much, how long, how dear."""
    cost = [tokens(event.tokens), seconds(event.seconds)]
    cost += [dollars(event.usd)] if event.usd is not None else []
    cost += [f"{event.attempts} requests"] if event.attempts > 1 else []
    verb = "asked" if not event.failure else "had no answer from"
    return f"{verb} {one_line(event.model or 'the model', 60)} ({event.key}): {', '.join(cost)}"


def asked_lines(event: ModelCalled) -> list[str]:
    """Why there is no answer, and the beginning of what the model thought."""
    lines = [f"because {one_line(event.failure, 300)}"] if event.failure else []
    thought = " ".join(event.reasoning.split())
    if thought:
        rest = len(thought) - REASONING
        more = f" [{rest} more characters: kernelwright prompts RUN {event.key}]"
        lines.append(f"thought: {one_line(thought, REASONING)}{more if rest > 0 else ''}")
    return lines


def called_words(event: ToolCalled) -> str:
    """A call of a tool in a line: which, how long, and the beginning of what came back."""
    run = event.run
    verb = "called" if not run.failed else "called in vain"
    told = one_line(run.result, 120)
    return f"{verb} {one_line(run.tool, 60)} ({run.key}, {seconds(run.seconds)}): {told}"


def called_lines(event: ToolCalled) -> list[str]:
    """With what it was called, and what came back, shortened."""
    given = one_line(event.run.arguments, 300)
    told = plain(event.run.result, CALLED).splitlines()
    return [*([f"with {given}"] if given not in ("", "{}") else []), *told[1:]]


def evolved_words(event: StrategyEvolved) -> str:
    """Which version of a prompt speaks from now on."""
    version = event.version
    told = "other advice than before" if event.before else "advice of its own"
    return f"the {version.role} goes on under {version.id}, {told}"


def evolved_lines(event: StrategyEvolved, story: Story) -> list[str]:
    """Why, and what changed in the words."""
    why = [f"why: {one_line(event.version.why, 400)}"] if event.version.why else []
    parent = story.strategy(event.version.parent)
    before = event.before or (parent.text if parent else "")
    return why + list(changes(before, event.version.text))


def changes(before: str, after: str) -> Iterator[str]:
    """Lines that went and lines that came."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    for line in lines:
        if line[:3] not in {"---", "+++"} and line[:2] != "@@":
            yield line


def prediction_words(item: Prediction) -> str:
    """A prediction, or how it turned out."""
    words = one_line(item.words, 240)
    if item.held is None and item.measured_ms is None:
        return f"predicts: {words}"
    outcome = "undecided, within the noise" if item.held is None else "failed"
    outcome = "held" if item.held else outcome
    return f"predicted in round {item.made_in_round}: {words} - {outcome}{measured_words(item)}"


def record_words(analysis: Analysis, noun: str = "") -> str:
    """How the critic's predictions fared so far; "" where none was answered."""
    held, checked = analysis.predictions_held, analysis.predictions_checked
    of = count(checked, noun) if noun else str(checked)
    parts = [f"{held} of {of} held"] if checked else []
    if undecided := analysis.predictions_undecided:
        parts.append(f"{undecided} undecided, within the noise")
    parts += [analysis.advice.words] if analysis.advice is not None else []
    return ", ".join(parts)


def measured_words(item: Prediction) -> str:
    """What was measured of a prediction."""
    parts = [milliseconds(item.measured_ms)] if item.measured_ms is not None else []
    if item.metric and item.metric_measured is not None:
        parts.append(f"{item.metric} {item.metric_measured:.4g}")
    return f", measured {' and '.join(parts)}" if parts else ""


def answered_by(call: Call) -> str:
    """Who answered a call, and what it took; why nobody did."""
    if call.reply is None:
        return f"no answer: {one_line(call.failure, 200)}"
    return reply_words(call.reply)


def reply_words(reply: Reply) -> str:
    """Model, tokens, seconds and money of a reply."""
    parts = [one_line(reply.model or "a model", 60), tokens(reply.tokens), seconds(reply.seconds)]
    parts += [dollars(reply.usd)] if reply.usd is not None else []
    parts += [f"{reply.attempts} requests"] if reply.attempts > 1 else []
    parts += [f"ended by {reply.finish}"] if reply.finish not in {"", "stop"} else []
    return ", ".join(parts)
