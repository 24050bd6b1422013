"""A second search begins with what the first one certified, and is over soon."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.agents.roles.remembered import Memories
from kernelwright.graphs.run_view.events import Event, IdeasProposed, Noted
from kernelwright.graphs.search.options import remembering
from kernelwright.graphs.search.options.remembering import memories_of
from kernelwright.tools.archive import Archive
from kernelwright.tools.memory import Kept, KernelLibrary, TaskKey, library_path
from kernelwright.tools.types import Verdict
from kernelwright.tools.types.run import Summary

Search = Callable[..., Awaitable[Summary]]


async def test_the_second_search_begins_with_the_firsts_result_and_ends_soon(
    searched: Search, toy: ModuleType, tmp_path: Path
) -> None:
    first = await searched()
    executor, events = toy.ToyExecutor(), list[Event]()
    second = await searched(executor=executor, events=events)
    assert first.best is not None
    assert second.best is not None
    asked = [what for what, _ in executor.asked if what not in ("eager", "compile")]
    assert asked[0] == first.best.candidate == second.best.candidate
    assert second.candidates.written < first.candidates.written / 2
    proposed = next(event for event in events if isinstance(event, IdeasProposed))
    title = f"From your library: toy of 1024 x 1024 float32, run {first.run}"
    assert [idea.title for idea in proposed.ideas] == [title]
    assert any(isinstance(event, Noted) and title in event.words for event in events)
    (kept,) = KernelLibrary(tmp_path).every()
    assert kept.run == second.run
    assert kept.proof.certified


async def test_what_the_judge_refuses_is_not_trusted_and_not_kept(
    searched: Search, toy: ModuleType, tmp_path: Path
) -> None:
    first = await searched()
    assert first.best is not None
    known = first.best.candidate

    def refused(candidate: object, effort: str) -> Verdict | None:
        return Verdict.WRONG_RESULT if getattr(candidate, "id", "") == known else None

    second = await searched(executor=toy.ToyExecutor(wrong=refused), patience=1)
    assert second.best is not None
    assert second.best.candidate != known
    assert second.rounds > 1
    assert known not in {item.candidate for item in KernelLibrary(tmp_path).every()}


async def test_a_broken_library_costs_a_note_and_no_search(
    searched: Search, tmp_path: Path
) -> None:
    library_path(tmp_path).write_text("no database at all" * 100)
    assert (await searched()).status == "improved"


async def test_one_that_was_allowed_less_is_tried_among_the_others(
    searched: Search, tmp_path: Path
) -> None:
    await searched(seconds=100)
    events: list[Event] = []
    second = await searched(events=events)
    proposed = next(event for event in events if isinstance(event, IdeasProposed))
    assert [idea.origin for idea in proposed.ideas][:2] == ["library", "playbook"]
    assert not memories_of(Archive.open(second.run, tmp_path)).alone


@pytest.mark.parametrize(("steering", "taken"), [((), ["near"]), (("memory",), ["near", "far"])])
async def test_far_shapes_are_carried_over_only_where_the_profile_says_so(
    searched: Search, monkeypatch: pytest.MonkeyPatch, steering: tuple[str, ...], taken: list[str]
) -> None:
    offered: list[str] = []

    def like(self: KernelLibrary, key: TaskKey, kind: str, device: str) -> tuple[Kept, ...]:
        sizes = {"near": (1536, 1024), "far": (4096, 1024)}
        keys = {name: key.model_copy(update={"shape": of}) for name, of in sizes.items()}
        return tuple(
            Kept.model_construct(key=of, task=name, architecture="") for name, of in keys.items()
        )

    def remembered(exactly: object, like: list[Kept], *rest: object, **more: object) -> Memories:
        offered.extend(item.task for item in like)
        return Memories()

    monkeypatch.setattr(KernelLibrary, "like", like)
    monkeypatch.setattr(remembering, "remembered", remembered)
    await searched(rounds=1, rules_steer_by=steering, tuning_trials=0)
    assert offered == taken
