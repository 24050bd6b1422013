"""Cells of a notebook as a module: what the entry needs, and nothing else of it."""

import json

import pytest

from kernelwright.tools.tasks.sources.notebook import sliced
from kernelwright.tools.types import Refusal

HEAD = "import torch\nfrom torch import nn"
MODEL = "class Model(nn.Module):\n    def forward(self, x):\n        return helper(x)"
INPUTS = "def get_inputs():\n    return [torch.randn(4, 8)]"


def notebook(*cells: str) -> str:
    listed = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"nbformat": 4, "cells": [{"cell_type": "markdown"}, *listed]})


def text(*cells: str, entry: str | None = None, inputs_named: bool = False) -> str:
    found = sliced(notebook(*cells), "w.ipynb", entry, inputs_named=inputs_named)
    assert isinstance(found, str), found
    compile(found, "w", "exec")
    return found


def test_a_missing_file_and_an_endless_loop_are_never_run():
    found = text(
        HEAD,
        "import pandas as pd\ndf = pd.read_csv('gone.csv')\nx = df['x']",
        MODEL,
        "def helper(x):\n    return x.exp()",
        "while True:\n    step(Model())",
        INPUTS,
    )
    assert "gone.csv" not in found
    assert "while" not in found
    assert "def helper" in found  # written below the class that calls it


def test_magics_shell_lines_and_other_languages_are_dropped():
    found = text(
        f"%matplotlib inline\n!pip install x\n{HEAD}",
        "%%bash\nrm -rf everything",
        f"%%time\n{MODEL}\nfiles = !ls",
        "helper = torch.exp\nhelper?",
        INPUTS,
    )
    assert "rm -rf" not in found
    assert "!" not in found
    assert "%" not in found


def test_what_changes_a_needed_object_is_kept_and_what_only_uses_it_is_not():
    found = text(
        HEAD,
        "cfg = {}\ncfg['k'] = 2\ncfg.update(d=3)\nprint(cfg)",
        "class Model(nn.Module):\n    def forward(self, x):\n        return x * cfg['k']",
        "model = Model()\nmodel.fit()\nmodel.eval()",
        INPUTS,
    )
    assert "cfg['k'] = 2" in found
    assert "cfg.update(d=3)" in found
    assert "print" not in found
    assert "fit" not in found
    assert "model = " not in found
    ready = text(
        HEAD, MODEL, "helper = torch.exp\nmodel = Model()\nmodel.eval()", INPUTS, entry="model"
    )
    assert "model.eval()" in ready


def test_a_name_that_is_only_local_elsewhere_pulls_nothing_in():
    found = text(HEAD, "x = open('gone.csv').read()", MODEL, "helper = torch.exp", INPUTS)
    assert "gone.csv" not in found


def test_of_two_definitions_the_last_is_meant_with_what_it_alone_needs():
    old = MODEL.replace("helper", "gone")
    found = text(HEAD, "gone = broken()", old, MODEL, "helper = torch.exp", INPUTS)
    assert "gone" not in found


def test_inputs_that_are_named_need_no_get_inputs():
    cells = (HEAD, MODEL, "helper = torch.exp", "data = load()", "def get_inputs(): return data")
    assert "load()" in text(*cells)
    assert "load()" not in text(*cells, inputs_named=True)


def test_where_imports_are_looked_up_is_kept():
    found = text("import sys\nsys.path.append('..')", HEAD, MODEL, "helper = torch.exp", INPUTS)
    assert "sys.path.append('..')" in found
    assert "import sys" in found


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("PK", "is no notebook that can be read"),
        ("[]", "is no notebook that can be read"),
        ('{"cells": 3}', "is no notebook that can be read"),
        ('{"cells": [{"cell_type": "code", "source": [1]}, 7]}', "no cell that defines"),
        (notebook("def f(:"), "cell 2 cannot be read"),
        (notebook(HEAD + "\nclass A(nn.Module): ...\nclass B(nn.Module): ..."), "A, B; name one"),
    ],
)
def test_other_content_is_a_sentence(content: str, words: str):
    found = sliced(content, "w.ipynb", None, inputs_named=False)
    assert isinstance(found, Refusal)
    assert words in found.sentence


def test_cells_of_the_old_format_are_read():
    cells = [{"cell_type": "code", "input": f"{HEAD}\n{MODEL}\n"}]
    old = json.dumps({"nbformat": 3, "worksheets": [{"cells": cells}]})
    found = sliced(old, "w.ipynb", None, inputs_named=True)
    assert isinstance(found, str)
    assert "class Model" in found
