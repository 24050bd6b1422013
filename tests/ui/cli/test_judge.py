"""Candidates that a person wrote, however they are laid out."""

import hashlib
import json

import pytest

from kernelwright.tools.candidates import ContractError
from kernelwright.tools.languages import new_candidate
from kernelwright.ui.cli.check import task_of
from kernelwright.ui.cli.judge import read_candidate, read_start
from kernelwright.ui.complaints import Complaint

KERNEL = 'extern "C" void twice(const float* x, float* y, int n) {}\n'
PLAN = 'def forward(x):\n    y = empty_like(x)\n    launch("twice", args=(x, y, 3))\n    return y\n'
CUDA = KERNEL.replace("void", "__global__ void", 1)


def test_a_folder_holds_a_kernel_and_a_plan(tmp_path):
    (tmp_path / "fast.cpp").write_text(KERNEL)
    (tmp_path / "plan.py").write_text(PLAN)
    candidate = read_candidate(tmp_path)
    assert candidate.language == "cpp"
    assert candidate.origin == "person"
    assert candidate.plan == PLAN


@pytest.mark.parametrize("plan", ["fast.py", "plan.py"])
def test_a_plan_lies_beside_its_kernel(tmp_path, plan):
    (tmp_path / "fast.cpp").write_text(KERNEL)
    (tmp_path / plan).write_text(PLAN)
    assert read_candidate(tmp_path / "fast.cpp").kernel == KERNEL


@pytest.mark.parametrize("word", ["cuda", "cpp"])
def test_fenced_blocks_in_one_file(tmp_path, word):
    kernel, plan = KERNEL, PLAN
    if word == "cuda":
        kernel, plan = CUDA, PLAN.replace("args=", "grid=1, block=32, args=")
    file = tmp_path / "idea.md"
    file.write_text(f"Some words.\n\n```{word}\n{kernel}```\n\n```python\n{plan}```\n")
    assert read_candidate(file).language == word


@pytest.mark.parametrize(
    ("files", "at", "words"),
    [
        ({}, "", "but it holds no"),
        ({"a.cu": CUDA, "b.cpp": KERNEL, "plan.py": PLAN}, "", "but it holds 2"),
        ({"a.cpp": KERNEL}, "", "has no plan"),
        ({"a.cpp": KERNEL}, "a.cpp", "has no plan"),
        ({"a.md": "```cpp\n" + KERNEL + "```\n"}, "a.md", "it holds 1 and 0"),
        ({"a.md": "no code"}, "a.md", "it holds 0 and 0"),
        ({"m.py": "class ModelNew:\n    x = 1\n"}, "m.py", "foreign ModelNew"),
        ({"module.py": "", "kernel.cpp": KERNEL}, "", "has no plan"),
        ({"module.py": ""}, "", "looks like an export"),
    ],
)
def test_anything_else_is_a_sentence(tmp_path, files, at, words):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(Complaint, match=words):
        read_candidate(tmp_path / at if at else tmp_path)


def test_bytes_are_a_sentence(tmp_path):
    (tmp_path / "a.cpp").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "plan.py").write_text(PLAN)
    with pytest.raises(Complaint, match="is not text"):
        read_candidate(tmp_path / "a.cpp")


def test_a_plan_that_breaks_the_contract_names_line_and_rule(tmp_path):
    (tmp_path / "a.cpp").write_text(KERNEL)
    (tmp_path / "plan.py").write_text("import os\n" + PLAN)
    with pytest.raises(ContractError, match="line 1"):
        read_candidate(tmp_path)


def test_a_kernel_to_start_from_may_have_no_plan(tmp_path):
    (tmp_path / "fast.cu").write_text("__global__ void mine() {}\n")
    start = read_start(tmp_path / "fast.cu")
    assert (start.language, start.plan, start.name) == ("cuda", "", "fast.cu")


def test_a_whole_candidate_to_start_from_keeps_its_plan_and_the_contract(tmp_path):
    (tmp_path / "fast.cpp").write_text(KERNEL)
    (tmp_path / "plan.py").write_text(PLAN)
    assert read_start(tmp_path / "fast.cpp").plan == PLAN
    assert read_start(tmp_path).plan == PLAN
    (tmp_path / "plan.py").write_text("import os\n")
    with pytest.raises(ContractError):
        read_start(tmp_path / "fast.cpp")


def test_nothing_to_start_from_is_a_complaint(tmp_path):
    with pytest.raises(Complaint, match="there is no candidate"):
        read_start(tmp_path / "fast.cu")


def test_cuda_that_a_python_file_compiles_is_a_kernel_to_start_from(tmp_path):
    answer = "source = '__global__ void k(float* x) { x[0] = 1; }'\nclass ModelNew:\n    pass\n"
    (tmp_path / "answer.py").write_text(answer)
    start = read_start(tmp_path / "answer.py")
    assert (start.language, start.plan, start.name) == ("cuda", "", "answer.py")
    assert start.kernel.startswith("__global__ void k")


def exported(folder, *, kernel=KERNEL, plan=PLAN):
    """What a folder of an export holds, as far as it is read again."""
    made = new_candidate("cpp", kernel, plan, origin="playbook")
    files = {"module.py": "...", "kernel.cpp": kernel, "reference.py": "class Model: ...\n"}
    for name, text in files.items():
        (folder / name).write_text(text)
    evidence = {
        "kernelwright": "1",
        "task": {"name": "twice", "entry": "Twice", "input_override": ["3:float32"]},
        "candidate": made.model_dump(mode="json"),
        "files_sha256": {n: hashlib.sha256(t.encode()).hexdigest() for n, t in files.items()},
    }
    (folder / "evidence.json").write_text(json.dumps(evidence))
    return made


def test_an_exports_folder_is_the_candidate_that_was_exported_and_knows_its_task(tmp_path):
    made = exported(tmp_path)
    assert read_candidate(tmp_path) == made
    assert read_start(tmp_path).plan == PLAN
    own = task_of(tmp_path)
    assert own.file == tmp_path / "reference.py"
    assert (own.entry, own.inputs) == ("Twice", ("3:float32",))
    assert task_of(tmp_path / "kernel.cpp") is None


def test_an_export_that_was_changed_is_not_judged_by_what_it_was(tmp_path):
    exported(tmp_path)
    (tmp_path / "kernel.cpp").write_text(KERNEL.replace("{}", "{ y[0] = 1; }"))
    with pytest.raises(Complaint, match=r"was changed since it was exported \(kernel.cpp\)"):
        read_candidate(tmp_path)
    (tmp_path / "evidence.json").write_text("{")
    with pytest.raises(Complaint, match="cannot be read; export the run again"):
        read_candidate(tmp_path)


def test_an_exports_plan_keeps_to_the_contract_as_any_other(tmp_path):
    exported(tmp_path, plan="import os\n" + PLAN)
    with pytest.raises(ContractError):
        read_candidate(tmp_path)
