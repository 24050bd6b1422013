"""Models that are listened to while they speak; times are the toy's formula."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import kernelwright.graphs.search.agent_set
from kernelwright.graphs.run_view.events import LONGEST, Event, ModelCalled, Speech, Speeches
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.profiles.load import ModelProfile, Models, SearchProfile
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Message, Prompt, TracePolicy
from kernelwright.tools.types.run import Summary

SERVER = Path(__file__).parents[3] / "benchmarks" / "models" / "misbehaving_server.py"
ANSWER = json.dumps({"reasoning": "the row is read once " * 20, "ideas": []})
PROMPT = Prompt(key="planner:1", role="planner", messages=(), round=1)


@pytest.fixture
def models() -> Iterator[Models]:
    """Models behind a server that streams."""
    spec = importlib.util.spec_from_file_location("streaming_server", SERVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["streaming_server"] = module
    spec.loader.exec_module(module)
    with module.MisbehavingServer(lambda messages: ANSWER) as server:
        known = {"name": "loopback", "model": "tiny", "base_url": server.base_url}
        yield Models.same(ModelProfile.model_validate(known | {"timeout_s": 60.0, "retries": 0}))


@pytest.fixture(autouse=True)
def _toys_repertoire(toy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    repertoire = toy.ToyRepertoire(toy.LOOPS)
    monkeypatch.setattr(
        kernelwright.graphs.search.agent_set, "_repertoire", lambda around: repertoire
    )


async def _search(toy: ModuleType, home: Path, models: Models, **given: object) -> Summary:
    profile = SearchProfile.model_validate(toy.PROFILE.model_dump() | {"rounds": 1})
    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", profile,
        home=home, executor=toy.ToyExecutor(), models=models, **given,
    )  # fmt: skip
    assert isinstance(summary, Summary)
    return summary


async def test_what_models_say_is_heard_in_pieces_and_not_kept(
    toy: ModuleType, tmp_path: Path, models: Models
) -> None:
    heard: dict[str, list[str]] = {}
    summary = await _search(
        toy, tmp_path, models,
        overhear=lambda prompt, piece: heard.setdefault(prompt.key, []).append(piece),
    )  # fmt: skip
    assert len(heard["planner:1"]) > 3
    assert "".join(heard["planner:1"]) == ANSWER
    archive = Archive.open(summary.run, tmp_path)
    assert {event.kind for event in archive.events()} <= set(_kinds())
    assert set(heard) == {call.prompt.key for call in archive.calls()}


async def test_a_resumed_search_is_heard_too(
    toy: ModuleType, tmp_path: Path, models: Models
) -> None:
    summary = await _search(toy, tmp_path, models)
    heard: list[str] = []
    more = await resume_search(
        summary.run, home=tmp_path, rounds=2, executor=toy.ToyExecutor(),
        overhear=lambda prompt, piece: heard.append(prompt.key),
    )  # fmt: skip
    assert isinstance(more, Summary)
    assert heard
    assert "planner:1" not in heard


async def test_a_listener_that_fails_does_not_spoil_the_answer(
    toy: ModuleType, tmp_path: Path, models: Models
) -> None:
    def fail(prompt: Prompt, piece: str) -> None:
        raise RuntimeError("the page is gone")

    events: list[Event] = []
    summary = await _search(toy, tmp_path, models, overhear=fail, listener=events.append)
    assert summary.status == "improved"
    called = [event for event in events if isinstance(event, ModelCalled)]
    assert called
    assert all("the page is gone" not in event.failure for event in called)


def test_a_speech_is_all_that_was_said_so_far() -> None:
    speeches = Speeches()
    for piece in ("", "read ", "once"):
        speeches.hear(PROMPT, piece)
    assert speeches.now() == (Speech(key="planner:1", role="planner", round=1, text="read once"),)


def test_a_speech_that_begins_anew_forgets_what_was_said() -> None:
    speeches = Speeches()
    for piece in ("", "read ", "", "keep"):
        speeches.hear(PROMPT, piece)
    assert [item.text for item in speeches.now()] == ["keep"]


def test_a_speech_has_an_end_and_a_bound() -> None:
    speeches = Speeches()
    speeches.hear(PROMPT, "x" * (LONGEST - 1))
    speeches.hear(PROMPT, "yy")
    speeches.hear(PROMPT, "zz")
    assert speeches.now()[0].text == "x" * (LONGEST - 1) + "y"
    other = Prompt(key="coder:1", role="coder", messages=(Message(author="person", text="?"),))
    speeches.hear(other, "code")
    speeches.end("planner:1")
    assert [item.key for item in speeches.now()] == ["coder:1"]
    speeches.clear()
    assert speeches.now() == ()


def _kinds() -> tuple[str, ...]:
    from typing import get_args

    classes = get_args(get_args(Event)[0])
    return tuple(item.model_fields["kind"].default for item in classes)
