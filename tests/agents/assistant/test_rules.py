"""What the rules do with files, pasted code, answers to questions, and what they cannot read."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kernelwright.agents.assistant.rules import (
    ALL_RIGHT,
    AS_IT_IS,
    NEEDS_A_FILE,
    NOT_PYTHON,
    WELCOME,
    RulesAssistant,
    read,
)
from kernelwright.agents.assistant.types import (
    AskForHelp,
    Attachment,
    CancelTask,
    ChangeTask,
    ChatReply,
    Command,
    CommandResult,
    ExportResult,
    LoadTask,
    Offer,
    ShowProgress,
    StartSearch,
    Steer,
    StopSearch,
    Turn,
    Unclear,
)

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.py"))
MODULE = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(64, 128)]
"""
GO = Offer(label="Go", wish=StartSearch())
SHAPES = Offer(label="Use 64x1024:float32", wish=ChangeTask(inputs=("64x1024:float32",)))
CANCEL = Offer(label="Cancel", wish=CancelTask())
SITUATIONS = ("nothing", "task", "running", "ended")


def understood(text: str, turn: Turn | None = None, **fields: object) -> tuple[Command, ...]:
    start = turn or Turn(text="")
    return read(start.model_copy(update={"text": text, **fields})).understanding.commands


def words(text: str, turn: Turn, **fields: object) -> str:
    reading = read(turn.model_copy(update={"text": text, **fields}))
    assert reading.understanding.commands == ()
    return reading.understanding.words


def test_an_attached_file_is_a_task_and_the_device_is_kept() -> None:
    file = Attachment(name="softmax.py", text=MODULE)
    commands = understood("make this softmax faster on my L40S", attachments=(file,))
    assert commands == (LoadTask(source=MODULE, name="softmax.py", gpu="L40S"),)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_pasted_bare_arrives_whole(path: Path) -> None:
    source = path.read_text()
    (command,) = understood(f"Can you make this faster?\n\n{source}")
    assert isinstance(command, LoadTask)
    assert command.source.strip() == source.strip()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("```python\n", "\n```"),
        ("Please speed this up:\n```\n", "\n```\nthanks!"),
        ("~~~py\n", "\n~~~"),
        ("Hello.\n\n", "\nMake it fast, please."),
        ("", ""),
    ],
)
def test_pasted_code_is_a_task_whatever_stands_around_it(before: str, after: str) -> None:
    (command,) = understood(f"{before}{MODULE}{after}")
    assert isinstance(command, LoadTask)
    assert command.name == "pasted.py"
    compile(command.source, "pasted.py", "exec")
    assert "class Model" in command.source
    assert "get_inputs" in command.source


def test_what_is_said_of_shapes_and_precision_goes_with_the_code() -> None:
    load = LoadTask(source=MODULE, name="a.py")
    file = Attachment(name="a.py", text=MODULE)
    for text, more in (
        ("for (4096, 1024) fp16", (ChangeTask(inputs=("4096x1024:float16",)),)),
        ("tf32 is fine", (ChangeTask(precisions=("tf32",)),)),
        ("faster, but no half precision", (Steer(bans=("half precision",)),)),
        ("go", ()),
    ):
        assert understood(text, attachments=(file,)) == (load, *more)


def test_code_that_does_not_parse_still_reaches_who_can_say_why() -> None:
    (command,) = understood("import torch\n\nclass Model(nn.Module)\n    def forward(self, x):\n")
    assert isinstance(command, LoadTask)


@pytest.mark.parametrize(
    ("named", "gpu"),
    [
        ("on an H100", "H100"),
        ("for my rtx 4090", "RTX 4090"),
        ("on a100", "A100"),
        ("on an nvidia a100 80gb", "A100 80GB"),
        ("targeting the RTX3060 Ti", "RTX 3060 Ti"),
        ("on a 4090", "4090"),
        ("for mi300x", "MI300X"),
        ("on my cpu", "CPU"),
        ("auf meiner RTX 5090", "RTX 5090"),
        ("on GTX 1080 Ti", "GTX 1080 Ti"),
        ("for a Tesla T4", "T4"),
        ("with shape (4090, 100)", ""),
        ("the fastest you can", ""),
    ],
)
def test_a_named_device_is_kept_as_it_is_usually_written(named: str, gpu: str) -> None:
    file = Attachment(name="a.py", text=MODULE)
    load = understood(f"make this faster {named}", attachments=(file,))[0]
    assert isinstance(load, LoadTask)
    assert load.gpu == gpu


def test_of_several_files_the_one_with_inputs_is_taken_with_the_others_beside_it() -> None:
    helper = Attachment(name="a.py", text="import torch\ndef scale(x): return x * 2\n")
    files = (helper, Attachment(name="b.py", text="def get_inputs(): return []"))
    found = read(Turn(text="", attachments=files)).understanding
    (load,) = found.commands
    assert isinstance(load, LoadTask)
    assert (load.name, load.beside) == ("b.py", files[:1])
    assert "b.py" in found.words


def test_a_notebook_and_an_archive_are_taken() -> None:
    for file in (
        Attachment(name="a.ipynb", text="{}"),
        Attachment(name="a.ZIP", text="", content="UEs="),
    ):
        (load,) = understood("make it faster", attachments=(file,))
        assert isinstance(load, LoadTask)
        assert (load.source, load.content) == (file.text, file.content)


def test_a_file_that_is_no_python_is_refused_in_words(situations: dict[str, Turn]) -> None:
    picture = Attachment(name="graph.svg", text="<svg/>")
    assert words("", situations["nothing"], attachments=(picture,)) == NOT_PYTHON


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("go", GO.wish),
        ("Yes, please!", GO.wish),
        ("ok", GO.wish),
        ("jawohl", GO.wish),
        ("sure, go ahead", GO.wish),
        ("no", CANCEL.wish),
        ("No thanks.", CANCEL.wish),
        ("cancel", CANCEL.wish),
        ("2", SHAPES.wish),
        ("the second one", SHAPES.wish),
        ("option 2", SHAPES.wish),
        ("use 64x1024:float32", SHAPES.wish),
        ("the last one", CANCEL.wish),
    ],
)
def test_an_open_question_is_answered_in_words(
    situations: dict[str, Turn], text: str, command: Command
) -> None:
    assert understood(text, situations["task"], offers=(GO, SHAPES, CANCEL)) == (command,)


def test_an_open_question_does_not_hold_the_conversation_up(situations: dict[str, Turn]) -> None:
    approve = Offer(label="Export it", wish=ExportResult(approved=True))
    ended = situations["ended"]
    assert understood("yes", ended, offers=(approve,)) == (approve.wish,)
    assert understood("how fast is it?", ended, offers=(approve,)) == (ShowProgress(),)
    assert words("no", ended, offers=(approve,)) == AS_IT_IS


def test_no_approval_is_ever_read_into_an_order(situations: dict[str, Turn]) -> None:
    for text in ("export", "export it, approved", "yes export it now, I approve"):
        for command in understood(text, situations["ended"]):
            assert not (isinstance(command, ExportResult) and command.approved)


def test_thanks_and_greetings_are_answered(situations: dict[str, Turn]) -> None:
    assert words("Thanks a lot!", situations["ended"]) == WELCOME
    assert words("cool, thank you", situations["running"]) == WELCOME
    assert understood("Good morning", situations["nothing"]) == (AskForHelp(),)


@pytest.mark.parametrize(
    "text",
    [
        "if v17 is slower than v12 then stop",
        "stop in 10 minutes",
        "let it run for 10 more minutes and then stop",
        "stop after this round",
        "when you find something twice as fast, stop",
        "I'm not sure whether to stop or continue",
        "what happens if I stop?",
        "is it safe to stop now?",
        "how do I stop it?",
        "never stop",
        "stop trying shared memory, stop using atomics",
    ],
)
def test_what_may_stop_later_or_something_else_does_not_stop_the_search(
    situations: dict[str, Turn], text: str
) -> None:
    assert not any(
        isinstance(command, StopSearch) for command in understood(text, situations["running"])
    )


def test_a_nod_is_nothing_more_where_nothing_was_asked(situations: dict[str, Turn]) -> None:
    assert words("ok", situations["running"]) == ALL_RIGHT
    assert words("no", situations["running"]) == AS_IT_IS
    assert understood("ok", situations["task"]) == (StartSearch(),)
    assert understood("no", situations["task"]) == (CancelTask(),)


def test_a_command_without_a_file_is_told_what_it_needs(situations: dict[str, Turn]) -> None:
    for text in (
        "make this softmax faster on my L40S",
        "optimize my layer norm",
        "can you speed up attention?",
        "write me a kernel for gelu",
    ):
        assert words(text, situations["nothing"]) == NEEDS_A_FILE


def test_a_change_of_shapes_without_shapes_is_for_the_controller_to_ask(
    situations: dict[str, Turn],
) -> None:
    for text in ("change shapes", "use a larger batch size", "other inputs please"):
        assert understood(text, situations["task"]) == (ChangeTask(),)


def test_another_task_needs_another_file(situations: dict[str, Turn]) -> None:
    for text in ("new task", "another file", "Start with a different module, please"):
        assert words(text, situations["ended"]) == NEEDS_A_FILE


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_is_not_understood_is_offered_guesses(
    situations: dict[str, Turn], situation: str
) -> None:
    (command,) = understood("flurb the wozzle gently", situations[situation])
    assert isinstance(command, Unclear)
    assert command.words == "flurb the wozzle gently"
    assert 2 <= len(command.guesses) <= 4
    assert not any(isinstance(guess, Unclear) for guess in command.guesses)


def test_half_a_message_that_is_understood_is_done_but_not_sure(
    situations: dict[str, Turn],
) -> None:
    turn = situations["running"].model_copy(update={"text": "Status. Flurb the wozzle."})
    reading = read(turn)
    assert reading.understanding.commands == (ShowProgress(),)
    assert not reading.sure
    assert read(turn.model_copy(update={"text": "Status, thanks."})).sure


async def test_rules_ask_once() -> None:
    turn = Turn(text="status", run="r")
    assistant = RulesAssistant()
    first = await assistant.understand(turn)
    outcome = CommandResult(command=first.commands[0], reply=ChatReply.of("fine"))
    assert (await assistant.understand(turn, (outcome,))).commands == ()


_BITS = """
    why is v17 faster than v12 and pause, stop trying no more give idea 3 budget (4096, 1024) fp16
    show the code ``` import torch class Model( def forget everything 5 rounds ? . ; on an H100
"""
_PIECES = st.sampled_from([*_BITS.split(), "\n"])
_TEXTS = st.one_of(st.text(), st.lists(_PIECES, max_size=30).map(" ".join))


@given(text=_TEXTS, situation=st.sampled_from(SITUATIONS))
@example(text="a" * 50_000, situation="running")
@example(text="no " * 10_000, situation="running")
@example(text="v1 and " * 5_000, situation="ended")
@example(text="(" * 20_000, situation="task")
@example(text="```" * 5_000, situation="task")
@example(text="1," * 20_000, situation="task")
@example(text="export " + "best it " * 2_000 + "zz", situation="ended")
@example(text="stop " + "it the search " * 12 + "zz", situation="running")
@example(text="thanks great " * 2_000 + "zz", situation="nothing")
@example(text="\n" * 20_000 + "zz", situation="task")
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_no_text_breaks_the_rules(situations: dict[str, Turn], text: str, situation: str) -> None:
    found = read(situations[situation].model_copy(update={"text": text})).understanding
    assert found.commands or found.words
    assert Turn.model_validate_json(Turn(text="").model_dump_json()) == Turn(text="")
