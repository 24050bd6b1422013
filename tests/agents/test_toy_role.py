"""A role that is added with its own folder and one line works in a real search, end to end."""

import importlib.util
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

import kernelwright.graphs.search.agent_set
from kernelwright.agents.prompting.templates import PromptError
from kernelwright.agents.role import Place, Role, StepRole
from kernelwright.agents.roles import ROLES
from kernelwright.graphs.replay import replay
from kernelwright.graphs.run_view.events import Event, ModelCalled, RoleAnswered
from kernelwright.graphs.run_view.story import Story, load
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.graphs.suite.ablation import parts
from kernelwright.profiles.load import ModelProfile, Models, SearchProfile
from kernelwright.tools.archive import Archive, RunError
from kernelwright.tools.types import TracePolicy
from kernelwright.tools.types.run import Summary
from kernelwright.ui.chat.messages.roles import answered, asked
from kernelwright.ui.model_choice import Choice, chosen_models
from kernelwright.ui.terminal.trace import trace

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
PLAN = {
    "reasoning": "the row is read once",
    "ideas": [{
        "title": "read rows once", "mechanism": "keeps the row on chip", "reason": "half the bytes",
        "category": "memory", "metric": "bytes read: 2x -> 1x", "predicted_ms": 1.0,
        "playbook": "P1",
    }],
}  # fmt: skip
REMARK = {"words": "Keep rows on chip.", "candidate": "the best"}

Search = Callable[..., Awaitable[Summary]]


def _load(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def editor() -> Iterator[ModuleType]:
    """The toy role, registered: the one line that a new role needs."""
    module = _load("toy_editor", HERE / "editor" / "role.py")
    ROLES.add(module.EDITOR)
    yield module
    if "editor" in ROLES.names:
        ROLES.remove(module.EDITOR)


@pytest.fixture(scope="module")
def toy() -> ModuleType:
    return _load("toy_search", REPOSITORY / "tests" / "graphs" / "toy.py")


@pytest.fixture
def models() -> Iterator[Models]:
    """A server that plans as a planner and remarks as an editor."""
    misbehaving = _load(
        "misbehaving", REPOSITORY / "benchmarks" / "models" / "misbehaving_server.py"
    )

    def reply(messages: list[dict[str, str]]) -> str:
        told = REMARK if "the editor" in messages[0]["content"] else PLAN
        return json.dumps(told)

    server = misbehaving.MisbehavingServer(reply)
    profile = ModelProfile(
        name="loopback", model="tiny", base_url=server.base_url, retry_wait_s=0.0, retries=1
    )
    yield Models.same(profile)
    server.close()


@pytest.fixture
def search(toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    """A real search over the toy's task; nothing of it knows the role."""
    repertoire = toy.ToyRepertoire(toy.LOOPS)
    monkeypatch.setattr(
        kernelwright.graphs.search.agent_set, "_repertoire", lambda around: repertoire
    )

    async def run(
        models: Models | None = None, events: list[Event] | None = None, **profile: object
    ) -> Summary:
        chosen = SearchProfile.model_validate(toy.PROFILE.model_dump() | {"rounds": 2} | profile)
        summary = await start_search(
            Path("toy.py"), TracePolicy(), "cpu", chosen, home=tmp_path,
            executor=toy.ToyExecutor(), models=models,
            listener=None if events is None else events.append,
        )  # fmt: skip
        assert isinstance(summary, Summary)
        return summary

    return run


def remarks(events: list[Event]) -> list[RoleAnswered]:
    return [event for event in events if isinstance(event, RoleAnswered)]


async def test_by_rules_it_is_asked_after_every_critique_and_its_answer_is_kept(
    editor: ModuleType, search: Search, tmp_path: Path
) -> None:
    events: list[Event] = []
    summary = await search(events=events)
    kinds = [event.kind for event in events]
    assert [event.round for event in remarks(events)] == [1, 2]
    assert all(
        kinds[at - 1] == "critiqued" for at, kind in enumerate(kinds) if kind == "role_answered"
    )
    archive = Archive.open(summary.run, tmp_path)
    kept = [json.loads(item.payload) for item in archive.events(kind="role_answered")]
    analyses = archive.analyses()
    archive.close()
    assert kept[0]["role"] == "editor"
    said = editor.Remark.model_validate_json(kept[0]["answer"])
    assert said.words == kept[0]["words"]
    assert analyses[0].implies.startswith(said.words)


async def test_by_a_model_its_calls_are_recorded_and_a_replay_says_the_same(
    editor: ModuleType, search: Search, models: Models, tmp_path: Path
) -> None:
    events: list[Event] = []
    summary = await search(models, events)
    assert {event.words for event in remarks(events)} == {REMARK["words"]}
    called = [event.key for event in events if isinstance(event, ModelCalled)]
    assert {"editor:1", "editor:2"} <= set(called)
    archive = Archive.open(summary.run, tmp_path)
    assert [call.prompt.role for call in archive.calls("editor:1")] == ["editor"]
    archive.close()
    told = await replay(summary.run, home=tmp_path)
    assert told.difference is None
    assert told.reworded == ()


async def test_it_is_shown_by_its_own_name_in_trace_and_chat(
    editor: ModuleType, search: Search, models: Models, tmp_path: Path
) -> None:
    events: list[Event] = []
    summary = await search(models, events)
    printed = StringIO()
    story: Story = load(summary.run, tmp_path)
    trace(story, Console(file=printed, width=120))
    assert "editor    Keep rows on chip." in printed.getvalue()
    line = answered("k", remarks(events)[0])
    assert (line.name, line.icon) == ("Editor: Keep rows on chip.", "pencil")
    call = next(e for e in events if isinstance(e, ModelCalled) and e.role == "editor")
    assert asked("k", call).name.startswith("Editor: asked ")


async def test_a_run_knows_its_roles_and_is_not_resumed_or_replayed_without_them(
    editor: ModuleType, search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    summary = await search(rounds=1)
    ROLES.remove(editor.EDITOR)
    with pytest.raises(RunError, match="has a role 'editor', which is not known here"):
        await replay(summary.run, home=tmp_path)
    with pytest.raises(RunError, match="'editor'"):
        await resume_search(summary.run, home=tmp_path, rounds=2, executor=toy.ToyExecutor())


async def test_a_run_from_before_the_role_goes_on_without_it(
    editor: ModuleType, search: Search, tmp_path: Path
) -> None:
    ROLES.remove(editor.EDITOR)
    summary = await search()
    ROLES.add(editor.EDITOR)
    told = await replay(summary.run, home=tmp_path)
    assert told.difference is None


async def test_an_ablation_switches_it_off_by_its_name(editor: ModuleType, search: Search) -> None:
    assert parts()[-1] == "role:editor"
    events: list[Event] = []
    await search(events=events, without=("role:editor",))
    assert remarks(events) == []


@pytest.mark.parametrize(
    "place", ["before_plan", "after_profile", "after_critique", "after_select"]
)
async def test_it_may_stand_at_any_step(
    place: Place, editor: ModuleType, search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    ROLES.remove(editor.EDITOR)
    seen: list[int] = []

    class Counting:
        async def answer(self, question: int) -> object:
            seen.append(question)
            return editor.Remark(words="counted")

    role = editor.step_role(
        "counter", place, question=lambda view: view.round,
        by_rules=lambda setting: Counting(), by_model=lambda client, setting: Counting(),
        shown=editor.Appearance("Counter"),
    )  # fmt: skip
    ROLES.add(role)
    try:
        await search()
    finally:
        ROLES.remove(role)
    assert seen == [1, 2]


def test_a_model_for_it_can_be_named_on_the_command_line(editor: ModuleType) -> None:
    chosen = chosen_models(
        Choice(model="m", base_url="http://127.0.0.1:1/v1", roles=("editor=other",))
    )
    assert chosen is not None
    assert (chosen.of("editor").model, chosen.of("critic").model) == ("other", "m")
    assert Models.model_validate_json(chosen.model_dump_json()) == chosen


def test_a_name_is_taken_once(editor: ModuleType) -> None:
    with pytest.raises(ValueError, match="'editor' already"):
        ROLES.add(editor.EDITOR)


def test_its_prompt_is_checked_when_its_agent_is_made(
    editor: ModuleType, toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = editor.PromptTemplate
    monkeypatch.setattr(editor, "PromptTemplate", lambda file, *fields: words(file, *fields[1:]))
    with pytest.raises(PromptError, match=r"editor\.md: nobody fills in the placeholder 'round'"):
        editor.ModelEditor(None, editor.PlainEditor())


def test_every_role_of_a_search_has_a_name_a_look_and_only_steps_have_a_position() -> None:
    roles: list[Role[object]] = list(ROLES)
    assert [role.name for role in roles] == [
        "planner", "coder", "profiler", "critic", "strategist",
    ]  # fmt: skip
    assert all(role.shown.label == role.name.capitalize() for role in roles)
    assert not any(isinstance(role, StepRole) for role in roles)
