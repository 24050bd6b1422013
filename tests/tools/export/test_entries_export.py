"""What was a function is exported as one, and what was a ready module stays ready."""

import re

from kernelwright.tools.export import export_folder

FUNCTION = """
import torch


def scaled_softmax(x, dim=-1):
    return torch.softmax(x, dim=dim)
"""


def test_a_function_stays_a_function(material, softmax, outside, tmp_path):
    made = material(FUNCTION, *softmax[1:], entry="scaled_softmax", inputs=("48x96:float32",))
    folder = export_folder(made, tmp_path / "function")
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from module import COUNTS, ScaledSoftmaxModule, reference, scaled_softmax
x = torch.randn(48, 96)
torch.testing.assert_close(scaled_softmax(x), reference.scaled_softmax(x))
torch.testing.assert_close(ScaledSoftmaxModule()(x), reference.scaled_softmax(x))
assert COUNTS == {"kernel": 2}, COUNTS
torch.testing.assert_close(scaled_softmax(x, dim=0), reference.scaled_softmax(x, dim=0))
assert COUNTS["reference: arguments"] == 1
"""
    outside(code, folder, cwd=tmp_path)
    shown = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    begin = "import sys, torch\nsys.path.insert(0, sys.argv[1])\nx = torch.randn(48, 96)\n"
    outside(f"{begin}{shown}\nassert y.shape == (48, 96)", tmp_path, cwd=tmp_path)
    outside(
        "import runpy, sys\nsys.argv = ['verify.py', '--no-timing']\n"
        "runpy.run_path('verify.py', run_name='__main__')",
        cwd=folder,
    )


CACHING = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", None, persistent=False)

    def forward(self, x):
        if self.table is None:
            self.register_buffer("table", torch.zeros(COLUMNS, device=x.device), persistent=False)
        return torch.softmax(x, dim=-1)
"""


def test_a_buffer_that_a_forward_makes_for_itself_is_no_result(
    material, softmax, outside, tmp_path
):
    folder = export_folder(material(*softmax), tmp_path / "caching")
    source = re.sub(r"class Model.*?\n\n\n", f"{CACHING}\n\n", softmax[0], flags=re.DOTALL)
    (folder / "reference.py").write_text(source)
    outside(
        "import runpy, sys\nsys.argv = ['verify.py', '--no-timing']\n"
        "runpy.run_path('verify.py', run_name='__main__')",
        cwd=folder,
    )


def test_a_ready_module_stays_ready(material, softmax, outside, tmp_path):
    source = softmax[0] + "\n\nready = Model()\n"
    folder = export_folder(material(source, *softmax[1:], entry="ready"), tmp_path / "ready")
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from module import COUNTS, ready, reference
x = torch.randn(48, 96)
torch.testing.assert_close(ready(x), reference.ready(x))
assert COUNTS == {"kernel": 1}, COUNTS
sys.path.insert(0, ".")
from ready import ready as packaged
torch.testing.assert_close(packaged(x), reference.ready(x))
"""
    outside(code, folder, cwd=tmp_path)
