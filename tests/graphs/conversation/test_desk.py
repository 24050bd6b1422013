"""A desk answers every wish, on an empty table, before a search and after one."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kernelwright.agents.assistant.types import (
    AskDoctor,
    AskForHelp,
    AuditTask,
    CancelTask,
    ChangeTask,
    ChatReply,
    Code,
    Command,
    CompareCandidates,
    ContinueSearch,
    Download,
    ExplainCandidate,
    ExplainRound,
    ExportResult,
    GetReport,
    ListRuns,
    LoadTask,
    PauseSearch,
    ReopenRun,
    ShowCode,
    ShowLedger,
    ShowProfile,
    ShowProgress,
    ShowSteering,
    StartSearch,
    Steer,
    StopSearch,
    Table,
    Unclear,
)
from kernelwright.graphs.conversation import ChatController, Finding, SearchManager, Settings
from kernelwright.tools.types import Refusal

Begin = Callable[..., Awaitable[None]]
Held = Callable[..., Awaitable[tuple[SearchManager, ChatController, threading.Event]]]

EVERY: tuple[Command, ...] = (
    AskDoctor(), AskForHelp(), AuditTask(), CancelTask(), ChangeTask(), CompareCandidates(),
    ExplainCandidate(), ExplainCandidate(candidate="v1"), ExplainCandidate(candidate="v999"),
    ExplainCandidate(candidate="zz"), ExplainRound(), ExplainRound(round=77), ExportResult(),
    GetReport(), ListRuns(), LoadTask(source=""), LoadTask(source="x" * 500_000), PauseSearch(),
    ReopenRun(run="nothing"), ReopenRun(run=""), ShowCode(), ShowLedger(), ShowProfile(),
    ShowProgress(), ShowSteering(), Steer(hints=("wide loads",)), Steer(pins=("idea 99",)),
    StopSearch(), Unclear(), Unclear(guesses=(ShowCode(), Steer(bans=("x",)))),
)  # fmt: skip


def texts(saying: ChatReply) -> str:
    cells = [
        cell
        for piece in saying.pieces
        if isinstance(piece, Table)
        for row in piece.rows
        for cell in row
    ]
    return "\n".join((saying.text, *cells))


@pytest.mark.parametrize("wish", EVERY, ids=lambda wish: wish.kind)
async def test_an_empty_desk_answers_every_wish(desk: ChatController, wish: Command) -> None:
    saying = await desk.do(wish)
    assert saying.pieces


async def test_a_desk_with_a_finished_run_answers_every_wish(
    desk: ChatController, begin: Begin, rest: Begin
) -> None:
    await begin(desk)
    await rest(desk)
    for wish in EVERY:
        saying = await desk.do(wish)
        assert saying.pieces, wish.kind


async def test_a_card_has_figures_and_asks_one_question(desk: ChatController) -> None:
    saying = await desk.do(LoadTask(source="x = 1", name="soft max (2).py"))
    assert saying.question
    wishes = [offer.wish for offer in saying.offers]
    assert {wish.kind for wish in wishes} >= {"start_search", "change_task", "cancel_task"}
    said = texts(saying)
    assert "2.500 ms" in said
    assert "400 µs" in said  # the floor
    assert "no tokens" in said
    assert desk.task is not None
    assert desk.task.break_even_calls is not None


async def test_a_gpu_that_is_not_here_is_named_with_what_is_possible(desk: ChatController) -> None:
    said = (await desk.do(LoadTask(source="x = 1", gpu="L40S"))).text
    assert "NVIDIA L40S" in said
    assert "Toy" in said
    assert "batch" in said


async def test_a_gpu_that_nobody_knows_is_no_error(desk: ChatController) -> None:
    said = (await desk.do(LoadTask(source="x = 1", gpu="<b>Z9000</b>"))).text
    assert "no device called" in said
    assert "<b>" not in said


async def test_a_task_can_be_put_away(desk: ChatController) -> None:
    await desk.do(LoadTask(source="x = 1"))
    await desk.do(CancelTask())
    assert desk.task is None
    assert "no task" in (await desk.do(StartSearch())).text


async def test_a_second_search_waits_until_the_first_is_stopped(held: Held, rest: Begin) -> None:
    lives, desk, free = await held()
    first = desk.run
    await desk.do(LoadTask(source="y = 2"))
    assert desk.run == first
    assert "running already" in (await desk.do(StartSearch())).text
    await desk.do(StopSearch())
    free.set()
    await rest(desk)
    await desk.do(StartSearch())
    assert desk.run != first
    await lives.aclose()


async def test_questions_are_answered_while_a_search_runs(held: Held) -> None:
    lives, desk, _ = await held()
    said = (await desk.do(ShowProgress())).text
    assert "is running" in said
    turn = desk.turn("why is v1 so slow?")
    assert turn.running
    assert turn.candidates
    assert turn.ideas
    await lives.aclose()


async def test_another_desk_of_the_thread_finds_what_was_left(
    desk: ChatController, begin: Begin, rest: Begin, make_lives: Callable[..., SearchManager]
) -> None:
    await begin(desk)
    await rest(desk)
    restarted = make_lives()
    again = ChatController(restarted.home, restarted, "ann", "one")
    assert again.run == desk.run
    assert again.task == desk.task
    assert "has finished" in (await again.do(ShowProgress())).text
    await restarted.aclose()


async def test_threads_and_people_do_not_meet(
    desk: ChatController, lives: SearchManager, begin: Begin, rest: Begin
) -> None:
    await begin(desk)
    await rest(desk)
    other = ChatController(lives.home, lives, "ann", "two")
    assert other.run == ""
    await other.do(ReopenRun(run=desk.run))
    assert other.run == desk.run
    stranger = ChatController(lives.home, lives, "bob", "one")
    for wish in (ReopenRun(run=desk.run), ReopenRun(run="toy"), ListRuns(), ShowProgress()):
        said = texts(await stranger.do(wish))
        assert desk.run not in said
        assert "forbidden" not in said
    assert stranger.run == ""


@pytest.mark.parametrize("person", ["../ann", "ann/../..", "", "Ann", "ann.", "a" * 500, "\x00"])
async def test_no_name_leads_to_anothers_folder(
    lives: SearchManager, desk: ChatController, person: str
) -> None:
    stranger = ChatController(lives.home, lives, person, "../one")
    assert stranger.home != desk.home
    assert stranger.home.parent == lives.home / "people"
    assert (await stranger.do(LoadTask(source="x = 1", name="../../etc/passwd"))).pieces


async def test_why_one_is_faster_comes_with_the_difference_of_the_sources(
    desk: ChatController, begin: Begin, rest: Begin
) -> None:
    await begin(desk)
    await rest(desk)
    saying = await desk.do(CompareCandidates(one="v1", other="v2"))
    assert "times as fast as" in saying.text or "same time" in saying.text
    code = [piece for piece in saying.pieces if isinstance(piece, Code)]
    assert [piece.language for piece in code] == ["diff"]


async def test_numbers_of_candidates_are_those_of_writing(
    desk: ChatController, begin: Begin, rest: Begin
) -> None:
    await begin(desk)
    await rest(desk)
    third = desk.turn("").candidates[2]
    assert third in (await desk.do(ExplainCandidate(candidate="v3"))).text
    assert "v3" in (await desk.do(ShowCode(candidate=third[:8]))).text


async def test_an_export_is_asked_for_first(
    desk: ChatController, begin: Begin, rest: Begin
) -> None:
    await begin(desk)
    await rest(desk)
    saying = await desk.do(ExportResult())
    assert saying.question
    approved = saying.offers[0].wish
    assert isinstance(approved, ExportResult)
    assert approved.approved
    assert not any(isinstance(piece, Download) for piece in saying.pieces)


async def test_a_report_is_a_file_to_take_home(
    lives: SearchManager, begin: Begin, rest: Begin
) -> None:
    def write(run: str, home: Path, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"<!doctype html><p>{run} of {home.name}")
        return path

    desk = ChatController(lives.home, lives, "ann", "one", Settings(report=write))
    await begin(desk)
    await rest(desk)
    saying = await desk.do(GetReport())
    (download,) = [piece for piece in saying.pieces if isinstance(piece, Download)]
    assert desk.run in download.path.read_text()
    assert download.path.is_relative_to(desk.home)


async def test_the_doctors_findings_are_rows(lives: SearchManager) -> None:
    async def examine() -> tuple[Finding, ...]:
        return (Finding(subject="GPU", outcome="missing", words="none"),)

    desk = ChatController(lives.home, lives, "ann", "one", Settings(examine=examine))
    assert "GPU" in texts(await desk.do(AskDoctor()))


async def test_a_refusal_keeps_the_file_for_another_try(
    desk: ChatController, lives: SearchManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def soft(x):\n    return x\n"
    refused = Refusal(sentence="The file defines no nn.Module; to optimise a function, name it: s.")
    executor = lives.judges._make("cpu", lives.home, asyncio.Lock())

    async def refuse(*_: object) -> Refusal:
        return refused

    monkeypatch.setattr(type(executor), "trace", refuse)
    saying = await desk.do(LoadTask(source=source, name="soft.py"))
    assert saying.question
    assert ChangeTask(entry="soft") in [offer.wish for offer in saying.offers]
    monkeypatch.undo()
    assert (await desk.do(ChangeTask(entry="soft"))).question


async def test_going_on_with_nothing_is_answered(desk: ChatController) -> None:
    assert "no search yet" in (await desk.do(ContinueSearch())).text
