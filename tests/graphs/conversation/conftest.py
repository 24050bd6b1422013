import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.agents.assistant.types import LoadTask, StartSearch
from kernelwright.graphs.conversation import ChatController, SearchManager, Settings, Told

MODULE = "import torch\n\nclass Model(torch.nn.Module):\n    pass\n"


@pytest.fixture
def make_search_manager(toy: ModuleType, tmp_path: Path) -> Callable[..., SearchManager]:
    """A server's searches over the toy; a new one over the same home is the server restarted."""

    def make(pause_s: float = 0.0, idle_s: float = 60.0, **executor: object) -> SearchManager:
        return SearchManager(
            tmp_path,
            target="cpu",
            make_executor=lambda target, scratch, lease: toy.ToyExecutor(
                pause_s=pause_s, **executor
            ),
            make_agents=lambda around: toy.toy_agents(toy.LOOPS),
            idle_s=idle_s,
        )

    return make


@pytest.fixture
def held(
    toy: ModuleType,
    make_search_manager: Callable[..., SearchManager],
    begin: Callable[..., Awaitable[None]],
) -> Callable[..., Awaitable[tuple[SearchManager, ChatController, threading.Event]]]:
    """A search that is held in its middle until the event is set."""

    async def make(**executor: object) -> tuple[SearchManager, ChatController, threading.Event]:
        hold = toy.Hold(at=10)
        search_manager = make_search_manager(hold=hold, **executor)
        controller = ChatController(search_manager.home, search_manager, "ann", "one")
        await begin(controller)
        assert await asyncio.to_thread(hold.reached.wait, 240)
        return search_manager, controller, hold.free

    return make


@pytest.fixture
async def search_manager(
    make_search_manager: Callable[..., SearchManager],
) -> AsyncIterator[SearchManager]:
    """Searches that take no time."""
    made = make_search_manager()
    yield made
    await made.aclose()


@pytest.fixture
def controller(search_manager: SearchManager) -> ChatController:
    """Ann's controller."""
    return ChatController(
        search_manager.home, search_manager, "ann", "one", Settings(target="cpu", search="quick")
    )


class Ear:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Told] = []

    async def __call__(self, told: Told) -> None:
        self.told.append(told)

    @property
    def kinds(self) -> list[str]:
        return [told.event.kind for told in self.told]


@pytest.fixture
def subscriber() -> Ear:
    """A listener."""
    return Ear()


@pytest.fixture
def begin() -> Callable[..., Awaitable[None]]:
    """Load the toy and begin its search; on a busy machine it has the time it needs."""

    async def run(controller: ChatController, **limits: object) -> None:
        await controller.do(LoadTask(source=MODULE, name="toy.py"))
        reply = await controller.do(StartSearch.model_validate({"seconds": 600, **limits}))
        assert controller.run, reply.text

    return run


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    """Wait until something holds."""

    async def wait(holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(240):
            while not holds():  # noqa: ASYNC110 - what is waited for happens in another thread
                await asyncio.sleep(0.01)

    return wait


@pytest.fixture
def rest(until: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Wait until nobody works on a controller's run."""
    return lambda controller: until(lambda: not controller.running)
