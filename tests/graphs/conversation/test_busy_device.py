"""A first answer does not wait for a device that is busy; what comes late comes onto the card."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.agents.assistant.types import (
    CancelTask,
    ChatReply,
    LoadTask,
    SetBudget,
    StartSearch,
)
from kernelwright.agents.assistant.types.pieces import Table
from kernelwright.graphs.conversation import ChatController, SearchManager, Settings
from kernelwright.tools.archive import Archive
from kernelwright.tools.evaluate.executors.base.executor import Capabilities
from kernelwright.tools.types import Refusal, Task, TracePolicy


def patient(toy: ModuleType, free: asyncio.Event, refusal: Refusal | None) -> object:
    """The toy with a device that is busy until `free` is set."""

    class Patient(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        capabilities = Capabilities(reads_apart=True)

        audits = 0

        def warm(self) -> None:
            """It is."""

        async def read(self, path: Path, policy: TracePolicy) -> Task | Refusal:
            task: Task = toy.TASK
            return task

        async def audit(self, task: Task) -> Task | Refusal:
            type(self).audits += 1
            while not free.is_set():  # noqa: ASYNC110 - the event belongs to the page's loop
                await asyncio.sleep(0.01)
            return refusal or task

        async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
            raise AssertionError("what was read already is not read once more")

    return Patient()


class Around:
    """A controller whose device is busy, and what it is told late."""

    def __init__(self, controller: ChatController, free: asyncio.Event) -> None:
        self.controller, self.free = controller, free
        self.late: list[ChatReply] = []
        controller.amend(self._tell)

    async def _tell(self, reply: ChatReply) -> None:
        self.late.append(reply)


@pytest.fixture
async def busy(toy: ModuleType, tmp_path: Path) -> AsyncIterator[Callable[..., Around]]:
    opened: list[SearchManager] = []

    def make(refusal: Refusal | None = None) -> Around:
        free = asyncio.Event()
        executor = patient(toy, free, refusal)
        search_manager = SearchManager(
            tmp_path,
            target="cpu",
            make_executor=lambda *_: executor,  # type: ignore[return-value]
            make_agents=lambda around: toy.toy_agents(toy.LOOPS),
        )
        opened.append(search_manager)
        settings = Settings(target="cpu", first_answer_s=0.1)
        return Around(ChatController(tmp_path, search_manager, "ann", "one", settings), free)

    yield make
    for search_manager in opened:
        await search_manager.aclose()


def row(reply: ChatReply, name: str) -> str:
    tables = [piece for piece in reply.pieces if isinstance(piece, Table)]
    return dict(tables[0].rows)[name]  # type: ignore[arg-type]


async def test_a_busy_devices_time_comes_later_onto_the_card(
    busy: Callable[..., Around], until: Callable[..., Awaitable[None]]
) -> None:
    around = busy()
    card = await around.controller.do(LoadTask(source="x = 1", name="toy.py"))
    assert "not timed yet" in row(card, "PyTorch takes")
    assert card.question
    around.free.set()
    await until(lambda: bool(around.late))
    (late,) = around.late
    assert "times the floor" in row(late, "PyTorch takes")
    assert [offer.label for offer in late.offers] == [offer.label for offer in card.offers]
    assert around.controller.task is not None
    assert around.controller.task.eager_ms == 2.5


async def test_what_was_said_of_the_search_outlives_the_card_it_came_with(
    busy: Callable[..., Around],
    until: Callable[..., Awaitable[None]],
    rest: Callable[..., Awaitable[None]],
) -> None:
    """The card that comes late says it too, and so does the search, whatever button began it."""
    around = busy()
    said = StartSearch(search="deep", rounds=3, seconds=600)
    card = await around.controller.do(LoadTask(source="x = 1", name="toy.py", begin=said))
    words = "As you said: a deep search, at most 10 min 0 s, certification included"
    assert words in card.text
    await around.controller.do(SetBudget(rounds=1))  # the later word holds
    around.free.set()
    await until(lambda: bool(around.late))
    assert words in around.late[0].text
    assert "1 round," in (await around.controller.do(StartSearch())).text
    archive = Archive.open(around.controller.home / "runs" / around.controller.run)
    profile = archive.record().profile
    archive.close()
    assert (profile.name, profile.rounds, profile.seconds) == ("deep", 1, 600)
    await rest(around.controller)


async def test_a_refusal_that_comes_late_takes_the_card_away(
    busy: Callable[..., Around], until: Callable[..., Awaitable[None]]
) -> None:
    around = busy(Refusal(sentence="It needs more memory than there is."))
    await around.controller.do(LoadTask(source="x = 1", name="toy.py"))
    around.free.set()
    await until(lambda: bool(around.late))
    assert "more memory" in around.late[0].text
    assert around.controller.task is None


async def test_nothing_is_said_of_a_task_that_was_put_away(
    busy: Callable[..., Around],
) -> None:
    around = busy()
    await around.controller.do(LoadTask(source="x = 1", name="toy.py"))
    await around.controller.do(CancelTask())
    around.free.set()
    await asyncio.sleep(0.3)
    assert around.late == []
    assert around.controller.task is None


async def test_a_search_that_begins_before_the_audit_reads_nothing_once_more(
    busy: Callable[..., Around], rest: Callable[..., Awaitable[None]]
) -> None:
    around = busy()
    await around.controller.do(LoadTask(source="x = 1", name="toy.py"))
    beginning = asyncio.create_task(around.controller.do(StartSearch(rounds=1, seconds=600)))
    await asyncio.sleep(0.1)
    around.free.set()
    reply = await beginning
    assert around.controller.run, reply.text
    await rest(around.controller)


async def test_a_search_over_what_the_audit_refuses_does_not_begin(
    busy: Callable[..., Around],
) -> None:
    around = busy(Refusal(sentence="It needs more memory than there is."))
    await around.controller.do(LoadTask(source="x = 1", name="toy.py"))
    around.free.set()
    reply = await around.controller.do(StartSearch(rounds=1, seconds=600))
    assert "more memory" in reply.text or "no task" in reply.text
    assert not around.controller.run
