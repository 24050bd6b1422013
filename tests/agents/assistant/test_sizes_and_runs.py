"""Single sizes, places on the leaderboard, and what is done to a run as a whole."""

import pytest

from kernelwright.agents.assistant.rules import read
from kernelwright.agents.assistant.types import (
    ChangeTask,
    Command,
    CompareCandidates,
    DeleteRun,
    ExplainCandidate,
    ExportResult,
    LoadTask,
    RenameRun,
    ShowCode,
    Turn,
)

TASK = Turn(text="", task="softmax")
RUN = Turn(text="", task="softmax", run="softmax-1121-ab3f", candidates=("a1", "b2", "c3"))


def commands(words: str, turn: Turn) -> tuple[Command, ...]:
    return read(turn.model_copy(update={"text": words})).understanding.commands


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        ("with 4096 columns", ("columns=4096",)),
        ("make it 8192 rows", ("rows=8192",)),
        ("4k columns and 8k rows please", ("columns=4096", "rows=8192")),
        ("set the batch size to 32", ("rows=32",)),
        ("batch of 64", ("rows=64",)),
        ("hidden size 1024", ("columns=1024",)),
        ("what about 4096 columns?", ("columns=4096",)),
    ],
)
def test_one_size_changes_one_dimension(words: str, sizes: tuple[str, ...]) -> None:
    assert commands(words, TASK) == (ChangeTask(sizes=sizes),)


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        ("batch 1 to 64", "batch=1..64"),
        ("it should work for batches between 1 and 64", "batch=1..64"),
        ("any batch size up to 2k please", "batch=1..2048"),
        ("I need batch 8..64", "batch=8..64"),
    ],
)
def test_a_range_is_what_the_result_shall_serve(words: str, sizes: str) -> None:
    assert commands(words, TASK) == (ChangeTask(shapes=sizes),)
    code = "```python\nimport torch\n\nx = 1\n```"
    assert commands(f"make this faster, {words}\n{code}", Turn(text=""))[1] == ChangeTask(
        shapes=sizes
    )


@pytest.mark.parametrize("words", ["change the batch from 32 to 64", "batch 64 to 1"])
def test_a_change_from_one_size_to_another_is_no_range(words: str) -> None:
    assert commands(words, TASK) == (ChangeTask(),)  # which is asked back


def test_a_size_beside_a_file_is_the_files() -> None:
    code = "make this faster with 4096 columns\n```python\nimport torch\n\nx = 1\n```"
    load, change = commands(code, Turn(text=""))
    assert isinstance(load, LoadTask)
    assert change == ChangeTask(sizes=("columns=4096",))


@pytest.mark.parametrize("words", ["load 4 columns per thread", "unroll over 8 rows"])
def test_what_a_kernel_does_with_columns_changes_no_task(words: str) -> None:
    running = RUN.model_copy(update={"running": True})
    for turn in (TASK, running):
        assert not any(isinstance(command, ChangeTask) for command in commands(words, turn))


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("explain the second-best candidate", ExplainCandidate(candidate="best 2")),
        ("show me the code of the runner-up", ShowCode(candidate="best 2")),
        ("compare the third best with v3", CompareCandidates(one="best 3", other="v3")),
        ("export the 2nd best", ExportResult(candidate="best 2")),
        (
            "why is the best faster than the second best?",
            CompareCandidates(one="best", other="best 2"),
        ),
        ("show me the code of the best", ShowCode(candidate="best")),
    ],
)
def test_a_place_on_the_leaderboard_is_a_candidate(words: str, command: Command) -> None:
    assert commands(words, RUN) == (command,)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("delete this run", DeleteRun()),
        ("delete run softmax-1121-ab3f", DeleteRun(run="softmax-1121-ab3f")),
        ("remove the run softmax-1121-ab3f for good", DeleteRun(run="softmax-1121-ab3f")),
        ("call this run Fast One", RenameRun(name="Fast One")),
        (
            "rename softmax-1121-ab3f to 'my best softmax'",
            RenameRun(name="my best softmax", run="softmax-1121-ab3f"),
        ),
    ],
)
def test_a_run_is_named_and_deleted(words: str, command: Command) -> None:
    assert commands(words, RUN) == (command,)


@pytest.mark.parametrize(
    "words", ["delete idea 3", "delete the hint", "remove shared memory", "delete everything"]
)
def test_nothing_else_that_is_deleted_is_a_run(words: str) -> None:
    assert not any(isinstance(command, DeleteRun) for command in commands(words, RUN))
