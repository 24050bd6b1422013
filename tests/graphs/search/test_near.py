"""A search ends where it stands as an earlier one of a near task ended, and goes on elsewhere."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.graphs.replay import replay
from kernelwright.graphs.search.context import AHEAD
from kernelwright.graphs.search.options import remembering
from kernelwright.graphs.search.options.near import ended_as_near
from kernelwright.tools.archive import Archive
from kernelwright.tools.memory import KernelLibrary
from kernelwright.tools.types import Task, TensorSpec
from kernelwright.tools.types.run import Summary

Search = Callable[..., Awaitable[Summary]]
ALLOWED = {"minimum_rounds": 1, "tuning_trials": 12}


@pytest.fixture
def other_sizes(
    searched: Search, toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Awaitable[Summary]]:
    """The toy search over the same operators on so many rows; `slower` than its bytes say."""
    task: Task = toy.TASK
    repertoire = toy.ToyRepertoire(toy.LOOPS)
    monkeypatch.setattr(remembering, "_repertoire", lambda task, hardware: repertoire)

    async def run(
        rows: int, *, slower: float = 1.0, executor: object = None, **profile: object
    ) -> Summary:
        spec = TensorSpec(shape=(rows, 1024), dtype=toy.SPEC.dtype)
        times = rows / 1024
        nodes = tuple(node.model_copy(update={"out": (spec,)}) for node in task.graph.nodes)
        changes = {
            "inputs": (task.inputs[0].model_copy(update={"tensor": spec}),),
            "outputs": (spec,),
            "graph": task.graph.model_copy(update={"nodes": nodes}),
            "bytes_moved": int(task.bytes_moved * times),
        }
        monkeypatch.setattr(toy, "TASK", task.model_copy(update=changes))
        executor = executor or toy.ToyExecutor()
        executor.off = lambda candidate, effort: times * slower
        executor.eager_ms, executor.compile_ms = 2.5 * times * slower, 2.0 * times * slower
        return await searched(executor=executor, **(ALLOWED | profile))

    return run


async def test_it_ends_with_its_first_round_and_a_few_settings(
    other_sizes: Search, toy: ModuleType, tmp_path: Path
) -> None:
    first = await other_sizes(1024)
    assert "near these" not in first.stopped_because
    executor = toy.ToyExecutor()
    second = await other_sizes(1536, executor=executor)
    assert second.stopped_because.endswith("operators on sizes near these came to 29%")
    assert second.rounds == 1
    assert second.best is not None
    assert second.best.median_ms == pytest.approx(1.5 * first.best.median_ms)
    assert executor.profiled == []
    archive = Archive.open(second.run, tmp_path)
    tuned = [item for item in archive.candidates() if item.author == "tuner"]
    assert len(tuned) <= AHEAD
    told = await replay(
        second.run, home=tmp_path, make_agents=lambda around: toy.toy_agents(toy.LOOPS)
    )
    assert told.difference is None


async def test_what_it_leaves_ends_no_other_but_what_the_whole_one_left_does(
    other_sizes: Search, tmp_path: Path
) -> None:
    await other_sizes(1024)
    await other_sizes(1536)
    library = KernelLibrary(tmp_path)
    shares = {kept.key.shape[0]: kept.proof.screened_share for kept in library.every()}
    assert shares[1024] > 0.0
    assert shares[1536] == 0.0
    # Of 2,048 rows the second is the nearest, and the first is near as well.
    third = await other_sizes(2048)
    assert ended_as_near(Archive.open(third.run, tmp_path))
    # Of 3,072 the first is too far off.
    fourth = await other_sizes(3072)
    assert not ended_as_near(Archive.open(fourth.run, tmp_path))


@pytest.mark.parametrize(
    ("rows", "slower", "profile"),
    [
        (1536, 1.3, {}),  # it reaches less of its floor
        (1536, 0.7, {}),  # or more: something else bounds it
        (1536, 1.0, {"minimum_rounds": 2}),  # rounds were promised
        (1536, 1.0, {"seconds": 2000}),  # the other was allowed far less
        (4096, 1.0, {}),  # far from it
    ],
)
async def test_it_goes_on_elsewhere(
    other_sizes: Search, rows: int, slower: float, profile: dict[str, object]
) -> None:
    await other_sizes(1024)
    assert (await other_sizes(rows, slower=slower, **profile)).rounds > 1
