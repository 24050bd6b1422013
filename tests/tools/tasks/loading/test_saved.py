"""Inputs that a person saved, and models that a function builds, reach the reference."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelwright.tools.tasks import trace, tracing
from kernelwright.tools.tasks.inputs.draws import draw
from kernelwright.tools.tasks.loading.saved import load_state
from kernelwright.tools.tasks.reference import Reference
from kernelwright.tools.tasks.sources import Found, carried, find
from kernelwright.tools.tasks.sources.carried import content_of, with_state_kept
from kernelwright.tools.types import ProjectFile, Refusal, RefusedError, Task, TracePolicy

FILE = """
import time


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x, mask=None):
        return {"y": self.inner(x) * (1 if mask is None else mask["m"])}


def make_model():
    torch.manual_seed(time.time_ns())  # another one every time, as from a checkpoint
    return Block(8)


def make_nothing():
    return 3


def get_inputs():
    return [torch.randn(4, 8)]
"""


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[object], Path]:
    """Save something as a person would."""

    def write(value: object) -> Path:
        torch.save(value, tmp_path / "batch.pt")
        return tmp_path / "batch.pt"

    return write


def read(path: Path, **policy: object) -> Task | Refusal:
    found = find(path, TracePolicy.model_validate(policy))
    if isinstance(found, Refusal):
        return found
    assert isinstance(found, Found)
    return trace(found.source, str(found.path), found.policy)


def test_saved_inputs_are_called_as_they_were_saved_and_other_draws_differ(write, saved):
    x, m = torch.randn(4, 8), torch.tensor([[1.0], [0.0], [1.0], [1.0]])
    batch = saved({"args": [x], "kwargs": {"mask": {"m": m}}})
    task = read(write(FILE), entry="make_model", makes=True, inputs=(str(batch),))
    assert isinstance(task, Task), task
    batch.unlink()  # it is kept with the task
    assert [spec.name for spec in task.inputs] == ["x", "mask_m"]
    own, other = draw(task, "task", 0, "cpu"), draw(task, "task", 5, "cpu")
    assert torch.equal(own[0], x)
    assert torch.equal(own[1], m)
    assert not torch.equal(other[0], x)
    assert other[0].shape == x.shape


@pytest.mark.parametrize("kind", [list, tuple, dict, torch.Tensor])
def test_every_usual_way_to_save_inputs_is_taken(write, saved, kind):
    x = torch.randn(4, 8)
    batch = saved({list: [x], tuple: (x,), dict: {"x": x}, torch.Tensor: x}[kind])
    task = read(write(FILE), entry="make_model", makes=True, inputs=(str(batch),))
    assert isinstance(task, Task), task
    assert torch.equal(draw(task, "task", 0, "cpu")[0], x)


def test_whole_numbers_stay_what_was_saved(write, saved):
    ids = torch.tensor([[3, 7], [1, 2], [5, 6]])
    text = "class Model(nn.Module):\n    def forward(self, ids):\n        return ids * 2.0\n"
    task = read(write(text), inputs=(str(saved([ids])),))
    assert isinstance(task, Task), task
    (drawn,) = draw(task, "task", 9, "cpu")
    assert sorted(drawn.tolist()) == sorted(ids.tolist())


def test_the_weights_of_a_built_model_are_those_it_had_when_it_was_read(write):
    task = read(write(FILE), entry="make_model", makes=True)
    assert isinstance(task, Task), task
    assert task.entry_kind == "built"
    assert task.state is not None
    first, second = (Reference.build(task, "cpu", seed=seed) for seed in (1, 2))
    for name, value in first.weights().items():
        assert torch.equal(value, second.weights()[name])


def test_weights_are_those_of_the_module_that_was_traced_and_it_is_not_built_for_them(
    write, monkeypatch
):
    built = []
    monkeypatch.setattr(tracing, "build_module", lambda *_: built.append("again"))
    task = read(write(FILE), entry="make_model", makes=True)
    assert isinstance(task, Task), task
    assert built == []
    assert set(torch.load(io.BytesIO(content_of(task.state)))) == {
        spec.name for spec in task.weights
    }


def test_weights_are_kept_by_a_hash_that_is_found_while_they_are_copied(
    write, tmp_path, monkeypatch
):
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(carried, "_PIECE_BYTES", 1000)
    task = read(write(FILE), entry="make_model", makes=True)
    content = content_of(task.state)
    (tmp_path / "weights.pt").write_bytes(content)
    large = task.model_copy(
        update={"state": task.state.model_copy(update={"content": None, "origin": "elsewhere"})}
    )
    for _ in range(2):  # copied, then found there
        kept = with_state_kept(large, tmp_path)
        assert content_of(kept.state) == content
    (tmp_path / "weights.pt").write_bytes(content + b"more")
    Path(kept.state.origin).unlink()
    with pytest.raises(RefusedError, match=r"weights\.pt was changed since"):
        with_state_kept(large, tmp_path)
    assert not list((tmp_path / "home" / "weights").iterdir())


def test_weights_that_are_gone_are_not_called_broken():
    gone = ProjectFile(path="weights.pt", sha256="0" * 64, size_bytes=1, origin="/gone/weights.pt")
    with pytest.raises(RefusedError, match=r"needs weights\.pt, which is not on this machine"):
        load_state(torch.nn.Linear(2, 2), gone)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (
            {"entry": "make_nothing", "makes": True},
            "must return an nn.Module, but it returned",
        ),
        ({"entry": "Block", "makes": True}, "Block is no function that builds a model"),
        ({"entry": "gone", "makes": True}, "The file has no gone"),
        ({"inputs": ("gone.pt",)}, "There is no file gone.pt with saved inputs"),
        ({"inputs": ("a.pt", "b.pt")}, "Saved inputs are one file"),
    ],
)
def test_what_is_no_model_and_no_file_is_one_sentence(write, policy, words):
    found = read(write(FILE), **policy)
    assert isinstance(found, Refusal)
    assert words in found.sentence


class Evil:
    def __reduce__(self) -> object:
        return (Path.touch, (Path("/tmp/never"),))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Evil(), "cannot be loaded as plain tensors"),
        (3, "holds a int; saved inputs are"),
        ({"x": {1: torch.ones(2)}}, "a dictionary whose keys are not all words"),
        ([torch.ones(2, 2)], "The forward raises"),
    ],
)
def test_other_saved_things_are_one_sentence(write, saved, value, words):
    batch = saved(value)
    found = read(write(FILE), entry="make_model", makes=True, inputs=(str(batch),))
    assert isinstance(found, Refusal)
    assert words in found.sentence
    batch.write_bytes(b"PK")
    broken = read(write(FILE), entry="make_model", makes=True, inputs=(str(batch),))
    assert isinstance(broken, Refusal)
    assert "cannot be loaded as plain tensors" in broken.sentence
