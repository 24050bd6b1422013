"""An export of a file that needs others carries them, and stands alone."""

import subprocess
import sys

import pytest

from kernelwright.tools.export import ExportRefusedError, export_kernelbench
from kernelwright.tools.export.folder import project_files, reference
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

MODEL = """
import torch
from torch import nn
from pathlib import Path
from ..values import ONE
from tools.exported_helpers import scale

K = float((Path(__file__).parent / "k.txt").read_text())


class Model(nn.Module):
    def forward(self, x):
        from tools import exported_late

        return scale(x) * K + ONE * exported_late.TWO


def get_inputs():
    return [torch.randn(4, 4)]
"""

RUN = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import reference
print(type(reference.Model()).__module__, reference.Model()(torch.ones(1)).item())
print(sorted(p for p in sys.path if "project" in p), len(reference.get_inputs()))
"""


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    root = tmp_path_factory.mktemp("home") / "theirs"
    files = {
        "pyproject.toml": "",
        "src/exported_pkg/__init__.py": "",
        "src/exported_pkg/values.py": "ONE = 1.0",
        "src/exported_pkg/inner/__init__.py": "",
        "src/exported_pkg/inner/k.txt": "2.0",
        "src/exported_pkg/inner/m.py": MODEL,
        "tools/exported_helpers.py": "def scale(x): return x * 3",
        "tools/exported_late.py": "TWO = 2.0",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    found = trace(MODEL, str(root / "src/exported_pkg/inner/m.py"), TracePolicy())
    assert isinstance(found, Task), found
    return found


def test_the_reference_runs_from_the_export_alone(task, tmp_path):
    for name, content in project_files(task).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "reference.py").write_text(reference(task))
    done = subprocess.run(
        [sys.executable, "-I", "-c", RUN, str(tmp_path)],
        capture_output=True, text=True, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["exported_pkg.inner.m", "8.0", "[]", "1"]


def test_a_single_file_cannot_hold_a_project(material, task, tmp_path):
    whole = material(forced=True)
    changed = {"project": task.project}
    whole = whole.model_copy(update={"task": whole.task.model_copy(update=changed)})
    with pytest.raises(ExportRefusedError, match="one file"):
        export_kernelbench(whole, tmp_path / "new.py")
