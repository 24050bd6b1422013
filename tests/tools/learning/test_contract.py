"""An answer of device code alone is a candidate like any other, or breaks the contract."""

import pytest

from kernelwright.tools.candidates import ContractError
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.learning.contract.launches import Interface, candidate_of, interface
from kernelwright.tools.learning.contract.prompts import (
    ANSWER_TOKENS,
    PROMPT_TOKENS,
    question,
    size_of,
    tokens,
)
from kernelwright.tools.learning.contract.shortening import in_full, shortened
from kernelwright.tools.learning.data.records import Problem
from kernelwright.tools.learning.writing.answers import written_answers

ANSWER = """Here it is:
```cuda
// temporary: t float32 4x8
// launch: half grid=1 block=32 args=x,t
// launch: rest grid=2,2 block=32 shared=128 args=t,scale,out,8
extern "C" __global__ void half(const float* a, float* b) { b[threadIdx.x] = a[threadIdx.x]; }
extern "C" __global__ void rest(const float* a, const float* s, float* b, int n) { b[0] = a[n]; }
```
"""
PLAN = """def forward(x):
    scale = weights["scale"]
    out = empty((4, 8), dtype="float32")
    t = empty((4, 8), dtype="float32")
    launch("half", grid=1, block=32, args=(x, t))
    launch("rest", grid=(2, 2), block=32, shared=128, args=(t, scale, out, 8))
    return out
"""


@pytest.fixture(scope="module")
def names(problem: Problem) -> Interface:
    found = interface(problem.task)
    assert found is not None
    return found


def test_launch_comments_become_the_plan(names: Interface) -> None:
    candidate = candidate_of(ANSWER, names, "cuda")
    assert candidate.plan == PLAN
    assert candidate.kernel.startswith('#include "kernelwright.cuh"')
    assert candidate.origin == "model"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("// launch", "// lunch", "no `// launch:` comment"),
        ("args=x,t", "args=x,weights", "weights, which is nothing here"),
        ("args=x,t", "args=x", "half"),
        ("grid=1 ", "grid=__import__ ", "is no size"),
        ("grid=1 ", "grid=8/0 ", "is no size"),
        ("grid=1 ", "grid=8*x/2 ", "is no size"),
        ("block=32 args=x,t", "host=1 args=x,t", "is not `NAME grid=SIZE"),
        ("t float32 4x8", "t float32 99999999999", "is not `NAME TYPE SIZE`"),
        ("t float32 4x8", "x float32 4x8", "the name x is taken"),
        ("t float32 4x8", "t float31 4x8", "is no element type"),
        ("args=x,t", "args=x,t,2*3", "are not names or whole numbers"),
    ],
)
def test_what_breaks_the_contract_is_told_where(
    names: Interface, old: str, new: str, words: str
) -> None:
    with pytest.raises(ContractError, match=words.replace("`", ".").replace("*", ".")):
        candidate_of(ANSWER.replace(old, new), names, "cuda")


def test_sizes_may_be_products_and_divisions_that_round_up(names: Interface) -> None:
    written = ANSWER.replace("grid=1 ", "grid=3*100/256 ").replace("grid=2,2", "grid=2*3,7/4")
    plan = PLAN.replace("grid=1,", "grid=2,").replace("grid=(2, 2)", "grid=(6, 2)")
    assert candidate_of(written, names, "cuda").plan == plan


def test_an_endless_answer_is_refused_unread(names: Interface) -> None:
    with pytest.raises(ContractError, match="too many"):
        candidate_of("x" * 20_000, names, "cuda")


def test_question_and_written_answer_keep_their_sizes(problem: Problem, names: Interface) -> None:
    for language in ("cuda", "cpp"):
        asked = question(problem.task, names, language)
        assert size_of(asked) <= PROMPT_TOKENS
        assert "scale: (8) float32" in asked[1].content
        answers = written_answers(problem.task, names, language, count=2, seed=0)
        assert len({one.answer for one in answers}) == 2
        assert len({one.way for one in answers}) == 2
        for one in answers:
            assert tokens(one.answer) <= ANSWER_TOKENS
            assert candidate_of(one.answer, names, language).language == language


KERNEL = """#include "kernelwright.cuh"
// tune: THREADS in 32, 64
// require: THREADS <= 64
extern "C" __global__ void run(const float* g, const float* s, float* o) {
    o[blockIdx.x * THREADS] = g[0] * s[0];
}
"""
TUNED = """def forward(y):
    w = weights["scale"]
    made = empty((4, 8), dtype="float32")
    launch("run", grid=ceil_div(32, THREADS), block=THREADS, args=(y, w, made))
    return made
"""


def test_a_plan_that_only_launches_fits_the_short_contract(names: Interface) -> None:
    candidate = new_candidate("cuda", KERNEL, TUNED)
    answer = shortened(candidate, names)
    assert answer is not None
    assert "// launch: run grid=1 block=32 args=x,scale,out\n" in answer
    assert "THREADS" not in answer
    assert "#include" not in answer
    assert 'launch("run", grid=1, block=32, args=(x, scale, out))' in (
        candidate_of(answer, names, "cuda").plan
    )


@pytest.mark.parametrize(
    "line",
    [
        "    made = aten.relu(made)\n",
        '    made = zeros((4, 8), dtype="float32")\n',
        "    y = y.view(8, 4)\n",
    ],
)
def test_a_plan_that_does_more_is_told_in_full(names: Interface, line: str) -> None:
    plan = TUNED.replace("    return", f"{line}    return")
    candidate = new_candidate("cuda", KERNEL, plan)
    assert shortened(candidate, names) is None
    assert in_full(candidate).count("```") == 4
