"""What models were asked: in trace, cards, report, progress and by `prompts`."""

import io

import pytest
from rich.console import Console

from kernelwright.graphs.run_view import story as stories
from kernelwright.graphs.run_view.events import ModelCalled, Profiled, StrategyEvolved
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Call, Message, Prompt, Reply, StrategyVersion
from kernelwright.tools.types.run import TokenCounts
from kernelwright.ui.cli.app import run as command
from kernelwright.ui.report import render
from kernelwright.ui.terminal.cards import show
from kernelwright.ui.terminal.output import by_role, spending
from kernelwright.ui.terminal.progress import PlainProgress
from kernelwright.ui.terminal.trace import trace

THOUGHT = "the rows fit into shared memory, so " * 20
HOSTILE = "```\x1b[31m<script>alert(1)</script>"
FIRST = StrategyVersion(id="planner:0", role="planner", text="read once\nwrite wide")
SECOND = StrategyVersion(
    id="planner:1", role="planner", text="read once\nkeep rows in registers",
    parent="planner:0", round=1, why="wide writes brought nothing",
)  # fmt: skip


def call(key, role, *, text="an answer", failure="", usd=0.25):
    messages = (
        Message(author="system", text="You plan."),
        Message(author="person", text=f"The task is {key}."),
    )
    prompt = Prompt(key=key, role=role, messages=messages, round=1)
    tokens = TokenCounts(input=6000, output=1500)
    reply = Reply(
        text=text, reasoning=THOUGHT, model="a-model", tokens=tokens, usd=usd, seconds=3.5,
        attempts=2,
    )  # fmt: skip
    return Call(prompt=prompt, reply=None if failure else reply, failure=failure)


def called(of):
    reply = of.reply or Reply(text="")
    return ModelCalled(
        round=1, key=of.prompt.key, role=of.prompt.role, model="a-model", tokens=reply.tokens,
        usd=reply.usd, seconds=reply.seconds, attempts=reply.attempts, reasoning=reply.reasoning,
        failure=of.failure,
    )  # fmt: skip


CALLS = (
    call("planner:1", "planner"),
    call("coder:r1i1:0", "coder", text=HOSTILE),
    call("coder:r1i2:0", "coder", failure="the server said 503"),
)


@pytest.fixture
def talked(run, home):
    """A finished run in which models were asked."""
    archive = Archive.open(run, home)
    for item in CALLS:
        archive.record_call(item)
        event = called(item)
        archive.append_event(event.kind, 1, event.model_dump_json())
    for version in (FIRST, SECOND):
        archive.record_strategy(version)
    evolved = StrategyEvolved(round=1, version=SECOND, before=FIRST.text)
    archive.append_event(evolved.kind, 1, evolved.model_dump_json())
    best = archive.best().candidate.id
    told = Profiled(
        round=1, candidate=best, evidence=(), symptoms=(), explanation="bandwidth bounds it"
    )
    archive.append_event(told.kind, 1, told.model_dump_json())
    archive.close()
    return run


def text_of(printer, story):
    console = Console(file=io.StringIO(), width=160, highlight=False)
    printer(story, console)
    return console.file.getvalue()


def test_what_lost_answers_cost_is_counted_and_unknown_prices_are_not_zero():
    lost = CALLS[2].model_copy(update={"lost": TokenCounts(input=10, output=5), "lost_usd": 0.5})
    found = spending((CALLS[0], lost))
    assert (found.calls, found.failed, found.usd) == (2, 1, 0.75)
    assert found.tokens == TokenCounts(input=6010, output=1505)
    assert spending((call("k", "planner", usd=None),)).usd is None
    assert [item.role for item in by_role(CALLS)] == ["planner", "coder"]


def test_trace_shows_questions_costs_thoughts_and_changed_prompts(talked, home):
    said = text_of(trace, stories.load(talked, home))
    for words in (
        "asked a-model (planner:1): 6 k tokens in, 1.5 k out, 3.5 s, $0.2500, 2 requests",
        "thought: the rows fit into shared memory",
        "kernelwright prompts RUN planner:1",
        "had no answer from a-model (coder:r1i2:0)",
        "because the server said 503",
        "the planner goes on under planner:1, other advice than before",
        "-write wide",
        "+keep rows in registers",
        "why: wide writes brought nothing",
        "says: bandwidth bounds it",
        "predicted in round 1: candidates with LANES=16 have a median below 7.1 ms - held",
    ):
        assert words in said, said
    assert said.count("the rows fit into shared memory") < 20


def test_cards_say_what_each_role_asked(talked, home):
    said = text_of(show, stories.load(talked, home))
    assert "3 questions, 12 k tokens in, 3 k out, $0.5000" in said
    assert "1 without an answer" in said
    assert "1 of 1 checked prediction held" in said


def test_a_run_of_the_playbook_says_nothing_of_models(run, home):
    story = stories.load(run, home)
    assert "questions" not in text_of(show, story)
    assert "What models were asked" not in render(story)


def test_the_report_holds_answers_thoughts_and_prompts_and_stays_harmless(talked, home):
    page = render(stories.load(talked, home))
    for words in ("What models were asked", "How the prompts evolved", "+keep rows in registers"):
        assert words in page
    assert THOUGHT.strip() in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "\x1b" not in page


def test_prompts_lists_questions_and_shows_one_in_full(talked, home, capsys):
    assert command(["prompts", talked, "--run-dir", str(home)]) == 0
    listed = capsys.readouterr().out
    for words in (
        "planner:1",
        "coder:r1i2:0",
        "no answer: the server said 503",
        "all: 3 questions",
    ):
        assert words in listed
    assert command(["prompts", talked, "coder:r1i1:0", "--run-dir", str(home)]) == 0
    full = capsys.readouterr().out
    for words in (
        "[system]",
        "You plan.",
        "The task is coder:r1i1:0.",
        THOUGHT.strip(),
        "<script>",
    ):
        assert words in full
    assert "\x1b[31m" not in full


def test_an_unknown_question_is_one_sentence(talked, home, capsys):
    assert command(["prompts", talked, "planner:9", "--run-dir", str(home)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_progress_counts_questions_tokens_and_money():
    stream = io.StringIO()
    with PlainProgress(stream) as progress:
        for item in CALLS:
            progress.show(called(item))
    view = progress.view
    assert (view.questions, view.tokens.input, view.usd) == (3, 12000, 0.5)
    assert "coder had no answer from a-model (coder:r1i2:0)" in stream.getvalue()
    assert "the server said 503" in stream.getvalue()
