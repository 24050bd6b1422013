"""A search whose prompts evolved and whose islands took turns, asked of a server, then replayed."""

import importlib.util
import json
import sys
from itertools import cycle
from pathlib import Path
from types import ModuleType

import pytest

import kernelwright.graphs.search.agent_set
from kernelwright.graphs.replay import replay
from kernelwright.graphs.search.run import start_search
from kernelwright.profiles.load import ModelProfile, Models, SearchProfile
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import TracePolicy
from kernelwright.tools.types.run import Summary

SERVER = Path(__file__).parents[3] / "benchmarks" / "models" / "misbehaving_server.py"
WAYS = (
    ("Warp shuffles", "Lanes hold a row in registers and reduce by shuffles."),
    ("Shared tiles", "Blocks copy squares of 64 columns through memory, double buffered."),
    ("Fused epilogue", "The addition happens before the store, with streaming hints."),
    ("Persistent blocks", "One block a processor loops over work from a queue."),
)


def server_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("misbehaving_server", SERVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["misbehaving_server"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.exhaustive
async def test_what_evolved_evolves_again_without_the_server(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = cycle(WAYS)

    def say(messages: object) -> str:
        asked = json.dumps(messages, default=str)
        if "You are the strategist" in asked:
            return json.dumps({"why": "outcomes", "points": [f"of {len(asked)} words", "more"]})
        title, mechanism = next(ways)
        idea = {"title": title, "mechanism": mechanism, "playbook": "P1"}
        return json.dumps({"reasoning": "", "ideas": [idea]})

    repertoire = toy.ToyRepertoire(toy.LOOPS)
    monkeypatch.setattr(
        kernelwright.graphs.search.agent_set, "_repertoire", lambda around: repertoire
    )
    profile = toy.PROFILE.model_dump() | {"islands": 2, "tuning_trials": 0, "ideas_per_round": 1}
    server = server_module().MisbehavingServer(say, (), stall_s=2.0)
    try:
        summary = await start_search(
            Path("toy.py"), TracePolicy(), "cpu", SearchProfile.model_validate(profile),
            home=tmp_path, executor=toy.ToyExecutor(),
            models=Models.same(
                ModelProfile(name="loopback", model="tiny", base_url=server.base_url, retries=0)
            ),
        )  # fmt: skip
    finally:
        server.close()
    assert isinstance(summary, Summary)
    archive = Archive.open(summary.run, tmp_path)
    assert [item.id for item in archive.strategies()] == ["planner:0", "planner:1", "planner:2"]
    assert [idea.strategy for idea in archive.ideas()] == ["planner:0", "planner:1", "planner:2"]
    told = await replay(summary.run, home=tmp_path)
    assert told.difference is None
    assert told.same > 20
