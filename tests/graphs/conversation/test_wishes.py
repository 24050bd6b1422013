"""Wishes: what each will really do in the state that the search is in, and what makes it happen."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from kernelwright.agents.assistant.rules import RulesAssistant
from kernelwright.agents.assistant.types import (
    AskAbout,
    ChangeTask,
    ChatReply,
    ContinueSearch,
    LoadTask,
    SetBudget,
    ShowSteering,
    StartSearch,
    Steer,
    StopSearch,
)
from kernelwright.agents.assistant.types.pieces import Table
from kernelwright.graphs.conversation import ChatController, SearchManager
from kernelwright.graphs.conversation.background.store import kept_steering
from kernelwright.graphs.conversation.graph import Conversation, MessageContext
from kernelwright.tools.archive import Archive, RunRecord

Begin = Callable[..., Awaitable[None]]
UnderWay = Callable[..., Awaitable[ChatController]]


@pytest.fixture
async def under_way(
    make_search_manager: Callable[..., SearchManager], begin: Begin, until: Begin
) -> AsyncIterator[UnderWay]:
    """Begin a search whose steps take `pause_s`; its controller, once there are ideas."""
    made: list[SearchManager] = []

    async def start(pause_s: float, **limits: object) -> ChatController:
        made.append(make_search_manager(pause_s=pause_s))
        controller = ChatController(made[-1].home, made[-1], "ann", "one")
        await begin(controller, **limits)
        await until(lambda: controller.turn("").ideas)
        return controller

    yield start
    for search_manager in made:
        await search_manager.aclose()


@pytest.fixture
async def ended(controller: ChatController, begin: Begin, rest: Begin) -> ChatController:
    """The controller of a search that has finished, after one round."""
    await begin(controller, rounds=1)
    await rest(controller)
    return controller


def cells(reply: ChatReply) -> list[str]:
    tables = [piece for piece in reply.pieces if isinstance(piece, Table)]
    return [cell for table in tables for row in table.rows for cell in row]


def record_of(controller: ChatController) -> RunRecord:
    archive = Archive.open(controller.run, controller.home)
    try:
        return archive.record()
    finally:
        archive.close()


def talking(controller: ChatController) -> Callable[[str], Awaitable[list[ChatReply]]]:
    """Say something to this controller by words, in one conversation."""
    conversation = Conversation()

    async def say(text: str) -> list[ChatReply]:
        message = MessageContext(controller, RulesAssistant(), text)
        return [reply async for reply in conversation.hear("t", message)]

    return say


async def test_a_wish_in_the_last_round_offers_another_one_and_yes_makes_it_happen(
    under_way: UnderWay, rest: Begin
) -> None:
    controller = await under_way(0.2, rounds=1)
    say = talking(controller)
    (reply,) = await say("no shared memory")
    assert "Round 1 is the last" in reply.text
    assert reply.offers[0].label == "Continue for 30 s"
    (more,) = await say("yes")
    assert "2 rounds" in more.text
    await rest(controller)
    assert record_of(controller).summary.rounds == 2


async def test_a_wish_with_rounds_to_come_says_which(under_way: UnderWay) -> None:
    controller = await under_way(0.2, rounds=5)
    reply = await controller.do(Steer(hints=("wide",)))
    assert "when round 2 of 5 is planned" in reply.text
    assert not reply.question


async def test_a_finished_search_says_that_nothing_changes_and_goes_on_by_the_offers_words(
    ended: ChatController, rest: Begin
) -> None:
    say = talking(ended)
    (reply,) = await say("focus on registers")
    assert "changes nothing of its result" in reply.text
    (more,) = await say(reply.offers[0].label)
    assert "Going on" in more.text
    await rest(ended)
    assert record_of(ended).summary.rounds == 2


async def test_a_contradiction_is_resolved_aloud(ended: ChatController) -> None:
    say = talking(ended)
    await say("no half precision")
    (reply,) = await say("only fp16")
    assert "Earlier you had said *never: half precision*; the newer wish replaces it" in reply.text
    kept = kept_steering(ended.home / "runs" / ended.run)
    assert (kept.bans, kept.pins) == ((), ("fp16",))
    await say("no vectorised loads")
    (reply,) = await say("focus on SIMD")
    assert "never: vectorized loads" in reply.text
    kept = kept_steering(ended.home / "runs" / ended.run)
    assert (kept.bans, kept.hints) == ((), ("simd",))


async def test_before_the_search_a_ban_takes_an_allowed_precision_back(
    controller: ChatController,
) -> None:
    await controller.do(LoadTask(source="x = 1"))
    await controller.do(ChangeTask(precisions=("float16",)))
    reply = await controller.do(Steer(bans=("half precision",)))
    assert "float16 was allowed before; that is taken back" in reply.text
    assert controller.task is not None
    assert controller.task.precisions == ()


@pytest.mark.exhaustive
async def test_budgets_hold_in_a_running_search(under_way: UnderWay, rest: Begin) -> None:
    controller = await under_way(0.1, rounds=50)
    say = talking(controller)
    (reply,) = await say("stop after 2 rounds")
    assert "At most 2 rounds" in reply.text
    (reply,) = await say("use at most 10000 tokens")
    assert "10000 tokens" in reply.text
    assert "built-in rules think here" in reply.text
    shown = (await say("show all wishes"))[0]
    assert {"2 rounds", "10000 tokens of language models"} <= {*cells(shown)}
    await rest(controller)
    record = record_of(controller)
    assert record.summary.rounds <= 2
    assert (record.profile.rounds, record.profile.tokens) == (2, 10_000)
    assert kept_steering(controller.home / "runs" / controller.run).hints == ()


async def test_less_time_ends_a_running_search(under_way: UnderWay, rest: Begin) -> None:
    controller = await under_way(0.1, rounds=50)
    reply = await controller.do(SetBudget(seconds=0.5))
    assert "0.5 s in all" in reply.text
    await rest(controller)
    assert "0.5 seconds" in record_of(controller).summary.stopped_because


async def test_a_cap_can_be_taken_back(ended: ChatController) -> None:
    await ended.do(SetBudget(tokens=500, usd=0.25))
    shown = await ended.do(ShowSteering())
    back = {offer.wish for offer in shown.offers if isinstance(offer.wish, SetBudget)}
    assert {SetBudget(lift=("tokens",)), SetBudget(lift=("usd",))} <= back
    reply = await ended.do(SetBudget(lift=("tokens", "usd")))
    assert "No cap on tokens" in reply.text
    assert record_of(ended).profile.tokens is None


async def test_a_budget_that_was_set_before_the_search_is_its_own_and_survives_a_restart(
    make_search_manager: Callable[..., SearchManager], rest: Begin
) -> None:
    search_manager = make_search_manager()
    controller = ChatController(search_manager.home, search_manager, "ann", "one")
    await controller.do(LoadTask(source="x = 1"))
    reply = await controller.do(SetBudget(rounds=1, tokens=900))
    assert "at most 1 round and 900 tokens" in reply.text
    await search_manager.aclose()
    after = make_search_manager()
    again = ChatController(after.home, after, "ann", "one")
    assert "1 round" in cells(await again.do(ShowSteering()))
    await again.do(StartSearch(seconds=600))
    await rest(again)
    profile = record_of(again).profile
    assert (profile.rounds, profile.tokens, profile.seconds) == (1, 900, 600)
    assert profile.seconds_hold == "everything"
    await after.aclose()


@pytest.mark.exhaustive
async def test_more_time_while_the_best_is_certified_is_spent_afterwards(
    under_way: UnderWay, rest: Begin, until: Begin
) -> None:
    controller = await under_way(0.3, rounds=1)
    folder = controller.home / "runs" / controller.run

    def certifying() -> bool:
        archive = Archive.open(folder)
        try:
            return bool(archive.events(kind="round_finished"))
        finally:
            archive.close()

    await until(certifying)
    assert controller.running
    reply = await controller.do(Steer(hints=("wide",)))
    assert "certifying" in reply.text
    more = await controller.do(reply.offers[0].wish)
    assert "as soon as that has ended, it goes on" in more.text
    await until(lambda: record_of(controller).profile.rounds == 2)
    await rest(controller)
    assert record_of(controller).summary.rounds == 2


async def test_more_for_a_stopped_search_is_more_than_it_spent(
    under_way: UnderWay, rest: Begin
) -> None:
    controller = await under_way(0.1, rounds=50)
    await controller.do(StopSearch())
    await rest(controller)
    reply = await controller.do(Steer(pins=("wide",)))
    assert "paused" in reply.text
    assert reply.offers[0].wish == ContinueSearch()


QUESTIONS = {
    "how_it_works": "float64",
    "gradients": "no backward",
    "use": "zip",
    "baselines": "takes",
    "safety": "Before you rely on it",
    "verified_on": "COUNTS",
    "not_faster": "The search planned",
    "privacy": "nothing is sent anywhere",
}


async def test_every_usual_question_has_an_answer_with_and_without_a_run(
    controller: ChatController, begin: Begin, rest: Begin
) -> None:
    asked = {topic: AskAbout.model_validate({"topic": topic}) for topic in QUESTIONS}
    for topic, command in asked.items():
        assert (await controller.do(command)).text, topic
    await begin(controller, rounds=1)
    await rest(controller)
    for topic, words in QUESTIONS.items():
        reply = await controller.do(asked[topic])
        assert words in reply.text, topic
        # A candidate is called by its number, on buttons too; hashes come on demand.
        assert not any(re.search(r"\b[0-9a-f]{12}\b", offer.label) for offer in reply.offers)
