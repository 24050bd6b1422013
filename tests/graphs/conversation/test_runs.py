"""What is done to a run as a whole: given a name, deleted, and only by whom it belongs to."""

from collections.abc import Awaitable, Callable

import pytest

from kernelwright.agents.assistant.types import (
    ChangeTask,
    ChatReply,
    DeleteRun,
    ExplainCandidate,
    ListRuns,
    RenameRun,
    ReopenRun,
)
from kernelwright.agents.assistant.types.pieces import Table
from kernelwright.graphs.conversation import ChatController, SearchManager, Settings
from kernelwright.graphs.conversation.sizes import (
    ONE_SIZE,
    asked_for,
    inside,
    resized,
    served_words,
)
from kernelwright.tools.types.shapes import Dimension


@pytest.fixture
async def done(
    controller: ChatController, begin: Callable[..., Awaitable[None]], rest: Callable[..., object]
):
    """Ann's controller with a finished run."""
    await begin(controller, rounds=1)
    await rest(controller)
    return controller


def listed(reply: ChatReply) -> str:
    return str([piece.rows for piece in reply.pieces if isinstance(piece, Table)])


async def test_a_run_is_called_what_its_person_calls_it(done: ChatController) -> None:
    await done.do(RenameRun(name="Attention <b>at last</b>"))
    assert "Attention <b>at last</b>" in listed(await done.do(ListRuns()))  # a cell is plain text
    reply = await done.do(ReopenRun(run="attention <b>at last</b>"))
    assert done.run in reply.text


async def test_a_run_is_deleted_only_after_a_question(done: ChatController) -> None:
    run, folder = done.run, done.home / "runs" / done.run
    asked = await done.do(DeleteRun())
    assert asked.question
    assert run in asked.text
    assert folder.is_dir()
    yes = next(offer for offer in asked.offers if offer.label.startswith("Yes"))
    await done.do(yes.wish)
    assert not folder.exists()
    assert done.run == ""
    assert "no runs" in (await done.do(ListRuns())).text


async def test_anothers_runs_are_out_of_reach(
    done: ChatController, search_manager: SearchManager
) -> None:
    eve = ChatController(search_manager.home, search_manager, "eve", "one", Settings(target="cpu"))
    for command in (
        DeleteRun(run=done.run, approved=True),
        DeleteRun(run=f"../../ann/runs/{done.run}", approved=True),
        RenameRun(run=done.run, name="mine"),
    ):
        assert "no such run" in (await eve.do(command)).text
    assert (done.home / "runs" / done.run / "run.db").is_file()


async def test_a_running_search_is_not_deleted(
    make_search_manager: Callable[..., SearchManager], begin: Callable[..., Awaitable[None]]
) -> None:
    search_manager = make_search_manager(pause_s=0.2)
    controller = ChatController(
        search_manager.home, search_manager, "ann", "one", Settings(target="cpu")
    )
    await begin(controller, rounds=20)
    reply = await controller.do(DeleteRun(run=controller.run, approved=True))
    assert "stop it first" in reply.text
    assert (controller.home / "runs" / controller.run / "run.db").is_file()
    await search_manager.aclose()


async def test_the_second_best_is_the_second_of_the_leaders(done: ChatController) -> None:
    best = await done.do(ExplainCandidate(candidate="best 1"))
    assert best == await done.do(ExplainCandidate(candidate="best"))
    second = await done.do(ExplainCandidate(candidate="best 2"))
    assert second != best
    assert "place 999" in (await done.do(ExplainCandidate(candidate="best 999"))).text


def test_a_range_that_leaves_the_example_out_draws_it_at_the_end(toy) -> None:
    assert inside(toy.TASK, "batch=1..64") == ("64x1024:float32",)
    assert inside(toy.TASK, "batch=1..2048") == ()
    assert inside(None, "batch=1..64") == ()
    assert asked_for(ChangeTask(entry="Other"), "batch=1..64") == "batch=1..64"
    assert asked_for(ChangeTask(sizes=("rows=32",)), "batch=1..64") == ""
    assert asked_for(ChangeTask(shapes=ONE_SIZE), "batch=1..64") == ""


def test_the_card_says_which_sizes_are_served_and_where_they_are_verified(toy) -> None:
    assert served_words(toy.TASK) == ""
    batch = Dimension(name="batch", places=((0, 0),), example=32, low=1, high=64)
    points = Dimension(name="x[1]", places=((0, 1),), example=128, points=(128, 512))
    said = served_words(toy.TASK.model_copy(update={"dimensions": (batch, points)}))
    assert said.startswith("batch 1 to 64 by one set of kernels, verified at 1, 2, ")
    assert "compared with PyTorch at 32; other sizes run your module" in said
    assert said.endswith("x[1] 128, 512, kernels for each; compared with PyTorch at 128")


def test_one_size_changes_what_is_as_long_in_every_input(toy) -> None:
    shapes = [spec.tensor.shape for spec in toy.TASK.inputs]
    changed = resized(toy.TASK, ("columns=4096",))
    assert len(changed) == len(shapes)
    for text, shape in zip(changed, shapes, strict=True):
        sizes = text.split(":")[0].split("x")
        expected = 4096 if shape[-1] == shapes[0][-1] else shape[-1]
        assert sizes == [*map(str, shape[:-1]), str(expected)]
    assert resized(toy.TASK, ()) == ()
    assert resized(toy.TASK, ("depth=4",)) == ()
