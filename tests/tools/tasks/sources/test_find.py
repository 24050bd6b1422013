"""Whatever a person points at ends in one file's text, its path, its entry and its project."""

import zipfile
from pathlib import Path

import pytest

from kernelwright.tools.tasks import trace
from kernelwright.tools.tasks.sources import Found, find, is_name
from kernelwright.tools.types import Refusal, Task, TracePolicy

BLOCK = """import torch
from torch import nn
from pathlib import Path
from ..util import scale
K = float((Path(__file__).parent / "k.txt").read_text())


class Block(nn.Module):
    def forward(self, x):
        return scale(x) * K


class Other(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.randn(4, 8)]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A src layout without a mark, with a data file beside the code."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    root = tmp_path / "proj"
    files = {
        "src/mylib_found/__init__.py": "",
        "src/mylib_found/util.py": "def scale(x):\n    return x * 3\n",
        "src/mylib_found/sub/layers.py": BLOCK,
        "src/mylib_found/sub/k.txt": "2.5",
        "README.md": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def zipped(folder: Path) -> Path:
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.rglob("*"):
            archive.write(file, file.relative_to(folder.parent))
    return path


def found(path: Path, entry: str | None = None, **more: tuple[str, ...]) -> Found:
    there = find(path, TracePolicy(entry=entry, **more))
    assert isinstance(there, Found), there
    return there


def said(path: Path, entry: str | None = None) -> Refusal:
    there = find(path, TracePolicy(entry=entry))
    assert isinstance(there, Refusal), there
    return there


LAYERS = "src/mylib_found/sub/layers.py"


@pytest.mark.parametrize(
    ("door", "entry"),
    [
        ("proj", "Block"),
        ("proj", f"{LAYERS}:Block"),
        ("proj", "mylib_found.sub.layers:Block"),
        ("proj.zip", "Block"),
        ("proj.zip", f"{LAYERS}:Block"),
        (f"proj/{LAYERS}", "Block"),
        (f"proj/{LAYERS}:Block", None),
        ("proj/mylib_found.sub.layers:Block", None),
        ("proj/mylib_found.sub.layers", "Block"),
    ],
)
def test_every_door_leads_to_the_same_task(
    project: Path, tmp_path: Path, door: str, entry: str | None
):
    zipped(project)
    there = found(tmp_path / door, entry)
    assert there.policy.entry == "Block"
    task = trace(there.source, str(there.path), there.policy)
    assert isinstance(task, Task), task
    assert (task.entry, task.project and task.project.module) == (
        "Block",
        "mylib_found.sub.layers",
    )
    assert {"aten.mul.Tensor"} <= {node.op for node in task.graph.nodes}


def test_where_several_could_be_meant_the_sentence_and_the_choices_name_them(project: Path):
    refusal = said(project)
    assert refusal.choices == (f"{LAYERS}:Block", f"{LAYERS}:Other")
    assert refusal.sentence.startswith("proj has several modules that could be meant: ")
    assert find(project, TracePolicy(entry=refusal.choices[0])) == found(project, "Block")


def test_a_class_that_is_installed_is_imported_from_where_it_is(tmp_path: Path):
    there = found(tmp_path / "torch.nn:GELU", inputs=("4x8:float32",))
    task = trace(there.source, str(there.path), there.policy)
    assert isinstance(task, Task), task
    assert (task.name, task.entry, task.project) == ("GELU", "GELU", None)


def test_a_notebook_stands_as_a_file_beside_it(tmp_path: Path):
    path = tmp_path / "w.ipynb"
    path.write_text('{"cells": [{"cell_type": "code", "source": "class Model: pass"}]}')
    there = found(path)
    assert there.path == tmp_path / "w_notebook.py"
    assert "class Model: pass" in there.source


@pytest.mark.parametrize(
    ("door", "entry", "words"),
    [
        ("proj", "Gone", "proj has no file that defines Gone"),
        ("proj", "gone.py:Block", "proj has no module gone.py"),
        ("proj", "../x.py:Block", "proj has no module ../x.py"),
        ("proj", "gone.away:Block", "proj has no module gone.away"),
        ("proj/src/mylib_found", "mylib_found:Block", "has no module mylib_found"),
        ("gone.away:Block", None, "no module gone.away that Python finds"),
        ("torch.nn", None, "name the class as torch.nn:NAME"),
        ("math:sin", None, None),
        (f"proj/{LAYERS}", "a.b:Block", "names a module, and so does layers.py"),
        ("empty", None, "empty has no Python file with an nn.Module"),
        ("x.tar", None, "make a .zip of it"),
        ("gone.py:Block", None, "does not exist"),
        ("x.zip", None, "x.zip is no archive"),
        ("x.ipynb", None, "x.ipynb is no notebook"),
    ],
)
def test_what_is_not_there_is_one_sentence(
    project: Path, tmp_path: Path, door: str, entry: str | None, words: str | None
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.py").write_text(BLOCK)
    for name in ("x.tar", "x.zip", "x.ipynb"):
        (tmp_path / name).write_bytes(b"PK")
    if words is None:
        there = found(tmp_path / door, entry)
        refused = trace(there.source, str(there.path), there.policy)
        assert isinstance(refused, Refusal)
    else:
        assert words in said(tmp_path / door, entry).sentence


def test_a_path_is_no_name_for_an_import(tmp_path: Path):
    assert is_name(tmp_path / "a.b:C")
    assert is_name(tmp_path / "a.b")
    assert not is_name(tmp_path / "model.py")
    assert not is_name(tmp_path / "nowhere")
    assert not is_name(tmp_path / "a b:C")
