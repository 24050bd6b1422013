"""Files of packages: found, imported under their real names, kept, and laid out elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kernelwright.tools.tasks import trace
from kernelwright.tools.tasks.project import beside, locate, secrets
from kernelwright.tools.tasks.reference import Reference
from kernelwright.tools.tasks.refusals import read_source
from kernelwright.tools.types import Refusal, Task, TracePolicy

HEAD = "import torch\nfrom torch import nn\n"
BODY = """
class Model(nn.Module):
    def forward(self, x):
        return {}
def get_inputs():
    return [torch.randn(8, 16)]
"""

Lay = Callable[[dict[str, str]], Path]


@pytest.fixture
def lay(tmp_path: Path) -> Iterator[Lay]:
    """Write the files of a project; the imports of a test are forgotten after it."""

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            place = tmp_path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        return tmp_path

    before, path = set(sys.modules), list(sys.path)
    yield write
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if "kernelwright-project" in file or str(tmp_path) in file:
            del sys.modules[name]
    sys.path[:] = path


def traced(file: Path) -> Task:
    found = trace(file.read_text(), str(file), TracePolicy())
    assert isinstance(found, Task), found
    return found


def ran(task: Task) -> torch.Tensor:
    return Reference.build(task, "cpu").forward([torch.ones(1, 4)])[0]


def model(imports: str, expression: str) -> str:
    return HEAD + imports + "\n" + BODY.format(expression)


def test_a_relative_import_is_found_and_the_module_has_its_real_name(lay: Lay) -> None:
    root = lay(
        {
            "pkg_a/__init__.py": "",
            "pkg_a/x.py": "y = 3.0",
            "pkg_a/inner/__init__.py": "",
            "pkg_a/inner/util.py": "def half(x): return x / 2",
            "pkg_a/inner/m.py": model("from .util import half\nfrom ..x import y", "half(x) * y"),
        }
    )
    task = traced(root / "pkg_a/inner/m.py")
    assert task.project is not None
    assert task.project.module == "pkg_a.inner.m"
    assert {item.path for item in task.project.files} == {
        "pkg_a/__init__.py", "pkg_a/inner/__init__.py", "pkg_a/inner/util.py", "pkg_a/x.py",
    }  # fmt: skip
    assert ran(task).tolist() == [[1.5] * 4]
    assert type(Reference.build(task, "cpu").module).__module__ == "pkg_a.inner.m"


def test_a_person_s_own_tools_are_found_at_the_root_of_the_project(lay: Lay) -> None:
    root = lay(
        {
            "pyproject.toml": "",
            "tools/helpers.py": "def scale(x): return x * 3",
            "tools/late.py": "ONE = 1.0",
            "models/deep/m.py": HEAD
            + "from tools.helpers import scale\n"
            + "def late(x):\n    from tools import late\n    return x + late.ONE\n"
            + BODY.format("late(scale(x))"),
        }
    )
    task = traced(root / "models/deep/m.py")
    assert ran(task).tolist() == [[4.0] * 4]


def test_a_src_layout_and_an_example_beside_it(lay: Lay) -> None:
    layers = model("from ..util import half", "half(x)")
    root = lay(
        {
            "pyproject.toml": "",
            "src/pkg_b/__init__.py": "",
            "src/pkg_b/util.py": "def half(x): return x / 2",
            "src/pkg_b/nn/__init__.py": "",
            "src/pkg_b/nn/layers.py": layers,
            "examples/m.py": model("import pkg_b.nn.layers", "pkg_b.nn.layers.Model()(x)"),
        }
    )
    assert traced(root / "src/pkg_b/nn/layers.py").project.module == "pkg_b.nn.layers"  # type: ignore[union-attr]
    assert ran(traced(root / "examples/m.py")).tolist() == [[0.5] * 4]


def test_a_folder_without_init_is_a_namespace(lay: Lay) -> None:
    root = lay({"loose/util.py": "K = 5.0", "loose/m.py": model("from .util import K", "x * K")})
    task = traced(root / "loose/m.py")
    assert task.project is not None
    assert task.project.module == "loose.m"
    assert ran(task).tolist() == [[5.0] * 4]


def test_data_beside_a_module_is_kept_and_an_edit_afterwards_changes_nothing(lay: Lay) -> None:
    reads = "from pathlib import Path\nK = float((Path(__file__).parent / 'k.txt').read_text())"
    root = lay({"pkg_c/__init__.py": "", "pkg_c/k.txt": "2.5", "pkg_c/m.py": model(reads, "x * K")})
    task = traced(root / "pkg_c/m.py")
    before = task.digest
    (root / "pkg_c/k.txt").write_text("7.0")
    assert ran(task).tolist() == [[2.5] * 4]
    assert ran(Task.model_validate_json(task.model_dump_json())).tolist() == [[2.5] * 4]
    assert before.startswith(task.source_sha256)
    assert before != task.source_sha256


def test_two_projects_with_modules_of_the_same_name_do_not_meet(lay: Lay) -> None:
    text = model("from shared_name.util import K", "x * K")
    root = lay(
        {
            **{f"{p}/pyproject.toml": "" for p in "ab"},
            "a/shared_name/util.py": "K = 2.0",
            "b/shared_name/util.py": "K = 9.0",
            "a/m.py": text,
            "b/m.py": text,
        }
    )
    first, second = traced(root / "a/m.py"), traced(root / "b/m.py")
    assert [ran(task)[0, 0].item() for task in (first, second, first)] == [2.0, 9.0, 2.0]


def test_a_file_that_stands_alone_needs_nothing(lay: Lay) -> None:
    root = lay({"pkg_d/__init__.py": "", "pkg_d/m.py": model("import json", "x * 2")})
    assert locate((root / "pkg_d/m.py").read_text(), str(root / "pkg_d/m.py")) is None
    assert traced(root / "pkg_d/m.py").project is None


def test_a_single_file_of_a_package_says_what_is_missing(lay: Lay) -> None:
    root = lay({"up/m.py": model("from .util import half\nfrom ..x import y", "half(x)")})
    found = trace((root / "up/m.py").read_text(), str(root / "up/m.py"), TracePolicy())
    assert isinstance(found, Refusal)
    assert "imports .util, ..x in line 3, which are not beside it" in found.sentence
    assert "name the file where it lies in its project" in found.sentence
    assert str(root) not in f"{found.sentence}{found.detail}"


def test_an_error_of_a_helper_names_its_file_and_line_and_no_frame_of_ours(lay: Lay) -> None:
    root = lay(
        {
            "pkg_e/__init__.py": "",
            "pkg_e/util.py": "def half(x):\n    return x / 0 + nothing",
            "pkg_e/m.py": model("from .util import half", "half(x)"),
        }
    )
    found = trace((root / "pkg_e/m.py").read_text(), str(root / "pkg_e/m.py"), TracePolicy())
    assert isinstance(found, Refusal)
    assert "in line 2 of util.py NameError" in found.sentence
    assert found.detail.splitlines()[-1].startswith("util.py, line 2, in half: return x / 0")
    assert "/" not in found.detail.replace("x / 0", "")
    assert "Traceback" not in found.detail


def test_what_is_let_in(lay: Lay) -> None:
    root = lay(
        {
            "proj/.git/config": "",
            "proj/.env": "KEY=1",
            "proj/deep/.env.local": "",
            "proj/deep/m.py": "from .util import K",
            "proj/deep/util.py": "K = 1",
            "bare/m.py": "import helper",
            "bare/helper.py": "",
            "bare/other.py": "",
        }
    )
    assert beside("from .util import K", str(root / "proj/deep/m.py")) == (root / "proj",)
    assert beside("import helper", str(root / "bare/m.py")) == (root / "bare/helper.py",)
    assert beside("open(__file__)", str(Path.home() / "m.py")) == ()
    hidden = {item.relative_to(root).as_posix() for item in secrets(root / "proj")}
    assert hidden == {"proj/.git", "proj/.env", "proj/deep/.env.local"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("kernel.cu", "`kernelwright check kernel.cu --task MODULE.py`"),
        ("project.tar", "make a .zip of it"),
        ("weights.safetensors", "holds weights"),
    ],
)
def test_other_kinds_of_files_get_a_sentence(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04")
    found = read_source(tmp_path / name)
    assert isinstance(found, Refusal)
    assert words in found.sentence
    assert found.sentence.startswith(f"{name} ")
