"""The collector of cycles: what it looks at, when, and what a stall says of it."""

import asyncio
import gc
import weakref

import pytest

from kernelwright.agents.assistant.types import AskForHelp
from kernelwright.graphs.conversation import ChatController, SearchManager
from kernelwright.graphs.conversation.graph import Conversation, MessageContext
from kernelwright.ui.chat.server.memory import Collections, imports_out_of_sight, stall_words, swept


class Knot:
    """Holds itself, so that only the collector frees it."""

    def __init__(self):
        self.itself = self


@pytest.fixture
def collector():
    """The collector, given back as it was found."""
    before = gc.get_threshold()
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)
    gc.enable()


def test_what_is_imported_is_never_looked_at_again(collector):
    with imports_out_of_sight():
        assert not gc.isenabled()
        imported = Knot()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    gone = weakref.ref(imported)
    del imported
    gc.collect()
    assert gone() is not None
    later = weakref.ref(Knot())
    gc.collect()
    assert later() is None


def test_a_server_whose_imports_fail_still_collects(collector):
    with pytest.raises(ImportError), imports_out_of_sight():
        raise ImportError("no such module")
    assert gc.isenabled()


async def test_it_is_swept_while_it_is_quiet_and_not_while_something_runs(collector):
    gc.disable()
    quiet = False
    async with swept(lambda: quiet, every_s=0.01):
        gone = weakref.ref(Knot())
        await asyncio.sleep(0.1)
        assert gone() is not None
        quiet = True
        async with asyncio.timeout(20):
            while gone() is not None:  # noqa: ASYNC110 - the sweeper's turn
                await asyncio.sleep(0.01)


def test_full_collections_are_timed_and_younger_ones_are_not():
    collections = Collections()
    with collections.felt():
        gc.collect(1)
        assert collections.longest_s == 0
        gc.collect()
    assert collections.longest_s > 0
    assert collections.since(0.0) == collections.last_s
    assert collections.since(collections.last_ended_s + 1) == 0
    assert collections not in gc.callbacks


def test_a_stall_says_when_it_was_a_collection():
    assert stall_words(0.4, 0.3, 0.0) == "the page stood still for 400 ms, 300 of them ours"
    assert stall_words(0.4, 0.3, 0.25).endswith("; a full collection took 250 ms of it")


async def test_conversations_that_ended_leave_nothing_behind(tmp_path):
    """Many came and went: what stays does not depend on how many."""
    search_manager, conversation = SearchManager(tmp_path, target="cpu"), Conversation()
    assistant = _Silent()
    controllers = weakref.WeakSet()
    for number in range(40):
        thread = f"thread-{number}"
        controller = ChatController(tmp_path, search_manager, "ann", thread)
        controllers.add(controller)
        asked = MessageContext(controller, assistant, "help", command=AskForHelp())
        assert [saying async for saying in conversation.hear(thread, asked)]
        controller.unwatch()
        controller.turn_away()
    del controller, asked
    gc.collect()
    assert not controllers
    assert not search_manager._stores
    assert not conversation._turns
    await search_manager.aclose()


class _Silent:
    """Nobody has to be understood: everything comes from buttons."""

    async def understand(self, turn, done=()):
        raise AssertionError("a button needs no understanding")
