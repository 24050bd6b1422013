"""Steering by a person: confirmed, kept with the run, told to the planner, taken back."""

from collections.abc import Awaitable, Callable

import pytest

from kernelwright.agents.assistant.types import ChatReply, PauseSearch, ShowSteering, Steer
from kernelwright.agents.assistant.types.pieces import Table
from kernelwright.agents.shared.facts import Steering
from kernelwright.graphs.conversation import ChatController, SearchManager
from kernelwright.graphs.conversation.background.store import kept_steering
from kernelwright.graphs.conversation.wishes import acted_upon, changed
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Idea

Begin = Callable[..., Awaitable[None]]


def cells(reply: ChatReply) -> list[str]:
    tables = [piece for piece in reply.pieces if isinstance(piece, Table)]
    return [cell for table in tables for row in table.rows for cell in row]


async def test_steering_is_confirmed_with_what_changed_and_when(
    make_search_manager: Callable[..., SearchManager], begin: Begin
) -> None:
    search_manager = make_search_manager(pause_s=0.05)
    controller = ChatController(search_manager.home, search_manager, "ann", "one")
    await begin(controller)
    reply = await controller.do(Steer(hints=("wide",), bans=("half precision",)))
    assert "half precision" in cells(reply)
    assert "round" in reply.text
    assert kept_steering(controller.home / "runs" / controller.run).bans == ("half precision",)
    taking = [offer.wish for offer in reply.offers if offer.label.startswith("Take back")]
    assert Steer(forget=("half precision",)) in taking
    await search_manager.aclose()


async def test_steering_survives_a_pause_and_a_restart(
    make_search_manager: Callable[..., SearchManager], begin: Begin, rest: Begin
) -> None:
    search_manager = make_search_manager(pause_s=0.05)
    controller = ChatController(search_manager.home, search_manager, "ann", "one")
    await begin(controller)
    await controller.do(PauseSearch())
    await rest(controller)
    await controller.do(Steer(bans=("wide",)))
    await search_manager.aclose()
    after = make_search_manager(pause_s=0.05)
    again = ChatController(after.home, after, "ann", "one")
    assert "wide" in cells(await again.do(ShowSteering()))
    search_session = await after.go_on(again.home / "runs" / again.run)
    assert search_session.control.steering.bans == ("wide",)
    await rest(again)
    archive = Archive.open(again.run, again.home)
    later = [idea for idea in archive.ideas() if idea.round > 1]
    archive.close()
    assert not any("wide" in idea.title.lower() for idea in later)
    await after.aclose()


async def test_steering_before_a_search_holds_for_it(
    controller: ChatController, begin: Begin, rest: Begin
) -> None:
    from kernelwright.agents.assistant.types import LoadTask, StartSearch

    await controller.do(LoadTask(source="x = 1"))
    await controller.do(Steer(bans=("tiled",)))
    await controller.do(StartSearch(seconds=600))
    await rest(controller)
    assert kept_steering(controller.home / "runs" / controller.run).bans == ("tiled",)
    assert not any("tiled" in idea.lower() for idea in controller.turn("").ideas)


async def test_everything_can_be_taken_back(
    controller: ChatController, begin: Begin, rest: Begin
) -> None:
    await begin(controller)
    await rest(controller)
    await controller.do(Steer(hints=("a",), pins=("b",), bans=("c",)))
    await controller.do(Steer(forget=("everything",)))
    assert kept_steering(controller.home / "runs" / controller.run) == Steering()
    assert not {"hint", "never", "comes first"} & {*cells(await controller.do(ShowSteering()))}


async def test_an_idea_that_does_not_exist_changes_nothing(
    controller: ChatController, begin: Begin, rest: Begin
) -> None:
    await begin(controller)
    await rest(controller)
    assert "no idea 99" in (await controller.do(Steer(pins=("idea 99",)))).text
    assert kept_steering(controller.home / "runs" / controller.run) == Steering()


IDEA = Idea(
    id="r1i1", title="Rows at once", mechanism="m", reason="r", category="memory", metric="ms"
)


def test_the_third_idea_is_meant_by_its_number() -> None:
    ideas = tuple(IDEA.model_copy(update={"title": f"way {n}"}) for n in (1, 2, 3))
    assert acted_upon("idea 3", ideas) == "way 3"
    assert acted_upon("The Idea #2", ideas) == "way 2"


@pytest.mark.parametrize("kind", ["hints", "pins", "bans"])
def test_what_is_said_last_overrules_what_was_said_before(kind: str) -> None:
    before = Steering(hints=("x",), pins=("x",), bans=("x",))
    after = changed(before, Steer.model_validate({kind: ("X",)}), ())
    assert after == Steering.model_validate({kind: ("X",)})


def test_thousands_of_hints_do_not_fill_the_archive() -> None:
    steering = Steering()
    for number in range(100):
        steering = changed(steering, Steer(hints=(f"{number} " + "x" * 1000,)), ())
    assert len(steering.hints) == 40
    assert all(len(hint) <= 120 for hint in steering.hints)
