import importlib.util
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.graphs.run_view.events import Event
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import Graph, Node, Ref, TracePolicy
from kernelwright.tools.types.run import Summary

TOY = Path(__file__).with_name("toy.py")


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("toy_search", TOY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["toy_search"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def toy() -> ModuleType:
    """The toy search beside this file."""
    return _load()


@pytest.fixture(scope="session")
def tiny() -> SearchProfile:
    """One candidate of one idea: a real search is over in seconds."""
    return SearchProfile(
        name="tiny", rounds=1, ideas_per_round=1, candidates_per_idea=1, repairs=0, patience=1,
        seconds=600, tuning_trials=0, finalists=1, stop_at_floor_fraction=1.0, minimum_gain=1.0,
    )  # fmt: skip


@pytest.fixture(scope="session")
def short() -> Rules:
    """What is claimed of times takes seconds; here it is that something was timed."""
    return Rules(precise_s=0.05, certify_s=0.1, mode_s=0.05, latency_s=0.05, settle_max_s=0.1)


@pytest.fixture
def search(toy: ModuleType, tmp_path: Path) -> Callable[..., Awaitable[Summary]]:
    """Run a whole toy search; keyword arguments of the profile, or an executor, may be given."""

    async def run(
        *,
        executor: object = None,
        events: list[Event] | None = None,
        control: Control | None = None,
        seed: int = 0,
        listener: Callable[[Event], None] | None = None,
        loops: object = None,
        home: Path = tmp_path,
        **profile: object,
    ) -> Summary:
        chosen = SearchProfile.model_validate(toy.PROFILE.model_dump() | profile)
        told = listener or (events.append if events is not None else None)
        known = toy.LOOPS if loops is None else loops
        summary = await start_search(
            Path("toy.py"),
            TracePolicy(),
            "cpu",
            chosen,
            seed=seed,
            home=home,
            listener=told,
            control=control,
            executor=executor or toy.ToyExecutor(),
            make_agents=lambda around: toy.toy_agents(known),
        )
        assert isinstance(summary, Summary)
        return summary

    return run


@pytest.fixture
def resume(toy: ModuleType, tmp_path: Path) -> Callable[..., Awaitable[Summary]]:
    """Resume a toy search."""

    async def run(
        id: str,
        *,
        executor: object = None,
        events: list[Event] | None = None,
        rounds: int | None = None,
    ) -> Summary:
        summary = await resume_search(
            id,
            home=tmp_path,
            rounds=rounds,
            listener=events.append if events is not None else None,
            executor=executor or toy.ToyExecutor(),
            make_agents=lambda around: toy.toy_agents(toy.LOOPS),
        )
        assert isinstance(summary, Summary)
        return summary

    return run


@pytest.fixture
def searched(
    search: Callable[..., Awaitable[Summary]], toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Awaitable[Summary]]:
    """A toy search over a task that computes something."""
    nodes = (
        Node(name="x", op="input", out=(toy.SPEC,)),
        Node(name="y", op="aten.exp.default", args=(Ref(node="x"),), out=(toy.SPEC,)),
    )
    graph = Graph(nodes=nodes, inputs=("x",), outputs=("y",))
    task = toy.TASK.model_copy(update={"graph": graph})
    monkeypatch.setattr(toy, "TASK", task)
    return search
