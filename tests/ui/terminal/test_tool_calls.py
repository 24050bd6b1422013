"""A call of a tool is a step that a person can open: in the terminal, the chat, and the report."""

from kernelwright.graphs.run_view import RunView
from kernelwright.graphs.run_view.events import ToolCalled
from kernelwright.graphs.run_view.folding import fold
from kernelwright.tools.types import ToolRun
from kernelwright.ui.chat.messages import roles
from kernelwright.ui.terminal.output import called_lines, called_words

RUN = ToolRun(
    key="coder:r1i1:0#2", role="coder", tool="check", arguments='{"kernel": "k"}',
    result="`draft-1` is right.\n<b>second</b> line", seconds=1.5, round=1,
)  # fmt: skip


def test_a_call_is_told_with_what_came_back() -> None:
    event = ToolCalled(round=1, run=RUN)
    assert called_words(event).startswith("called check (coder:r1i1:0#2, 1.5 s): `draft-1` is")
    assert called_lines(event) == ['with {"kernel": "k"}', "<b>second</b> line"]
    failed = event.model_copy(update={"run": RUN.model_copy(update={"failed": True})})
    assert called_words(failed).startswith("called in vain check")


def test_a_call_is_a_step_of_the_chat() -> None:
    line = roles.called("called:1", ToolCalled(round=1, run=RUN))
    assert line.name.startswith("Coder: check, ")
    assert '```json\n{"kernel": "k"}\n```' in line.words
    assert "```\n`draft-1` is right.\n<b>second</b> line\n```" in line.words
    assert not line.failed


def test_the_view_says_who_looks_something_up() -> None:
    assert fold(RunView(), ToolCalled(round=1, run=RUN)).stage == "the coder calls check"
