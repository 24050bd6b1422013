"""Finalists on the CPU under the compiler's sanitizers, each really built and really run."""

from pathlib import Path

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.messages import JudgeRequest
from kernelwright.tools.evaluate.profiling.sanitizers import host_reading, sanitized_here
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.hardware import detect
from kernelwright.tools.languages import (
    Built,
    CompileRefusedError,
    compile_candidate,
    language_of,
    new_candidate,
)
from kernelwright.tools.types import Candidate, Evaluation, Task, TracePolicy, Verdict, Verification

FILE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64))

    def forward(self, x):
        return (x * self.weight).sum(-1)

def get_inputs():
    return [torch.randn(48, 64)]
"""
PLAN = """
def forward(x):
    half = x.narrow(0, 24, 24)
    y = empty([x.shape[0]], dtype=x.dtype)
    launch("rows", args=(x, weights["weight"], y, 24, x.shape[1], 1.0))
    launch("rows", args=(half, weights["weight"], y.narrow(0, 24, 24), 24, x.shape[1], 1.0))
    return y
"""
# A macro may have any name, also one that a standard header uses.
KERNEL = """#include "kernelwright.hpp"
// tune: value in 1, 2
extern "C" void rows(const float* x, const float* w, float* y, int n, long m, float one) {
    #pragma omp parallel for
    for (int i = 0; i < n; ++i) {
        double sum = 0;
        %s
        for (long j = 0; j < m; ++j) sum += double(x[i * m + j]) * w[j] * one;
        y[i] = sum;
    }
}
"""
RIGHT = Evaluation(candidate="", verification=Verification(verdict=Verdict.CORRECT, reason=""))


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory, short_rules: Rules) -> LocalExecutor:
    return LocalExecutor.create("cpu", tmp_path_factory.mktemp("here"), rules=short_rules)


async def looked(executor: LocalExecutor, folder: Path, *lines: str) -> list[Verification]:
    """What becomes of the kernel with each of the lines; one worker for all."""
    file = folder / "rows.py"
    file.write_text(FILE, encoding="utf-8")
    task = await executor.read(file, TracePolicy())
    assert isinstance(task, Task)
    request = await asked(new_candidate("cpp", KERNEL % "", PLAN), task)
    found = []
    for line in lines:
        # What is recorded are launches; which lines the kernel has does not matter to that.
        other = new_candidate("cpp", KERNEL % line, PLAN)
        changed = request.model_copy(update={"candidate": other})
        found.append(await sanitized_here(changed, RIGHT, folder / "sanitize", executor.record))
    await executor.aclose()
    return [item.verification for item in found]


async def asked(candidate: Candidate, task: Task) -> JudgeRequest:
    built = await compile_candidate(candidate, architecture=None, timeout_s=60)
    assert isinstance(built, Built), built
    return JudgeRequest(
        task=task,
        hardware=detect("cpu"),
        rules=Rules(),
        candidate=candidate,
        built=built,
        effort="certify",
        seed=1,
    )


@pytest.mark.exhaustive
async def test_what_the_right_answer_hides_is_found_and_an_honest_twin_passes(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    honest, beyond, overflow = await looked(
        executor,
        tmp_path,
        "",
        "volatile float unused = x[(i + 1) * m]; (void)unused;",
        "volatile int many = 2147483647; volatile int more = many + n; (void)more;",
    )
    assert honest.verdict is Verdict.CORRECT, honest.reason
    assert honest.not_verified == ()
    assert beyond.verdict is Verdict.OUT_OF_BOUNDS
    assert "heap-buffer-overflow, read of size 4" in beyond.reason
    assert "(line 7)" in beyond.reason
    assert overflow.verdict is Verdict.UNDEFINED_BEHAVIOUR
    assert "signed integer overflow" in overflow.reason


_PEEK = "static float peek(const float* p) { return *p; }"


@pytest.mark.parametrize(
    ("head", "line", "words"),
    [
        (
            "",
            "\n#ifndef __SANITIZE_ADDRESS__\nvolatile float u = x[(i + 1) * m]; (void)u;\n#endif\n",
            "reads otherwise",
        ),
        (
            "",
            "\n#ifdef __NO_MATH_ERRNO__\nvolatile float u = x[(i + 1) * m]; (void)u;\n#endif\n",
            "reads otherwise",
        ),
        (
            f'__attribute__((no_sanitize("address"), noinline)) {_PEEK}\n',
            "volatile float u = peek(x + (i + 1) * m); (void)u;",
            "look away (no_sanitize)",
        ),
        (
            f"#define J(a, b) a##b\n__attribute__((J(no_sani, tize_address), noinline)) {_PEEK}\n",
            "volatile float u = peek(x + (i + 1) * m); (void)u;",
            "look away (no_sanitize_address)",
        ),
    ],
    ids=["its-macro", "a-flag-of-what-is-judged", "exempt", "exempt-by-pasting"],
)
async def test_a_kernel_that_hides_from_sanitizers_cheats(
    head: str, line: str, words: str, tmp_path: Path
) -> None:
    kernel = (KERNEL % line).replace("extern", f"{head}extern", 1)
    candidate = new_candidate("cpp", kernel, PLAN)
    with pytest.raises(CompileRefusedError) as refused:
        await language_of(candidate).build_sanitized(candidate, tmp_path, timeout_s=30)
    assert words in refused.value.message
    assert refused.value.verdict is Verdict.CHEATING


async def test_a_compiler_without_sanitizers_verified_nothing(tmp_path, monkeypatch):
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\necho 'ld: error: cannot find -lasan'; exit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    candidate = new_candidate("cpp", KERNEL % "", PLAN)
    why = await language_of(candidate).build_sanitized(candidate, tmp_path, timeout_s=30)
    assert isinstance(why, str)
    assert "cannot find -lasan" in why
    assert "apt-get install" in why


def test_an_index_beyond_an_array_of_the_kernels_own_is_out_of_bounds() -> None:
    candidate = new_candidate("cpp", KERNEL % "", PLAN)
    said = "kernel.cpp:7:40: runtime error: index 4 out of bounds for type 'float [4]'\n"
    found = host_reading(said, candidate)
    assert found.verdict is Verdict.OUT_OF_BOUNDS
    assert found.words == "index 4 out of bounds for type 'float [4]' (line 7)"


def test_a_line_that_two_threads_reach_at_once_is_said_without_its_column() -> None:
    candidate = new_candidate("cpp", KERNEL % "", PLAN)
    said = "kernel.cpp:7: runtime error: signed integer overflow: 24 + 2147483647\n"
    found = host_reading(said, candidate)
    assert found.verdict is Verdict.UNDEFINED_BEHAVIOUR
    assert found.words == "signed integer overflow: 24 + 2147483647 (line 7)"


def test_a_program_that_breaks_elsewhere_accuses_nobody() -> None:
    candidate = new_candidate("cpp", KERNEL % "", PLAN)
    elsewhere = "==1==ERROR: AddressSanitizer: SEGV on unknown address\n    #0 0x1 in start x.c:3\n"
    assert host_reading(elsewhere, candidate).missing
    assert host_reading("", candidate).missing == "it said nothing"
