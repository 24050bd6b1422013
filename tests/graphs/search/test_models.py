"""Searches in which models think, behind a server that misbehaves; times are the toy's formula."""

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from types import ModuleType

import pytest

import kernelwright.graphs.search.agent_set
from kernelwright.graphs.run_view.events import Event, ModelCalled, Noted
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.profiles.load import ModelProfile, Models, SearchProfile
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import TracePolicy
from kernelwright.tools.types.run import Summary

SERVER = Path(__file__).parents[3] / "benchmarks" / "models" / "misbehaving_server.py"
# The first idea that the playbook would have had, taken over: its coder writes it.
PLAN = json.dumps(
    {
        "reasoning": "the row is read once",
        "ideas": [
            {
                "title": "read rows once",
                "mechanism": "keeps the row on chip",
                "reason": "half the traffic",
                "category": "memory",
                "metric": "bytes read: 2x -> 1x",
                "predicted_ms": 1.0,
                "playbook": "P1",
            }
        ],
    }
)

Run = Callable[..., object]


@pytest.fixture(scope="module")
def misbehaving() -> ModuleType:
    spec = importlib.util.spec_from_file_location("misbehaving_server", SERVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["misbehaving_server"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def serve(misbehaving: ModuleType) -> Iterator[Callable[..., Models]]:
    """Start servers that answer every question with a plan; models that reach them come back."""
    started = []

    def start(faults: object = (), **fields: object) -> Models:
        server = misbehaving.MisbehavingServer(lambda messages: PLAN, faults, stall_s=4.0)
        started.append(server)
        known = {"name": "loopback", "model": "tiny", "base_url": server.base_url}
        known |= {"timeout_s": 60.0, "retry_wait_s": 0.0, "retries": 1}
        return Models.same(ModelProfile.model_validate(known | fields))

    yield start
    for server in started:
        server.close()


@pytest.fixture
def search(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., object]:
    """A toy search in which these models think, with the toy's repertoire behind them."""
    repertoire = toy.ToyRepertoire(toy.LOOPS)
    monkeypatch.setattr(
        kernelwright.graphs.search.agent_set, "_repertoire", lambda around: repertoire
    )

    async def run(
        models: Models | None, events: list[Event] | None = None, **profile: object
    ) -> Summary:
        chosen = SearchProfile.model_validate(toy.PROFILE.model_dump() | profile)
        summary = await start_search(
            Path("toy.py"), TracePolicy(), "cpu", chosen,
            home=tmp_path, executor=toy.ToyExecutor(), models=models,
            listener=events.append if events is not None else None,
        )  # fmt: skip
        assert isinstance(summary, Summary)
        return summary

    return run


async def test_a_model_thinks_and_the_summary_counts_it(
    search: Run, serve: Callable[..., Models], tmp_path: Path
) -> None:
    events: list[Event] = []
    models = serve(usd_per_million_input=1, usd_per_million_output=2)
    summary = await search(models, events)
    assert summary.status == "improved"
    archive = Archive.open(summary.run, tmp_path)
    calls = archive.calls()
    assert summary.calls == len(calls) > 0
    assert summary.models == ("tiny-model",)
    assert summary.tokens.input == sum(c.reply.tokens.input for c in calls if c.reply)
    assert summary.usd == pytest.approx((summary.tokens.input + 2 * summary.tokens.output) / 1e6)
    told = [event for event in events if isinstance(event, ModelCalled)]
    assert [event.key for event in told] == [call.prompt.key for call in calls]
    assert "planner:1" in [event.key for event in told]
    assert any(idea.origin == "model" for idea in archive.ideas())
    assert json.loads(archive.term("models") or "{}")["critic"]["model"] == "tiny"


async def test_a_misbehaving_server_never_ends_a_run(
    search: Run, serve: Callable[..., Models], misbehaving: ModuleType
) -> None:
    faults = cycle(fault for fault in misbehaving.Fault if fault is not misbehaving.Fault.NONE)
    summary = await search(serve(faults, timeout_s=2.0))
    assert summary.status == "improved"
    assert summary.best is not None


async def test_a_server_that_is_gone_leaves_the_playbook_and_says_so(search: Run) -> None:
    gone = ModelProfile(name="gone", model="m", base_url="http://127.0.0.1:9/v1", retries=0)
    events: list[Event] = []
    summary = await search(Models.same(gone), events)
    plain = await search(None)
    assert summary.status == "improved"
    assert summary.best is not None
    assert plain.best is not None
    assert summary.best.median_ms == plain.best.median_ms
    assert summary.models == ()
    assert summary.usd is None
    notes = [event.words for event in events if isinstance(event, Noted)]
    assert any("playbook" in words and "cannot be reached" in words for words in notes)
    assert plain.calls == 0


@pytest.mark.exhaustive
async def test_a_search_ends_when_its_tokens_are_spent(
    search: Run, serve: Callable[..., Models], tmp_path: Path
) -> None:
    summary = await search(serve(), tokens=20_000, rounds=50, patience=50)
    assert summary.stopped_because == "the budget of 20000 tokens for models is used up"
    assert 0 < summary.tokens.input + summary.tokens.output <= 20_000
    assert summary.best is not None
    assert summary.rounds < 50


async def test_a_resume_goes_on_with_the_same_models_and_asks_nothing_twice(
    search: Run, serve: Callable[..., Models], toy: ModuleType, tmp_path: Path
) -> None:
    summary = await search(serve(), rounds=1)
    before = Archive.open(summary.run, tmp_path).calls()
    more = await resume_search(summary.run, home=tmp_path, rounds=2, executor=toy.ToyExecutor())
    assert isinstance(more, Summary)
    calls = Archive.open(summary.run, tmp_path).calls()
    assert calls[: len(before)] == before
    assert any(call.prompt.key == "planner:2" for call in calls[len(before) :])
    asked = [(call.prompt.key, call.prompt.sha256) for call in calls if call.reply]
    assert len(asked) == len(set(asked))


async def test_a_search_whose_tokens_are_spent_goes_on_with_more(
    search: Run, serve: Callable[..., Models], toy: ModuleType, tmp_path: Path
) -> None:
    summary = await search(serve(), tokens=4_000, rounds=2, patience=50)
    assert summary.stopped_because == "the budget of 4000 tokens for models is used up"
    same = await resume_search(summary.run, home=tmp_path, executor=toy.ToyExecutor())
    assert same == summary
    more = await resume_search(
        summary.run, home=tmp_path, executor=toy.ToyExecutor(), tokens=1_000_000
    )
    assert isinstance(more, Summary)
    assert more.stopped_because == "the budget of 2 rounds is used up"
    assert more.calls > summary.calls
