"""The commands `chat` and `user`, in this process, as far as they go without a server."""

import io

import pytest

from kernelwright.ui.cli import app as cli


@pytest.fixture
def said(capsys, monkeypatch, tmp_path):
    """Runs a command line; its status and everything it wrote. `typed` comes in by a pipe."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))

    def run(*arguments: str, typed: str = "") -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        status = cli.run(list(arguments))
        read = capsys.readouterr()
        return status, read.out + read.err

    return run


def test_people_are_added_listed_and_removed(said):
    def done(*arguments: str, typed: str = "") -> str:
        status, wrote = said("user", *arguments, typed=typed)
        assert status == 0
        before, none, _ = wrote.partition(" No chat is running here")  # and what is missing for one
        assert none
        return before

    assert done("add", "anna", typed="correct horse\n") == "anna may log in."
    assert done("add", "anna", typed="another horse\n") == "anna has a new password."
    assert said("user", "list") == (0, "anna\n")
    assert done("remove", "anna") == "anna may log in no longer; their runs stay."
    assert "open, on this machine only" in said("user", "list")[1]


def test_a_password_is_never_shown(said):
    said("user", "add", "anna", typed="correct horse\n")
    assert "horse" not in said("user", "list")[1]


@pytest.mark.parametrize(
    ("arguments", "typed", "words"),
    [
        (["user", "add", "Anna!"], "correct horse\n", "cannot be a name"),
        (["user", "add", "anna"], "short\n", "at least 8 characters"),
        (["user", "add", "anna"], "", "at least 8 characters"),
        (["user", "remove", "anna"], "", "there is nobody called 'anna'"),
        (["chat", "--host", "0.0.0.0"], "", "kernelwright user add"),
        (["chat", "--search", "slow"], "", "deep, quick, standard"),
        (["chat", "--port", "70000"], "", "invalid value for '--port'"),
        (["chat", "--model", "some"], "", "where is the model"),
    ],
)
def test_what_is_wrong_is_one_sentence(said, arguments, typed, words):
    status, wrote = said(*arguments, typed=typed)
    assert status == 2
    assert words in wrote
    assert wrote.startswith("kernelwright: ")
    assert wrote.count("\n") == 1
