from collections.abc import Callable

import pytest

from kernelwright.agents.coder.coder import CoderRequest
from kernelwright.agents.coder.distinct import structure
from kernelwright.tools.languages import new_candidate

MakeCoder = Callable[..., tuple]  # type: ignore[type-arg]

KERNEL = """// memory=streamed once
#include "kernelwright.cuh"
// tune: TILE in 128, 64
extern "C" __global__ void add(const float* x, float* y, int n) {
  int i = blockIdx.x * TILE + threadIdx.x;  // one element a thread
  float4 held = load(x, i);
  if (i < n) y[i] = fmaxf(held.x, 1.5f);
}
"""
PLAN = """def forward(x):
    y = empty_like(x)
    launch("add", grid=x.numel() // TILE, block=TILE, args=(x, y, x.numel()))
    return y
"""
OWN = structure(KERNEL, PLAN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("// one element a thread", "/* nothing\nof that */"),
        (" held", " loaded"),
        ("TILE", "BLOCK"),
        ("TILE in 128, 64", "TILE in 256"),
        ("add", "shift"),
        ("int n", "int count"),
        ("  float4", "      float4"),
    ],
)
def test_another_spelling_is_the_same_work(old: str, new: str) -> None:
    kernel, plan = KERNEL.replace(old, new), PLAN.replace(old, new)
    kernel = kernel.replace("held.x", "loaded.x") if new == " loaded" else kernel
    kernel = kernel.replace("i < n", "i < count") if new == "int count" else kernel
    assert (kernel, plan) != (KERNEL, PLAN)
    assert structure(kernel, plan) == OWN


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fmaxf", "fminf"),
        ("float4", "float2"),
        ("1.5f", "2.5f"),
        ("i < n", "i <= n"),
        ("blockIdx.x", "blockIdx.y"),
        ("return y", "return x"),
        ("empty_like", "zeros_like"),
    ],
)
def test_other_work_is_told_apart(old: str, new: str) -> None:
    assert structure(KERNEL.replace(old, new), PLAN.replace(old, new)) != OWN


async def test_a_second_candidate_that_does_the_same_is_asked_for_again(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str
) -> None:
    renamed, other = answer.replace("shift", "move"), answer.replace("1.0f", "2.0f")
    coder, client = make_coder(answer + renamed, other)
    asked = coder_request.model_copy(update={"count": 2, "distinct": True})
    written = await coder.write(asked)
    assert ["2.0f" in item.kernel for item in written.candidates] == [False, True]
    assert "candidate 1 of your answer once more" in client.asked[1].messages[-1].text
    assert "differs in structure" in written.notes[0]


async def test_what_the_idea_has_already_is_not_written_in_other_words(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str
) -> None:
    coder, _ = make_coder(answer)
    (first,) = (await coder.write(coder_request)).candidates
    known = new_candidate("cpp", first.kernel, first.plan, idea=first.idea)
    asked = coder_request.model_copy(update={"distinct": True, "written": (known,)})
    coder, client = make_coder(answer.replace("shift", "move"), answer.replace("1.0f", "3.0f"))
    (again,) = (await coder.write(asked)).candidates
    assert "3.0f" in again.kernel
    assert f"`{known.id}` once more" in client.asked[1].messages[-1].text
