"""Sessions that end because somebody outside has to act first, and go on when that was done."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.agents.coder.coder import CoderAnswer, CoderRequest, Failure
from kernelwright.agents.llm.manual import ManualClient
from kernelwright.agents.roles import AgentSet
from kernelwright.graphs.run_view.events import EVENT, Awaited, Event
from kernelwright.graphs.search.context import Circumstances
from kernelwright.graphs.search.judging import first_of
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Candidate, Message, Prompt, TracePolicy
from kernelwright.tools.types.run import Summary
from kernelwright.tools.types.value import AwaitingError

Search = Callable[..., Awaitable[Summary]]


class AskingCoder:
    """The toy's coder, which asks a person's leave for every idea before it writes."""

    def __init__(self, inner: object, client: ManualClient) -> None:
        self._inner = inner
        self._client = client

    async def write(self, request: CoderRequest) -> CoderAnswer:
        said = Message(author="person", text=f"May {request.idea.title} be tried?")
        await self._client.say(
            Prompt(key=f"coder:{request.idea.id}", role="coder", messages=(said,))
        )
        answer: CoderAnswer = await self._inner.write(request)  # type: ignore[attr-defined]
        return answer

    async def repair(self, request: CoderRequest, failure: Failure) -> CoderAnswer:
        return CoderAnswer(candidates=())


@pytest.fixture
def by_files(toy: ModuleType, tmp_path: Path) -> Callable[..., Awaitable[Summary]]:
    """A toy search, or its resume, whose coder asks through files in `asked`."""

    def agents(around: Circumstances) -> AgentSet:
        client = ManualClient(
            tmp_path / "asked",
            patience_s=around.patience_s,
            poll_s=0.02,
            grace_s=0.5,
            away=around.archive.waiting,
        )
        of = toy.toy_agents(toy.LOOPS)
        return AgentSet.of_search(of.planner, AskingCoder(of.coder, client), of.profiler, of.critic)

    async def run(resumed: str = "", *, patience_s: float = 0.0, **told: object) -> Summary:
        terms = {
            "home": tmp_path, "executor": toy.ToyExecutor(), "make_agents": agents,
            "patience_s": patience_s, **told,
        }  # fmt: skip
        if resumed:
            summary = await resume_search(resumed, **terms)
        else:
            profile = toy.PROFILE.model_copy(update={"rounds": 2})
            summary = await start_search(Path("toy.py"), TracePolicy(), "cpu", profile, **terms)
        assert isinstance(summary, Summary)
        return summary

    return run


def open_prompts(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*.prompt.md"))
    return [path for path in found if not answer_of(path).exists()]


def answer_of(prompt: Path) -> Path:
    return prompt.with_name(prompt.name.replace(".prompt.md", ".answer.md"))


async def test_a_run_without_its_answers_waits_and_goes_on_with_them(
    by_files: Search, tmp_path: Path
) -> None:
    events: list[Event] = []
    summary = await by_files(listener=events.append)
    assert summary.status == "waiting"
    assert isinstance(events[-1], Awaited)
    asked = open_prompts(tmp_path / "asked")
    assert len(asked) == 2  # every writer of the round has asked
    assert [Path(path) for path in events[-1].paths] == [answer_of(path) for path in asked]
    sessions = 1
    while summary.status == "waiting":
        for path in open_prompts(tmp_path / "asked"):
            answer_of(path).write_text("yes\n")
        summary = await by_files(summary.run)
        sessions += 1
    assert summary.status == "improved"
    assert sessions == 3
    stored = [EVENT.validate_json(e.payload) for e in Archive.open(summary.run, tmp_path).events()]
    assert sum(isinstance(event, Awaited) for event in stored) == 2


async def test_a_resume_that_changed_nothing_waits_again(by_files: Search, tmp_path: Path) -> None:
    first = await by_files()
    asked = open_prompts(tmp_path / "asked")
    again = await by_files(first.run)
    assert again.status == "waiting"
    assert again.stopped_because == first.stopped_because
    assert open_prompts(tmp_path / "asked") == asked


async def test_one_of_two_answers_is_kept_while_the_other_is_awaited(
    by_files: Search, tmp_path: Path
) -> None:
    summary = await by_files()
    first, second = open_prompts(tmp_path / "asked")
    answer_of(first).write_text("yes")
    summary = await by_files(summary.run)
    assert summary.status == "waiting"
    assert [path.name for path in open_prompts(tmp_path / "asked")] == [second.name]
    assert str(answer_of(second)) in summary.stopped_because


async def test_answers_that_come_while_the_run_waits_let_it_go_on_at_once(
    by_files: Search, tmp_path: Path
) -> None:
    async def person() -> None:
        while True:
            for path in open_prompts(tmp_path / "asked"):
                answer_of(path).write_text("yes")
            await asyncio.sleep(0.05)

    answering = asyncio.ensure_future(person())
    summary = await by_files(patience_s=60.0)
    answering.cancel()
    assert summary.status == "improved"


@pytest.mark.parametrize("effort", ["screen", "precise", "certify"])
async def test_a_judge_that_is_awaited_ends_the_session_and_nothing_is_lost(
    search: Search, resume: Search, toy: ModuleType, effort: str
) -> None:
    def far(candidate: Candidate, asked: str) -> None:
        if asked == effort:
            raise AwaitingError("take the bundle to the other host", (Path("bundle"),))

    summary = await search(executor=toy.ToyExecutor(wrong=far))
    assert summary.status == "waiting"
    assert summary.stopped_because == "take the bundle to the other host"
    assert (await resume(summary.run)).status == "improved"


def test_what_is_broken_is_said_before_somebody_is_waited_for() -> None:
    broken, awaited = RuntimeError("we are broken"), AwaitingError("an answer")
    assert first_of(ExceptionGroup("", [awaited, ExceptionGroup("", [broken])])) is broken
    assert first_of(ExceptionGroup("", [awaited, AwaitingError("another")])) is awaited
