"""How a session can end other than by finishing."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.graphs.run_view.events import Event, Noted
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.tools.archive import Archive, RunError, list_runs
from kernelwright.tools.codegen.library.plan_check import PlanError
from kernelwright.tools.evaluate.sandbox.worker import WorkerBrokenError
from kernelwright.tools.types import Refusal, Task, TracePolicy
from kernelwright.tools.types.run import Summary

Search = Callable[..., Awaitable[Summary]]


async def test_a_cancelled_caller_leaves_a_run_that_can_go_on(
    search: Search, resume: Search, toy: ModuleType, tmp_path: Path
) -> None:
    hold = toy.Hold(at=6)
    task = asyncio.ensure_future(search(executor=toy.ToyExecutor(hold=hold)))
    while not hold.reached.is_set():  # noqa: ASYNC110 - a thread's event
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (info,) = list_runs(tmp_path)
    assert info.status == "stopped"
    assert not info.live
    assert (await resume(info.id)).status == "improved"


async def test_a_stop_before_the_first_step_is_a_stop(search: Search) -> None:
    control = Control()
    control.stop("changed my mind")
    summary = await search(control=control)
    assert summary.status == "stopped"
    assert summary.best is None


async def test_a_listener_that_breaks_breaks_nothing_in_the_archive(
    search: Search, resume: Search, tmp_path: Path
) -> None:
    def listener(event: Event) -> None:
        if event.kind == "critiqued":
            raise ConnectionError("the page is gone")

    with pytest.raises(ConnectionError):
        await search(listener=listener)
    (info,) = list_runs(tmp_path)
    assert (await resume(info.id)).status == "improved"


async def test_a_task_that_cannot_be_traced_makes_no_run(toy: ModuleType, tmp_path: Path) -> None:
    class Refusing(toy.ToyExecutor):  # type: ignore[name-defined, misc]
        async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
            return Refusal(sentence="toy.py holds no module.")

    answer = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE, home=tmp_path, executor=Refusing()
    )
    assert answer == Refusal(sentence="toy.py holds no module.")
    assert list_runs(tmp_path) == ()


async def test_a_reference_that_does_not_run_is_refused(toy: ModuleType, tmp_path: Path) -> None:
    class Refusing(toy.ToyExecutor):  # type: ignore[name-defined, misc]
        async def baselines(self, task: Task, *, eager_only: bool = False) -> object:
            return Refusal(sentence="toy does not run: out of memory.")

    answer = await start_search(
        Path("toy.py"),
        TracePolicy(),
        "cpu",
        toy.PROFILE,
        home=tmp_path,
        executor=Refusing(),
        make_agents=lambda around: toy.toy_agents(toy.LOOPS),
    )
    assert answer == Refusal(sentence="toy does not run: out of memory.")


async def test_what_cannot_be_assembled_is_told_and_the_search_goes_on(
    search: Search, toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = toy.ToyRepertoire.draft

    def checked(self: object, choices: Mapping[str, str]) -> object:
        if choices["rows"] == "once":  # the strategy predicted fastest
            raise PlanError("the plan cannot be assembled: in forward, `return w` hands w out")
        return draft(self, choices)

    monkeypatch.setattr(toy.ToyRepertoire, "draft", checked)
    events: list[Event] = []
    summary = await search(events=events)
    notes = [event.words for event in events if isinstance(event, Noted)]
    assert any("could not be written: the plan cannot be assembled: in fo" in one for one in notes)
    assert summary.best is not None
    assert summary.candidates.correct


async def test_a_run_is_not_resumed_on_another_device(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    control = Control()
    control.stop()
    summary = await search(control=control)

    class Elsewhere(toy.ToyExecutor):  # type: ignore[name-defined, misc]
        async def hardware(self) -> object:
            return toy.HARDWARE.model_copy(update={"name": "Another"})

    with pytest.raises(RunError, match="was measured on Toy, but this is Another"):
        await resume_search(summary.run, home=tmp_path, executor=Elsewhere())
    Archive.open(summary.run, tmp_path).claim()


async def test_a_broken_tool_is_raised_and_the_run_can_go_on(
    search: Search, resume: Search, toy: ModuleType, tmp_path: Path
) -> None:
    def broken(candidate: object, effort: str) -> None:
        if effort == "precise":
            raise RuntimeError("we are broken")

    with pytest.raises(RuntimeError, match="we are broken"):
        await search(executor=toy.ToyExecutor(wrong=broken))
    (info,) = list_runs(tmp_path)
    assert info.summary is not None
    assert info.summary.status == "failed"
    assert info.summary.stopped_because == "RuntimeError: we are broken"
    assert not info.live
    assert (await resume(info.id)).status == "improved"


async def test_a_worker_that_does_not_start_is_asked_for_again(
    search: Search, toy: ModuleType
) -> None:
    refused: list[str] = []

    def short_of_memory(candidate: object, effort: str) -> None:
        if effort == "precise" and not refused:
            refused.append(effort)
            raise WorkerBrokenError("a worker was killed before it was ready")

    summary = await search(executor=toy.ToyExecutor(wrong=short_of_memory))
    assert refused
    assert summary.status == "improved"


async def test_a_refused_run_cannot_be_resumed(toy: ModuleType, tmp_path: Path) -> None:
    class Refusing(toy.ToyExecutor):  # type: ignore[name-defined, misc]
        async def baselines(self, task: Task, *, eager_only: bool = False) -> object:
            return Refusal(sentence="toy does not run: out of memory.")

    await start_search(
        Path("toy.py"),
        TracePolicy(),
        "cpu",
        toy.PROFILE,
        home=tmp_path,
        executor=Refusing(),
        make_agents=lambda around: toy.toy_agents(toy.LOOPS),
    )
    (info,) = list_runs(tmp_path)
    with pytest.raises(RunError, match="its module does not run"):
        await resume_search(info.id, home=tmp_path, executor=toy.ToyExecutor())
