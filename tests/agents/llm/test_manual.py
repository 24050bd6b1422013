"""A person as the model, with files as the chat window."""

import asyncio
import os
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernelwright.agents.llm.client import LLMError
from kernelwright.agents.llm.manual import ManualClient
from kernelwright.tools.types import Message, Prompt, Reply
from kernelwright.tools.types.value import AwaitingError

QUICK = {"poll_s": 0.02, "grace_s": 0.1}


def prompt(key: str = "coder:r1i2:0", text: str = "Write a kernel.", role: str = "coder") -> Prompt:
    said = (
        Message(author="system", text="You write kernels."),
        Message(author="person", text=text),
    )
    return Prompt.model_validate({"key": key, "role": role, "messages": said, "round": 1})


def lying(folder: Path, pattern: str = "*.prompt.md") -> list[Path]:
    """What is in the folder, in order."""
    return sorted(folder.glob(pattern))


async def prompts(folder: Path, count: int) -> list[Path]:
    """The prompts, once there are that many."""
    async with asyncio.timeout(120):
        while len(lying(folder)) < count:  # noqa: ASYNC110 - files announce nothing
            await asyncio.sleep(0.01)
    return lying(folder)


def answer_of(asked: Path) -> Path:
    return asked.with_name(asked.name.replace(".prompt.md", ".answer.md"))


async def test_a_prompt_says_where_its_answer_goes_and_the_answer_is_the_reply(
    tmp_path: Path,
) -> None:
    client = ManualClient(tmp_path / "asked", **QUICK)
    pending = asyncio.ensure_future(client.say(prompt()))
    (asked,) = await prompts(tmp_path / "asked", 1)
    assert asked.name == "001-coder-r1i2-0.prompt.md"
    text = asked.read_text()
    assert "001-coder-r1i2-0.answer.md" in text.partition("=====")[0]
    assert text.index("You write kernels.") < text.index("Write a kernel.")
    answer_of(asked).write_text("```cuda\n```\n")
    reply = await pending
    assert isinstance(reply, Reply)
    assert reply.text == "```cuda\n```\n"
    assert reply.model == "manual"


async def test_prompts_are_numbered_in_the_order_they_were_asked(tmp_path: Path) -> None:
    client, other = (ManualClient(tmp_path, patience_s=0, **QUICK) for _ in range(2))
    for key in ("planner:1", "coder:r1i1:0", "coder:r1i1:0:again"):
        with pytest.raises(AwaitingError):
            await client.say(prompt(key, role=key.partition(":")[0]))
    with pytest.raises(AwaitingError):
        await other.say(prompt("1", role="critic"))
    assert [path.name for path in lying(tmp_path, "*")] == [
        "001-planner-1.prompt.md",
        "002-coder-r1i1-0.prompt.md",
        "003-coder-r1i1-0-again.prompt.md",
        "004-critic-1.prompt.md",
    ]


async def test_a_half_written_answer_is_not_read(tmp_path: Path) -> None:
    """Between two looks there was always another word, however slow the machine is."""
    client = ManualClient(tmp_path, poll_s=0.3, grace_s=0.1)
    pending = asyncio.ensure_future(client.say(prompt()))
    (asked,) = await prompts(tmp_path, 1)
    with answer_of(asked).open("w") as file:
        written, until = 0, time.monotonic() + 1.0
        while time.monotonic() < until:
            file.write(f"{written} ")
            file.flush()
            written += 1
            await asyncio.sleep(0.01)
            assert not pending.done()
    assert (await pending).text.split() == [str(word) for word in range(written)]


async def test_an_answer_that_is_renamed_into_place_is_read_whole(tmp_path: Path) -> None:
    pending = asyncio.ensure_future(ManualClient(tmp_path, **QUICK).say(prompt()))
    (asked,) = await prompts(tmp_path, 1)
    draft = tmp_path / "draft"
    draft.write_text("all of it")
    os.replace(draft, answer_of(asked))
    assert (await pending).text == "all of it"


async def test_an_empty_answer_is_none_yet(tmp_path: Path) -> None:
    client = ManualClient(tmp_path, patience_s=0.3, **QUICK)
    (tmp_path / "001-coder-r1i2-0.answer.md").write_text(" \n")
    with pytest.raises(AwaitingError):
        await client.say(prompt())


async def test_patience_that_runs_out_names_every_open_question(tmp_path: Path) -> None:
    client = ManualClient(tmp_path, patience_s=0, **QUICK)
    said = [client.say(prompt(f"coder:r1i{n}:0")) for n in range(1, 5)]
    raised = await asyncio.gather(*said, return_exceptions=True)
    assert all(isinstance(error, AwaitingError) for error in raised)
    for error in raised:
        assert isinstance(error, AwaitingError)
        assert [path.name for path in error.paths] == [
            f"00{n}-coder-r1i{n}-0.answer.md" for n in range(1, 5)
        ]
        assert str(tmp_path) in error.words


async def test_the_first_one_out_of_patience_lets_its_siblings_ask(tmp_path: Path) -> None:
    client = ManualClient(tmp_path, patience_s=0, poll_s=0.02, grace_s=1.0)

    async def slow_to_ask(number: int) -> None:
        await asyncio.sleep(0.05 * number)
        await client.say(prompt(f"coder:r1i{number}:0"))

    async def ask_all() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(slow_to_ask(number))

    with pytest.raises(ExceptionGroup):
        await ask_all()
    assert len(lying(tmp_path)) == 4


async def test_a_question_asked_again_keeps_its_file_and_finds_its_answer(tmp_path: Path) -> None:
    with pytest.raises(AwaitingError):
        await ManualClient(tmp_path, patience_s=0, **QUICK).say(prompt())
    (asked,) = lying(tmp_path)
    answer_of(asked).write_text("later")
    reply = await ManualClient(tmp_path, patience_s=0, **QUICK).say(prompt())
    assert reply.text == "later"
    assert len(lying(tmp_path)) == 1


async def test_a_question_in_other_words_is_a_new_one_and_points_to_the_old_answer(
    tmp_path: Path,
) -> None:
    client = ManualClient(tmp_path, patience_s=0, **QUICK)
    with pytest.raises(AwaitingError):
        await client.say(prompt(text="first words"))
    with pytest.raises(AwaitingError):
        await client.say(prompt(text="second words"))
    (asked,) = lying(tmp_path)
    assert asked.name.startswith("002-")
    answer_of(asked).write_text("an answer")
    with pytest.raises(AwaitingError):
        await client.say(prompt(text="third words"))
    newest = lying(tmp_path)[-1]
    assert "002-coder-r1i2-0.answer.md" in newest.read_text()


async def test_pass_leaves_the_question_to_the_playbook(tmp_path: Path) -> None:
    (tmp_path / "001-coder-r1i2-0.answer.md").write_text("Pass.\n")
    # An answer that lies there before its question belongs to an earlier run of that number.
    with pytest.raises(AwaitingError):
        await ManualClient(tmp_path, patience_s=0, **QUICK).say(prompt())
    (asked,) = lying(tmp_path)
    assert asked.name.startswith("002-")
    answer_of(asked).write_text("Pass.\n")
    with pytest.raises(LLMError, match="to the playbook"):
        await ManualClient(tmp_path, patience_s=0, **QUICK).say(prompt())


async def test_waiting_happens_away_from_the_clock_and_is_told_once(tmp_path: Path) -> None:
    entered: list[str] = []
    told: list[str] = []

    @contextmanager
    def away():
        entered.append("in")
        yield
        entered.append("out")

    client = ManualClient(
        tmp_path, away=away, tell=lambda words, paths: told.append(words), **QUICK
    )
    pending = asyncio.ensure_future(client.say(prompt()))
    (asked,) = await prompts(tmp_path, 1)
    await asyncio.sleep(0.1)
    assert entered == ["in"]
    answer_of(asked).write_text("yes")
    await pending
    assert entered == ["in", "out"]
    assert len(told) == 1
    assert str(answer_of(asked)) in told[0]


async def test_bytes_that_are_no_utf8_are_an_answer_all_the_same(tmp_path: Path) -> None:
    pending = asyncio.ensure_future(ManualClient(tmp_path, **QUICK).say(prompt()))
    (asked,) = await prompts(tmp_path, 1)
    answer_of(asked).write_bytes(b"\xef\xbb\xbfvalue \xff")
    assert (await pending).text == "value \ufffd"
