"""A controller answers every command, without a task, before a search and after one."""

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
    Command,
    CompareCandidates,
    ContinueSearch,
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
    Unclear,
)
from kernelwright.agents.assistant.types.pieces import Code, Download, Table
from kernelwright.graphs.conversation import ChatController, Finding, SearchManager, Settings
from kernelwright.tools.types import Refusal, TracePolicy

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


def texts(reply: ChatReply) -> str:
    cells = [
        cell
        for piece in reply.pieces
        if isinstance(piece, Table)
        for row in piece.rows
        for cell in row
    ]
    return "\n".join((reply.text, *cells))


@pytest.mark.parametrize("command", EVERY, ids=lambda command: command.kind)
async def test_an_empty_controller_answers_every_command(
    controller: ChatController, command: Command
) -> None:
    reply = await controller.do(command)
    assert reply.pieces


async def test_a_controller_with_a_finished_run_answers_every_command(
    controller: ChatController, begin: Begin, rest: Begin
) -> None:
    await begin(controller)
    await rest(controller)
    for command in EVERY:
        reply = await controller.do(command)
        assert reply.pieces, command.kind


async def test_a_card_has_figures_and_asks_one_question(controller: ChatController) -> None:
    reply = await controller.do(LoadTask(source="x = 1", name="soft max (2).py"))
    assert reply.question
    commands = [offer.wish for offer in reply.offers]
    assert {command.kind for command in commands} >= {"start_search", "change_task", "cancel_task"}
    said = texts(reply)
    assert "2.500 ms" in said
    assert "400 µs" in said  # the floor
    assert "no tokens" in said
    assert controller.task is not None
    assert controller.task.break_even_calls is not None


async def test_a_gpu_that_is_not_here_is_named_with_what_is_possible(
    controller: ChatController,
) -> None:
    said = (await controller.do(LoadTask(source="x = 1", gpu="L40S"))).text
    assert "NVIDIA L40S" in said
    assert "Toy" in said
    assert "batch" in said


async def test_a_gpu_that_nobody_knows_is_no_error(controller: ChatController) -> None:
    said = (await controller.do(LoadTask(source="x = 1", gpu="<b>Z9000</b>"))).text
    assert "no device called" in said
    assert "<b>" not in said


async def test_a_task_can_be_put_away(controller: ChatController) -> None:
    await controller.do(LoadTask(source="x = 1"))
    await controller.do(CancelTask())
    assert controller.task is None
    assert "no task" in (await controller.do(StartSearch())).text


async def test_a_new_file_leaves_the_finished_search_reachable(
    controller: ChatController, begin: Begin, rest: Begin
) -> None:
    await begin(controller)
    await rest(controller)
    first = controller.run
    before = texts(await controller.do(ShowProgress()))
    await controller.do(LoadTask(source="y = 2", name="second.py"))
    assert controller.run == first
    assert controller.task is not None
    assert texts(await controller.do(ShowProgress())) == before
    assert (await controller.do(ExportResult())).question
    await controller.do(CancelTask())
    assert controller.run == first
    await controller.do(LoadTask(source="y = 3", name="third.py"))
    await controller.do(StartSearch())
    assert controller.run != first
    await rest(controller)
    assert first in texts(await controller.do(ListRuns()))


async def test_a_second_search_waits_until_the_first_is_stopped(held: Held, rest: Begin) -> None:
    search_manager, controller, free = await held()
    first = controller.run
    await controller.do(LoadTask(source="y = 2"))
    assert controller.run == first
    assert "running already" in (await controller.do(StartSearch())).text
    await controller.do(StopSearch())
    free.set()
    await rest(controller)
    await controller.do(StartSearch())
    assert controller.run != first
    await search_manager.aclose()


async def test_questions_are_answered_while_a_search_runs(held: Held) -> None:
    search_manager, controller, _ = await held()
    said = (await controller.do(ShowProgress())).text
    assert "is running" in said
    turn = controller.turn("why is v1 so slow?")
    assert turn.running
    assert turn.candidates
    assert turn.ideas
    await search_manager.aclose()


async def test_another_controller_of_the_thread_finds_what_was_left(
    controller: ChatController,
    begin: Begin,
    rest: Begin,
    make_search_manager: Callable[..., SearchManager],
) -> None:
    await begin(controller)
    await rest(controller)
    restarted = make_search_manager()
    again = ChatController(restarted.home, restarted, "ann", "one")
    assert again.run == controller.run
    assert again.task == controller.task
    assert "has finished" in (await again.do(ShowProgress())).text
    await restarted.aclose()


async def test_threads_and_people_do_not_meet(
    controller: ChatController, search_manager: SearchManager, begin: Begin, rest: Begin
) -> None:
    await begin(controller)
    await rest(controller)
    other = ChatController(search_manager.home, search_manager, "ann", "two")
    assert other.run == ""
    await other.do(ReopenRun(run=controller.run))
    assert other.run == controller.run
    stranger = ChatController(search_manager.home, search_manager, "bob", "one")
    for command in (
        ReopenRun(run=controller.run),
        ReopenRun(run="toy"),
        ListRuns(),
        ShowProgress(),
    ):
        said = texts(await stranger.do(command))
        assert controller.run not in said
        assert "forbidden" not in said
    assert stranger.run == ""


@pytest.mark.parametrize("person", ["../ann", "ann/../..", "", "Ann", "ann.", "a" * 500, "\x00"])
async def test_no_name_leads_to_anothers_folder(
    search_manager: SearchManager, controller: ChatController, person: str
) -> None:
    stranger = ChatController(search_manager.home, search_manager, person, "../one")
    assert stranger.home != controller.home
    assert stranger.home.parent == search_manager.home / "people"
    assert (await stranger.do(LoadTask(source="x = 1", name="../../etc/passwd"))).pieces


async def test_why_one_is_faster_comes_with_the_difference_of_the_sources(
    controller: ChatController, begin: Begin, rest: Begin
) -> None:
    await begin(controller)
    await rest(controller)
    reply = await controller.do(CompareCandidates(one="v1", other="v2"))
    assert "times as fast as" in reply.text or "same time" in reply.text
    code = [piece for piece in reply.pieces if isinstance(piece, Code)]
    assert [piece.language for piece in code] == ["diff"]


async def test_numbers_of_candidates_are_those_of_writing(
    controller: ChatController, begin: Begin, rest: Begin
) -> None:
    await begin(controller)
    await rest(controller)
    third = controller.turn("").candidates[2]
    assert "v3, written" in (await controller.do(ExplainCandidate(candidate=third))).text
    assert "v3" in (await controller.do(ShowCode(candidate=third[:8]))).text


async def test_an_export_is_asked_for_first(
    controller: ChatController, begin: Begin, rest: Begin
) -> None:
    await begin(controller)
    await rest(controller)
    reply = await controller.do(ExportResult())
    assert reply.question
    approved = reply.offers[0].wish
    assert isinstance(approved, ExportResult)
    assert approved.approved
    assert not any(isinstance(piece, Download) for piece in reply.pieces)


async def test_a_report_is_a_file_to_take_home(
    search_manager: SearchManager, begin: Begin, rest: Begin
) -> None:
    def write(run: str, home: Path, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"<!doctype html><p>{run} of {home.name}")
        return path

    controller = ChatController(
        search_manager.home, search_manager, "ann", "one", Settings(report=write)
    )
    await begin(controller)
    await rest(controller)
    reply = await controller.do(GetReport())
    (download,) = [piece for piece in reply.pieces if isinstance(piece, Download)]
    assert controller.run in download.path.read_text()
    assert download.path.is_relative_to(controller.home)


async def test_the_doctors_findings_are_rows(search_manager: SearchManager) -> None:
    async def examine() -> tuple[Finding, ...]:
        return (Finding(subject="GPU", outcome="missing", words="none"),)

    controller = ChatController(
        search_manager.home, search_manager, "ann", "one", Settings(examine=examine)
    )
    assert "GPU" in texts(await controller.do(AskDoctor()))


async def test_a_refusal_keeps_the_file_for_another_try(
    controller: ChatController, search_manager: SearchManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def soft(x):\n    return x\n"
    refused = Refusal(sentence="No nn.Module; to optimise a function, name it with --entry: s.")
    executor = search_manager.judges._make("cpu", search_manager.home, asyncio.Lock())

    async def refuse(*_: object) -> Refusal:
        return refused

    monkeypatch.setattr(type(executor), "trace", refuse)
    reply = await controller.do(LoadTask(source=source, name="soft.py"))
    assert reply.question
    assert ChangeTask(entry="soft") in [offer.wish for offer in reply.offers]
    monkeypatch.undo()
    assert (await controller.do(ChangeTask(entry="soft"))).question


async def test_what_draws_at_random_in_training_is_offered_in_evaluation_mode(
    controller: ChatController, search_manager: SearchManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = search_manager.judges._make("cpu", search_manager.home, asyncio.Lock())
    trace = type(executor).trace

    async def draws(self: object, path: Path, policy: TracePolicy) -> object:
        refused = Refusal(sentence="It draws random numbers.", draws_in_training=True)
        return await trace(self, path, policy) if policy.evaluation else refused

    monkeypatch.setattr(type(executor), "trace", draws)
    reply = await controller.do(LoadTask(source="import torch\n", name="net.py"))
    assert reply.question
    button = reply.offers[0]
    assert button.wish == ChangeTask(evaluation=True)
    assert (await controller.do(button.wish)).question
    again = await controller.do(ChangeTask(precisions=("tf32",)))
    assert "draws random" not in again.text
    back = await controller.do(ChangeTask(evaluation=False))
    assert "draws random" in back.text


async def test_going_on_with_nothing_is_answered(controller: ChatController) -> None:
    assert "no search yet" in (await controller.do(ContinueSearch())).text
