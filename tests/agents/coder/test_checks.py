import pytest

from kernelwright.agents.coder.answers import Draft
from kernelwright.agents.coder.repairs import problems
from kernelwright.tools.types import Task

KERNEL = """// tune: GRAIN in 8, 16
extern "C" void shift(const float* x, float* y, int64_t n) {}
"""
PLAN = """def forward(x):
    y = empty_like(x)
    launch("shift", args=(x, y, x.numel()))
    return y
"""


def check(task: Task, kernel: str = KERNEL, plan: str = PLAN) -> str:
    return problems(Draft(kernel=kernel, plan=plan), task, "cpp")


def test_a_draft_that_keeps_the_contract_has_no_problem(task: Task) -> None:
    assert check(task) == ""


@pytest.mark.parametrize(
    ("kernel", "plan", "words"),
    [
        ("void f() {}", PLAN, "no `extern"),
        (KERNEL.replace("8, 16", "8 to 16"), PLAN, "kernel, line 1"),
        (KERNEL + "// require: GRAIN > 99\n", PLAN, "requirement"),
        ("#include <cstdio>\n" + KERNEL, PLAN, "may not include 'cstdio'"),
        (KERNEL, "", "no plan"),
        (KERNEL, PLAN + "import os\n", "plan, line 5"),
        (KERNEL, PLAN.replace('"shift"', '"shaft"'), "exports no 'shaft'"),
        (KERNEL, PLAN.replace("(x)", "(x, y)", 1), "forward takes (x, y)"),
        (KERNEL, PLAN.replace("x.numel()", 'weights["w"].numel()'), "no weight 'w'"),
        (KERNEL, "def forward(x):\n    return aten.relu(x)\n", "launches no kernel"),
    ],
)
def test_a_breach_is_told_in_words_that_help(
    task: Task, kernel: str, plan: str, words: str
) -> None:
    assert words in check(task, kernel, plan)


def test_the_line_in_question_is_shown(task: Task) -> None:
    assert ">    2      y = emptylike(x)" in check(
        task, plan=PLAN.replace("empty_like", "emptylike")
    )


def test_a_kernel_for_another_device_is_no_candidate(task: Task) -> None:
    draft = Draft(kernel=KERNEL, plan=PLAN, language="cuda")
    assert "this device takes cpp" in problems(draft, task, "cpp")
