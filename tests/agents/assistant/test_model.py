"""The assistant with a language model: a parrot for what it makes of answers, servers too."""

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.agents.assistant.model import (
    Answer,
    Call,
    ModelAssistant,
    as_call,
    as_functions,
    commands_of,
    offered,
    result,
    sanitize_markdown,
    situation,
)
from kernelwright.agents.assistant.types import (
    COMMAND,
    AskAbout,
    Attachment,
    ChatReply,
    CommandResult,
    CompareCandidates,
    ExplainCandidate,
    ExportResult,
    ListRuns,
    Offer,
    SetBudget,
    ShowCode,
    ShowLedger,
    ShowProgress,
    StartSearch,
    Steer,
    Turn,
    Unclear,
)
from kernelwright.agents.assistant.types.pieces import Code, Table, Words
from kernelwright.agents.llm.client import LLMError
from kernelwright.agents.llm.wrappers import endpoint_client
from kernelwright.profiles.load import ModelProfile
from kernelwright.tools.types import Prompt, Reply, ToolCall

ROOT = Path(__file__).parents[3]
HARD = "which of them has the nicest access pattern, in your opinion"


class Parrot:
    """Says what it was given, in turn, and keeps what it was asked."""

    def __init__(self, *replies: Reply | str | Exception) -> None:
        self.replies = list(replies)
        self.asked: list[Prompt] = []

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        said = self.replies.pop(0)
        if isinstance(said, Exception):
            raise said
        return said if isinstance(said, Reply) else Reply(text=said)


def calls(*named: tuple[str, dict[str, object]], text: str = "") -> Reply:
    made = (ToolCall(name=name, arguments=json.dumps(given)) for name, given in named)
    return Reply(text=text, calls=tuple(made))


@pytest.fixture
def live(situations: dict[str, Turn]) -> Turn:
    return situations["running"].model_copy(update={"text": HARD})


async def test_native_calls_become_commands_in_their_order(live: Turn) -> None:
    reply = calls(
        ("compare_candidates", {"one": "v3", "other": "v5"}),
        ("show_code", {"candidate": "v3"}),
        text="Let me look.",
    )
    found = await ModelAssistant(Parrot(reply)).understand(live)
    assert found.commands == (CompareCandidates(one="v3", other="v5"), ShowCode(candidate="v3"))
    assert found.words == "Let me look."


@pytest.mark.parametrize(
    "text",
    [
        '{"words": "", "calls": [{"tool": "show_ledger", "arguments": {}}]}',
        '```json\n{"calls": [{"tool": "show_ledger"}]}\n```',
        'Sure.\n{"tool": "show_ledger", "arguments": {}}',
        '<tool_call>\n{"name": "show_ledger", "arguments": {}}\n</tool_call>',
        '<think>maybe progress?</think>{"calls": [{"tool": "show_ledger"}], "words": ""}',
    ],
)
async def test_calls_written_as_text_are_read_too(live: Turn, text: str) -> None:
    found = await ModelAssistant(Parrot(text)).understand(live)
    assert found.commands == (ShowLedger(),)
    assert found.words == ""


async def test_plain_words_are_the_answer(live: Turn) -> None:
    found = await ModelAssistant(Parrot("Both read rows once.")).understand(live)
    assert (found.commands, found.words) == ((), "Both read rows once.")


async def test_arguments_that_do_not_fit_are_left_out() -> None:
    answer = Answer(
        calls=(
            Call(tool="steer", arguments={"hints": ["tiles"], "pins": 3, "mood": "good"}),
            Call(tool="functions.show_code", arguments={"candidate": None}),
            Call(tool="reopen_run"),
            Call(tool="rm_rf", arguments={"path": "/"}),
            Call(tool="export_result", arguments={"format": "module", "approved": True}),
            Call(tool="load_task", arguments={"source": "x"}),
        )
    )
    assert commands_of(answer) == (Steer(hints=("tiles",)), ShowCode(), ExportResult())


def test_every_command_but_two_is_a_tool_that_can_be_called_back() -> None:
    functions = json.loads(as_functions())
    assert [item["function"]["name"] for item in functions] == list(offered())
    assert not {"load_task", "unclear"} & set(offered())
    for name, kind in offered().items():
        needed = {"run": "r"} if name == "reopen_run" else {}
        command = COMMAND.validate_python({"kind": name, **needed})
        call = Call.model_validate_json(as_call(command))
        assert commands_of(Answer(calls=(call,))) == (command,)
        assert kind.__doc__
    assert "approved" not in as_functions()


async def test_what_spends_time_is_only_proposed(situations: dict[str, Turn]) -> None:
    turn = situations["task"].model_copy(update={"text": HARD})
    reply = calls(("start_search", {"rounds": 50}), ("audit_task", {}))
    found = await ModelAssistant(Parrot(reply)).understand(turn)
    assert [command.kind for command in found.commands] == ["audit_task", "unclear"]
    assert found.commands[-1] == Unclear(guesses=(StartSearch(rounds=50),))


@pytest.mark.parametrize("text", ["pause", "stop", "halte die Suche an", "that's enough"])
async def test_what_holds_or_ends_a_search_does_not_wait_for_a_model(live: Turn, text: str) -> None:
    parrot = Parrot()
    turn = live.model_copy(update={"text": text})
    found = await ModelAssistant(parrot).understand(turn)
    assert found.commands
    done = tuple(
        CommandResult(command=command, reply=ChatReply.of("done")) for command in found.commands
    )
    assert (await ModelAssistant(parrot).understand(turn, done)).commands == ()
    assert parrot.asked == []


async def test_files_and_open_questions_are_not_asked_about(situations: dict[str, Turn]) -> None:
    parrot = Parrot()
    file = Attachment(name="a.py", text="import torch\n\ndef f(x):\n    return x\n")
    turn = situations["nothing"].model_copy(update={"text": HARD, "attachments": (file,)})
    assert (await ModelAssistant(parrot).understand(turn)).commands[0].kind == "load_task"
    go = Offer(label="Go", wish=StartSearch())
    turn = situations["task"].model_copy(update={"text": "yes", "offers": (go,)})
    assert (await ModelAssistant(parrot).understand(turn)).commands == (StartSearch(),)
    assert parrot.asked == []


@pytest.mark.parametrize(
    "text", ["no half precision", "will it still train?", "use at most 10000 tokens", "danke"]
)
async def test_a_model_hears_every_other_message_first(live: Turn, text: str) -> None:
    parrot = Parrot(calls(("steer", {"bans": ["fp16"]}), text="Verstanden."))
    turn = live.model_copy(update={"text": text, "facts": ("Device: H200.",)})
    found = await ModelAssistant(parrot).understand(turn)
    assert (found.commands, found.words) == ((Steer(bans=("fp16",)),), "Verstanden.")
    assert "Device: H200." in parrot.asked[0].messages[0].text


@pytest.mark.parametrize("reply", ["On it!", '{"mood": "eager"}', "```json\n{broken", "[]"])
async def test_an_order_that_a_model_only_talks_about_is_carried_out(
    live: Turn, reply: str
) -> None:
    turn = live.model_copy(update={"text": "use at most 10000 tokens"})
    found = await ModelAssistant(Parrot(reply)).understand(turn)
    assert (found.commands, found.words) == ((SetBudget(tokens=10000),), "")


@pytest.mark.parametrize("reply", ['{"mood": "eager"}', "```json\n{broken"])
async def test_an_answer_outside_its_format_leaves_it_to_the_rules(live: Turn, reply: str) -> None:
    turn = live.model_copy(update={"text": "trainiert es noch?"})
    found = await ModelAssistant(Parrot(reply)).understand(turn)
    assert found.commands == (AskAbout(topic="gradients"),)


async def test_a_search_that_both_understood_is_begun_without_another_button(
    situations: dict[str, Turn],
) -> None:
    turn = situations["task"].model_copy(update={"text": "go, at most 2 rounds"})
    both = calls(("start_search", {"rounds": 2}))
    found = await ModelAssistant(Parrot(both)).understand(turn)
    assert found.commands == (StartSearch(rounds=2),)
    more = calls(("start_search", {"rounds": 50}))
    found = await ModelAssistant(Parrot(more)).understand(turn)
    assert found.commands == (Unclear(guesses=(StartSearch(rounds=50),)),)


async def test_a_model_sees_what_was_done_and_does_not_do_it_twice(live: Turn) -> None:
    reply = ChatReply(
        pieces=(
            Words(text="v3 leads."),
            Table(title="Leaders", columns=("id", "time"), rows=(("v3", "1.2 ms"),)),
            Code(title="v3", text="y = x;", language="cuda"),
        ),
        offers=(Offer(label="Export", wish=ExportResult()),),
    )
    parrot = Parrot(calls(("show_progress", {}), ("list_runs", {})), "It leads by little.")
    assistant = ModelAssistant(parrot)
    done = (CommandResult(command=ShowProgress(), reply=reply),)
    assert (await assistant.understand(live, done)).commands == (ListRuns(),)
    found = await assistant.understand(live, done)
    assert (found.commands, found.words) == ((), "It leads by little.")
    told = parrot.asked[0].messages[-1].text
    assert all(part in told for part in ("v3 leads.", "1.2 ms", "y = x;", "Buttons: Export"))
    assert parrot.asked[0].messages[-2].author == "model"


async def test_the_prompt_says_what_there_is(live: Turn) -> None:
    parrot = Parrot("Fine.")
    turn = live.model_copy(update={"earlier": (("how is v9?", "It is slow."),)})
    await ModelAssistant(parrot).understand(turn)
    system, *rest = parrot.asked[0].messages
    assert "`v1` to `v20`" in system.text
    assert "Idea 3: wider vectors" in system.text
    assert "`compare_candidates(one, other)`" in system.text
    assert [item.text for item in rest] == ["how is v9?", "It is slow.", HARD]
    assert "There is no task yet." in situation(Turn(text=""))


def test_a_long_result_is_cut_for_the_model() -> None:
    assert len(result(ChatReply.of("x" * 50_000))) < 7_000


async def test_without_an_answer_rules_understand_and_say_so(live: Turn) -> None:
    turn = live.model_copy(update={"text": "why is v17 faster than v12?"})
    found = await ModelAssistant(Parrot(LLMError("it is gone"))).understand(turn)
    assert found.commands == (CompareCandidates(one="v17", other="v12"),)
    assert "it is gone" in found.words
    done = (CommandResult(command=found.commands[0], reply=ChatReply.of("it reads once")),)
    again = await ModelAssistant(Parrot(LLMError("it is gone"))).understand(turn, done)
    assert (again.commands, again.words) == ((), "")


async def test_an_empty_answer_falls_back_to_rules(live: Turn) -> None:
    turn = live.model_copy(update={"text": "explain v3"})
    assistant = ModelAssistant(Parrot('{"words": "", "calls": []}'))
    assert (await assistant.understand(turn)).commands == (ExplainCandidate(candidate="v3"),)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain *words* and `code <b>`", "plain *words* and `code <b>`"),
        ("![x](http://evil.example/a.png?q=1) there", "x there"),
        ("![x][1] there\n[1]: http://evil.example", "x there"),
        ("see [this](javascript:alert(1))", "see this)"),
        ("see [docs](https://evil.example/x)", "see docs"),
        ("<img src=x onerror=alert(1)>", "&lt;img src=x onerror=alert(1)>"),
        ("go to https://evil.example/?a=b now", "go to `https://evil.example/?a=b` now"),
        ("a < b and 3 <4", "a < b and 3 <4"),
        ("```html\n<b>\n```", "```html\n<b>\n```"),
    ],
)
def test_a_models_words_are_harmless_to_show(text: str, shown: str) -> None:
    assert sanitize_markdown(text) == shown


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def serve() -> Iterator[Callable[..., object]]:
    """Start servers that call tools; all are closed afterwards."""
    module = _load("calling_server", Path(__file__).with_name("calling_server.py"))
    started = []

    def start(*replies: object, refusal: str = "") -> object:
        started.append(module.CallingServer(*replies, refusal=refusal))
        return started[-1]

    yield start
    for server in started:
        server.close()


def _profile(server: object, **fields: object) -> ModelProfile:
    known = {"name": "loopback", "model": "tiny", "base_url": server.base_url}
    known |= {"timeout_s": 60.0, "retries": 1, "retry_wait_s": 0.01}
    return ModelProfile.model_validate(known | fields)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_real_server_is_offered_tools_and_calls_them(
    serve: Callable[..., object], live: Turn, stream: bool
) -> None:
    server = serve(
        [("compare_candidates", '{"one": "v3", "other": "v5"}'), ("show_ledger", "")],
        "They differ in the second read.",
    )
    assistant = ModelAssistant(endpoint_client(_profile(server, stream=stream)))
    found = await assistant.understand(live)
    assert found.commands == (CompareCandidates(one="v3", other="v5"), ShowLedger())
    done = tuple(
        CommandResult(command=command, reply=ChatReply.of("shown")) for command in found.commands
    )
    found = await assistant.understand(live, done)
    assert (found.commands, found.words) == ((), "They differ in the second read.")
    *_, first, came, second, other = server.requests[1]["messages"]
    assert first["tool_calls"][0]["function"]["name"] == "compare_candidates"
    assert came["tool_call_id"] == first["tool_calls"][0]["id"] != other["tool_call_id"]
    assert (came["role"], second["role"], other["role"]) == ("tool", "assistant", "tool")
    offered_there = [item["function"]["name"] for item in server.requests[0]["tools"]]
    assert offered_there == list(offered())


@pytest.mark.parametrize(
    "refusal",
    [
        "Unsupported parameter: 'tools'",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    ],
)
async def test_a_server_without_tools_is_asked_in_words(
    serve: Callable[..., object], live: Turn, refusal: str
) -> None:
    server = serve('{"calls": [{"tool": "show_ledger"}]}', refusal=refusal)
    assistant = ModelAssistant(endpoint_client(_profile(server)))
    for _ in range(2):
        assert (await assistant.understand(live)).commands == (ShowLedger(),)
    assert ["tools" in request for request in server.requests] == [True, False, False]


@pytest.mark.exhaustive
async def test_every_kind_of_fault_leaves_an_understanding(live: Turn) -> None:
    module = _load(
        "misbehaving_server_too", ROOT / "benchmarks" / "models" / "misbehaving_server.py"
    )
    answer = '{"words": "Fine.", "calls": [{"tool": "show_ledger"}]}'
    turn = live.model_copy(update={"text": "explain v3, and all of the others while you are at it"})
    for fault in module.Fault:
        server = module.MisbehavingServer(lambda messages: answer, [fault] * 9, stall_s=1.0)
        with server:
            profile = _profile(server, timeout_s=0.7 if "stops" in fault else 5.0)
            found = await ModelAssistant(endpoint_client(profile)).understand(turn)
            assert found.commands or found.words, fault
