"""Pages that listen in on models while they speak; the search is the toy's."""

import asyncio
import importlib.util
import itertools
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import kernelwright.graphs.search.agent_set
from kernelwright.agents.assistant.types import LoadTask, StartSearch
from kernelwright.graphs.conversation.background.search_manager import SearchManager
from kernelwright.graphs.conversation.background.subscribers import StreamSubscriber
from kernelwright.graphs.conversation.context import Settings
from kernelwright.graphs.conversation.controller import ChatController
from kernelwright.graphs.run_view.events import Speech, Speeches
from kernelwright.profiles.load import ModelProfile, Models
from kernelwright.tools.types import Prompt

Until = Callable[[Callable[[], bool]], Awaitable[None]]
SERVER = Path(__file__).parents[4] / "benchmarks" / "models" / "misbehaving_server.py"
ANSWER = json.dumps({"reasoning": "the row is read once " * 20, "ideas": []})
# So many characters are said at a time: each answer has several parts.
PART = 120
PROMPT = Prompt(key="planner:1", role="planner", messages=(), round=1)


class Patience:
    """Holds a speaker back until its listener has heard of it, however slow that one is."""

    def __init__(self) -> None:
        self._heard = threading.Semaphore(0)
        self._over = False

    def heard(self) -> None:
        """Something new was heard."""
        self._heard.release()

    def end(self) -> None:
        """Nobody listens any more."""
        self._over = True
        self._heard.release()

    def wait(self) -> None:
        """Wait until something new was heard since the last time."""
        if not self._over:
            self._heard.acquire(timeout=60)


@pytest.fixture
def patience() -> Iterator[Patience]:
    held = Patience()
    yield held
    held.end()


@pytest.fixture
def models(patience: Patience) -> Iterator[Models]:
    """Models behind a server that says a part of each answer only when the last one was heard."""
    spec = importlib.util.spec_from_file_location("slow_server", SERVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["slow_server"] = module
    spec.loader.exec_module(module)

    class Attentive(module.MisbehavingServer):  # type: ignore[misc, name-defined]
        """Its pauses end when somebody has heard what was said."""

        said = 0

        @property
        def pause_s(self) -> float:
            self.said += 1
            if self.said % PART == 0:
                patience.wait()
            return 0.0

        @pause_s.setter
        def pause_s(self, seconds: float) -> None:
            """It listens instead of counting seconds."""

    with Attentive(lambda messages: ANSWER, [module.Fault.SLOW] * 50) as server:
        known = {"name": "loopback", "model": "tiny", "base_url": server.base_url}
        yield Models.same(ModelProfile.model_validate(known | {"retries": 0}))


@pytest.fixture
async def search_manager(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SearchManager]:
    repertoire = toy.ToyRepertoire(toy.LOOPS)
    monkeypatch.setattr(
        kernelwright.graphs.search.agent_set, "_repertoire", lambda around: repertoire
    )
    found = SearchManager(tmp_path, target="cpu", make_executor=lambda *_: toy.ToyExecutor())
    yield found
    await found.aclose()


async def test_a_page_hears_a_model_grow_and_end(
    search_manager: SearchManager, models: Models, patience: Patience, tmp_path: Path
) -> None:
    controller = ChatController(
        tmp_path, search_manager, "ada", "t", Settings(target="cpu", models=models)
    )
    other = ChatController(
        tmp_path, search_manager, "eve", "t", Settings(target="cpu", models=models)
    )
    heard: list[Speech] = []
    strange: list[Speech] = []
    ended = asyncio.Event()

    async def hear(speech: Speech) -> None:
        heard.append(speech)
        patience.heard()
        if speech.ended:
            patience.end()
            ended.set()

    async def never(speech: Speech) -> None:
        strange.append(speech)

    await controller.do(LoadTask(source="import torch"))
    controller.overhear(hear)
    other.overhear(never)
    await controller.do(StartSearch(rounds=1))
    await asyncio.wait_for(ended.wait(), 60)
    controller.turn_away()
    other.turn_away()
    first = [item.text for item in heard if item.key == heard[0].key]
    assert len(set(first)) > 2
    assert all(later.startswith(before) for before, later in itertools.pairwise(first))
    assert ANSWER.startswith(first[-1])
    assert strange == []


async def test_who_comes_late_hears_all_of_it_and_who_comes_after_hears_nothing(
    until: Until,
) -> None:
    speeches = Speeches()
    for piece in ("", "read ", "once"):
        speeches.hear(PROMPT, piece)
    heard: list[tuple[str, bool]] = []

    async def hear(speech: Speech) -> None:
        heard.append((speech.text, speech.ended))

    late = StreamSubscriber(lambda: speeches, hear, every_s=0.0)
    await until(lambda: heard == [("read once", False)])
    speeches.end("planner:1")
    late.wake()
    await until(lambda: len(heard) == 2)
    after = StreamSubscriber(lambda: speeches, hear, every_s=0.0)
    await asyncio.sleep(0.05)
    assert heard == [("read once", False), ("read once", True)]
    late.close()
    after.close()


async def test_a_fast_model_is_shown_a_few_times_a_second(until: Until) -> None:
    speeches = Speeches()
    heard: list[str] = []

    async def hear(speech: Speech) -> None:
        heard.append(speech.text)

    began = time.monotonic()
    subscriber = StreamSubscriber(lambda: speeches, hear, every_s=0.05)
    for _ in range(200):
        speeches.hear(PROMPT, "x")
        subscriber.wake()
        await asyncio.sleep(0)
    await until(lambda: bool(heard) and heard[-1] == "x" * 200)
    subscriber.close()
    assert len(heard) <= 1 + (time.monotonic() - began) / 0.05


async def test_a_listener_that_fails_ends_alone(logged: list[str], until: Until) -> None:
    speeches = Speeches()
    speeches.hear(PROMPT, "read")

    async def fail(speech: Speech) -> None:
        raise RuntimeError("the page is gone")

    subscriber = StreamSubscriber(lambda: speeches, fail, every_s=0.0)
    await until(lambda: "a listener failed" in " ".join(logged))
    subscriber.wake()  # nobody is there any more
    await asyncio.sleep(0.05)
    assert " ".join(logged).count("a listener failed") == 1
    subscriber.close()
