"""Where foreign code is found: files, pairs and records."""

import json

from tools.evaluate.foreign.intake import is_foreign, read_foreign
from tools.evaluate.foreign.request import Foreign
from tools.nouns import Refusal

CODE = "from torch import nn\nclass ModelNew(nn.Module):\n    pass\n"
TASK = "from torch import nn\nclass Model(nn.Module):\n    pass\n"


def records(path, *items):
    path.write_text("\n".join(json.dumps(item) for item in items))
    return path


def test_a_python_file_and_a_pair(tmp_path):
    (tmp_path / "src.py").write_text(CODE)
    assert is_foreign(tmp_path / "src.py")
    assert is_foreign(tmp_path)
    found = read_foreign(tmp_path, TASK)
    assert isinstance(found, Foreign)
    assert found.entry == "ModelNew"


def test_a_pair_may_use_the_references_name(tmp_path):
    (tmp_path / "src.py").write_text(TASK)
    found = read_foreign(tmp_path / "src.py", TASK)
    assert isinstance(found, Foreign)
    assert found.entry == "Model"


def test_the_record_of_the_task_is_found_by_its_reference(tmp_path):
    other = {"level_id": 1, "task_id": 1, "ref_code": "x = 1", "custom_code": CODE}
    mine = {"level_id": 2, "task_id": 7, "ref_code": TASK + "# a remark", "custom_code": CODE}
    path = records(tmp_path / "h100.json", other, mine)
    found = read_foreign(path, TASK)
    assert isinstance(found, Foreign)
    assert found.name == "h100 2/7"
    for chosen in ("1", "1/1"):
        found = read_foreign(path, TASK, chosen)
        assert isinstance(found, Foreign)
        assert found.name == "h100 1/1"


def test_records_that_cannot_be_used_are_explained(tmp_path):
    empty = {"level_id": 1, "task_id": 2, "ref_code": TASK, "custom_code": None}
    path = records(tmp_path / "a.json", empty)
    for wanted, words in ((None, "holds no code"), ("9", "no record 9"), ("3/3", "no record 3/3")):
        found = read_foreign(path, TASK, wanted)
        assert isinstance(found, Refusal)
        assert words in found.sentence
    path.write_text("[1, 2]")
    found = read_foreign(path, TASK)
    assert isinstance(found, Refusal)
    assert "Line 1" in found.sentence
