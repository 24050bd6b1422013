"""Where foreign code is found: files, pairs and records."""

import json

from kernelwright.tools.evaluate.foreign.intake import is_foreign, read_foreign
from kernelwright.tools.evaluate.messages import Foreign
from kernelwright.tools.types import Refusal

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
    for text, words in (
        ("[1, 2]", "Line 1"),
        ("", "holds no records"),
        (json.dumps({"custom_code": "None"}), "The record a holds no code"),
        (json.dumps({"custom_code": "class ModelNew("}), "is no Python: '(' was never closed"),
    ):
        path.write_text(text)
        found = read_foreign(path, TASK)
        assert isinstance(found, Refusal)
        assert words in found.sentence


def test_records_come_by_level_in_a_list_and_with_code_under_another_name(tmp_path):
    record = {"task_id": 7, "custom_code": CODE}
    for written, name in (
        ({"1": [{"task_id": 7, "custom_code": None}], "2": [record]}, "a 2/7"),
        ([{"level_id": 2, **record}, {"level_id": 3}], "a 2/7"),
        ([{"level_id": 2, "task_id": 7, "code": CODE}, {"level_id": 3}], "a 2/7"),
    ):
        path = tmp_path / "a.json"
        path.write_text(json.dumps(written, indent=1))
        found = read_foreign(path, TASK, "2/7")
        assert isinstance(found, Foreign)
        assert (found.name, found.entry) == (name, "ModelNew")


def test_an_entry_in_a_branch_an_alias_and_a_fence_is_found(tmp_path):
    nested = "try:\n    import fast\nexcept ImportError:\n    fast = None\nif fast is None:\n"
    nested += "".join(f"    {line}\n" for line in CODE.splitlines())
    aliased = CODE.replace("ModelNew", "Quick") + "class Part(nn.Module):\n    pass\n"
    for text in (nested, aliased + "ModelNew = Quick\n", f"Here it is:\n```python\n{CODE}```\n"):
        path = tmp_path / "answer.py"
        path.write_text(text)
        assert is_foreign(path)
        found = read_foreign(path, TASK)
        assert isinstance(found, Foreign)
        assert found.entry == "ModelNew"


def test_python_that_cannot_be_foreign_code_is_explained(tmp_path):
    path = tmp_path / "answer.py"
    for text, words in (
        ("class ModelNew(nn.Module:\n    pass\n", "is no Python: "),
        ("def kernel_function(x):\n    return x\n", "defines no ModelNew"),
    ):
        path.write_text(text)
        assert is_foreign(path)
        found = read_foreign(path, TASK)
        assert isinstance(found, Refusal)
        assert words in found.sentence
    path.write_text("```cpp\nvoid f() {}\n```\n```python\ndef forward(x): ...\n```\n")
    assert not is_foreign(path), "a kernel with its plan is ours"


def test_code_that_needs_other_files_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "helper_of_mine.py").write_text("K = 1")
    path = tmp_path / "new.py"
    path.write_text("from helper_of_mine import K\nfrom .util import half\n" + CODE)
    found = read_foreign(path, TASK)
    assert isinstance(found, Refusal)
    assert "imports .util, helper_of_mine from other files" in found.sentence
