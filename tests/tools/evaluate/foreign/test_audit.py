"""What a foreign candidate computes in, and who does its work, decide its labels."""

import pytest

from kernelwright.tools.evaluate.foreign.audit import WorkAudit, label
from kernelwright.tools.evaluate.foreign.declarations import Declaration, read
from kernelwright.tools.evaluate.verify.measured_precision import Digits

EXACT = Digits(bits=23.5, exact=True, in_range=True)


@pytest.mark.exhaustive
def test_where_nothing_can_be_measured_a_setting_is_taken_at_its_word(task):
    usual, _ = label(task, Declaration(), (), None)
    assert (usual.label, usual.apart) == ("fp32", "")
    lower, remarks = label(task, Declaration(), ("cuda tf32: True",), None)
    assert remarks == ("it changed torch's setting of cuda tf32: True",)
    assert "tf32" in lower.apart
    allowed = task.model_copy(update={"allow": ("tf32",)})
    assert label(allowed, Declaration(), ("cuda tf32: True",), None)[0].apart == ""


@pytest.mark.parametrize(
    ("words", "found", "expected", "apart"),
    [
        (("half",), EXACT, "fp32", False),  # a branch that did not run, or parts that lose nothing
        ((), Digits(bits=10.4, exact=False, in_range=True), "tf32", True),
        (("half",), Digits(bits=10.4, exact=False, in_range=True), "fp16", True),
        ((), Digits(bits=7.6, exact=False, in_range=True), "bf16", True),
        (("half",), Digits(bits=22.0, exact=True, in_range=False), "fp16", True),
        (("half",), Digits(bits=20.5, exact=False, in_range=True), "fp32", False),
        (("bfloat16",), Digits(bits=16.2, exact=False, in_range=True), "bf16", True),
    ],
)
def test_the_digits_decide_and_what_the_file_names_says_which_type(
    task, words, found, expected, apart
):
    precision, _ = label(task, Declaration(words=frozenset(words)), (), found)
    assert (precision.label, precision.apart != "") == (expected, apart)


def test_an_epilogue_of_ones_own_behind_the_librarys_product_is_labelled_and_not_accused(task):
    found = WorkAudit(share=0.02, operators=("addmm",))
    assert found.pretence(Declaration(own=True), task) == ""
    assert found.method(Declaration(own=True)).startswith("library rearrangement (addmm)")


INLINE = """
import torch
from torch.utils.cpp_extension import load_inline
SOURCE = "__global__ void twice(float* x) { for (int i = 0; i < 2; i++) x[i] *= 2; }"
%s
class ModelNew(torch.nn.Module):
    def forward(self, x):
        try:
            return built.twice(x)
        except Exception:
            return torch.softmax(x, 1)
"""


@pytest.mark.parametrize(
    ("build", "for_gpu"),
    [
        ('built = load_inline("t", cpp_sources="", cuda_sources=SOURCE)', True),
        ('built = load_inline("t", cpp_sources=SOURCE, cuda_sources=[""])', False),
        ('built = load_inline("t", cpp_sources=SOURCE, functions=["twice"])', False),
        ('import triton\nbuilt = triton.jit(load_inline("t", "", cuda_sources=SOURCE))', True),
        ('import ctypes\nbuilt = ctypes.CDLL("t.so") or load_inline(cuda_sources=SOURCE)', False),
    ],
)
def test_kernels_for_a_gpu_are_no_pretence_where_there_is_none(task, build, for_gpu):
    found = read(INLINE % build, "ModelNew")
    assert found.own
    assert found.for_gpu is for_gpu
    assert found.on("cpu").builds_late is not for_gpu
    fell_back = WorkAudit(share=0.02, operators=("softmax",))
    assert bool(fell_back.pretence(found.on("cpu"), task)) is not for_gpu
    assert fell_back.pretence(found.on("cuda"), task)
