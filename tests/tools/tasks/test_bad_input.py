"""Whatever a person points at, the answer is one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelwright.tools.tasks import read_source, trace
from kernelwright.tools.types import Refusal, TracePolicy

Sentence = Callable[..., str]

IDENTITY = """
class Model(nn.Module):
    def forward(self, x):
        return x + 1
"""


def refused(found: object) -> str:
    assert isinstance(found, Refusal)
    return found.sentence


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    assert "does not exist" in refused(read_source(tmp_path / "none.py"))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert "folder" in refused(read_source(tmp_path))


def test_an_empty_file_is_said(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("  \n")
    assert "empty.py is empty" in refused(read_source(path))


@pytest.mark.parametrize("content", [b"\x7fELF\x00\x00", b"\xff\xfe\x80", b"x = 1\x00"])
def test_a_binary_file_is_said(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "binary.py"
    path.write_bytes(content)
    assert "binary" in refused(read_source(path))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.py"
    with path.open("wb") as file:
        file.truncate(100 * 2**20)
    assert "too large" in refused(read_source(path))


def test_a_device_file_is_not_read() -> None:
    assert "not a regular file" in refused(read_source("/dev/zero"))


def test_a_good_file_is_its_text(tmp_path: Path) -> None:
    path = tmp_path / "good.py"
    path.write_bytes(b"\xef\xbb\xbfx = 1\n")
    assert read_source(path) == "x = 1\n"


def test_tracing_refuses_an_empty_text(tmp_path: Path) -> None:
    assert "empty" in refused(trace("", str(tmp_path / "e.py"), TracePolicy()))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = (", "syntax error in line"),
        ("def f(:\n    1", "syntax error in line"),
        ("import a_package_that_is_not_there", "'a_package_that_is_not_there'"),
        ("raise ValueError('not today')", "ValueError: not today"),
        ("import sys; sys.exit(3)", "exits the process (status 3)"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise MemoryError", "memory"),
        ("def f(): f()\nf()", "recurses"),
        ("class Odd(BaseException): pass\nraise Odd", "Odd"),
        ("x = 1", "defines no nn.Module"),
        ("def f(x): return x", "f"),
        ("class A(nn.Module): pass\nclass B(nn.Module): pass", "A, B"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(sentence: Sentence, text: str, words: str) -> None:
    assert words in sentence(text)


def test_a_missing_package_is_the_environments_fault(
    attempt: Callable[..., object],
) -> None:
    found = attempt("import a_package_that_is_not_there")
    assert isinstance(found, Refusal)
    assert found.exit_status == 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_file_for_a_gpu_says_so_where_there_is_none(attempt: Callable[..., object]) -> None:
    found = attempt(IDENTITY + "def get_inputs(): return [torch.randn(4, device='cuda')]\n")
    assert isinstance(found, Refusal)
    assert found.exit_status == 3
    assert "CUDA" in found.sentence


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("", "no get_inputs()"),
        ("def get_inputs(): raise OSError('gone')", "get_inputs() raises in line"),
        ("def get_inputs(): return 3", "must return a list"),
        ("def get_inputs(): return [{torch.randn(2)}]", "Input 1 is a set"),
        ("def get_inputs(): return [torch.randn(0, 4)]", "no elements"),
        ("def get_inputs(): return [torch.randn(2, dtype=torch.complex64)]", "complex64"),
        ("def get_inputs(): return [torch.eye(3).to_sparse()]", "sparse"),
        ("def get_inputs(): return [1.0]", "No input is a tensor"),
        ("def get_inputs(): return []", "No input is a tensor"),
        ("def get_inputs(): return [torch.randn(2), torch.randn(2)]", "The forward raises"),
        ("def get_inputs(): exit()", "exits the process"),
        ("def get_inputs(): return [torch.randn(2)]\ndef get_init_inputs(): return 1", "a list"),
        ("def get_inputs(): return [torch.randn(2)]\ndef get_init_inputs(): return [1]", "Model"),
    ],
)
def test_bad_inputs_are_named(sentence: Sentence, rest: str, words: str) -> None:
    assert words in sentence(IDENTITY + rest)


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        ("raise ValueError('never')", "The forward raises in line 6 ValueError: never"),
        ("return x @ x", "The forward raises in line 6 RuntimeError"),
        ("return 3", "returns no tensor"),
        ("return x, {3}", "The forward returns a set; tensors, tuples"),
        ("return {2: x}", "a dictionary whose keys are not all words"),
        ("return ()", "returns no tensor"),
        ("return x.add_(1)", "changes its input 'x' in place"),
        (
            "hasattr(self, 't') or self.register_buffer('t', x.cos()); return x * self.t",
            "registers its buffer 't' when it is first called",
        ),
        ("return x[x > 0]", "depends on the values of tensors at model.py:6"),
        ("return x * x[x > 0].amax()", "torch.where(mask, x, 0) has the size of x, and mask.sum()"),
        (
            "torch.set_grad_enabled(True); v = x.detach().requires_grad_(); "
            "g = torch.autograd.grad(v.tanh().sum(), v); torch.set_grad_enabled(False); return g",
            "takes gradients by autograd at model.py:6, which cannot be traced; torch.func.grad",
        ),
        ("return x if x.sum() > 0 else -x", "depends on the values of tensors at model.py:6"),
        ("return torch.fft.rfft(x)", "complex64"),
        ("import sys; sys.exit()", "exits the process"),
        ("return self.forward(x)", "recurses"),
        ("return x[:, :0]", "no elements"),
    ],
)
def test_a_forward_that_cannot_be_traced_says_why(
    sentence: Sentence, forward: str, words: str
) -> None:
    text = f"class Model(nn.Module):\n    def forward(self, x):\n        {forward}\n"
    assert words in sentence(text + "def get_inputs(): return [torch.randn(8, 32)]\n")


def test_a_size_that_is_taken_out_of_an_input_is_to_be_given_as_a_number(
    sentence: Sentence,
) -> None:
    text = (
        "class Model(nn.Module):\n    def forward(self, x, n): return x[:, : n.item()].sum() + x\n"
    )
    inputs = "def get_inputs(): return [torch.randn(8, 4), torch.tensor(2)]\n"
    assert "as .item() does; compute with the tensor, or give" in sentence(text + inputs)


def test_a_constructor_that_raises_is_said_with_its_line(sentence: Sentence) -> None:
    text = "class Model(nn.Module):\n    def __init__(self):\n        raise RuntimeError('no')\n"
    assert "Constructing Model raises in line 6 RuntimeError: no" in sentence(text)


@pytest.mark.parametrize(
    ("taken", "words"),
    [
        ("width, more=1", "(width): return them as a list in get_init_inputs(), or make one in"),
        ("*, width", "(width): make one in the file, as model = Block(...), and name it with"),
    ],
)
def test_a_constructor_s_arguments_are_asked_for(
    sentence: Sentence, taken: str, words: str
) -> None:
    text = f"class Block(nn.Module):\n    def __init__(self, {taken}):\n        pass\n"
    assert words in sentence(text + "def get_inputs(): return [torch.ones(2)]\n")


def test_several_modules_are_listed_with_those_that_are_made_already(sentence: Sentence) -> None:
    text = "class A(nn.Module): ...\nclass B(nn.Module): ...\nready = B()\n"
    assert "A, B, ready; name one with --entry." in sentence(text)


def test_a_wrong_entry_lists_what_is_there(sentence: Sentence) -> None:
    words = sentence(IDENTITY + "def other(x): return x\nZ = 3\n", entry="Nothing")
    assert "Model, other" in words
    assert "neither" in sentence(IDENTITY + "Z = 3\n", entry="Z")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("4x4:floating", "unknown type 'floating'"),
        ("4x4:int64", "needs a bound"),
        ("4x4:int64<0", "needs a bound"),
        ("4x4:float32<3", "only integers"),
        ("4y4:float32", "not of the form"),
        ("0x4:float32", "no elements"),
    ],
)
def test_bad_overrides_name_the_rule(sentence: Sentence, text: str, words: str) -> None:
    assert words in sentence(IDENTITY, inputs=(text,))


def test_a_huge_baked_in_constant_is_refused(sentence: Sentence) -> None:
    text = """
    class Model(nn.Module):
        def forward(self, x):
            return x * torch.tensor([float(i) for i in range(300000)])
    def get_inputs(): return [torch.randn(300000)]
    """
    assert "register it as a buffer" in sentence(text)


def test_a_module_without_sizes_yet_is_told_what_to_do(sentence: Callable[..., str]) -> None:
    text = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.LazyLinear(8)
    def forward(self, x):
        return self.lin(x)
def get_inputs():
    return [torch.randn(4, 16)]
"""
    told = sentence(text)
    assert "'lin.weight' has no size before the first forward" in told
    assert "call the module once" in told


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ("torch.randn(4, device='meta')", "Input 1 is on the device 'meta'"),
        (
            "torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)",
            "Input 1 has the type qint8",
        ),
    ],
)
def test_inputs_without_plain_values_are_refused(
    sentence: Sentence, inputs: str, words: str
) -> None:
    assert words in sentence(f"{IDENTITY}def get_inputs(): return [{inputs}]\n")


def test_an_input_larger_than_any_memory_is_refused(tmp_path: Path) -> None:
    policy = TracePolicy(inputs=("99999999999999999999x4",))
    text = f"import torch.nn as nn\n{IDENTITY}"
    found = trace(text, str(tmp_path / "a.py"), policy)
    assert "larger than any memory" in refused(found)


def test_python_is_read_whatever_its_file_is_called(tmp_path: Path) -> None:
    text = "import torch\nfrom torch import nn\n" + IDENTITY
    text += "def get_inputs(): return [torch.randn(4)]\n"
    found = trace(text, str(tmp_path / "model.txt"), TracePolicy())
    assert not isinstance(found, Refusal), found.sentence
