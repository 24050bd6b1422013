"""What the contract promises to models is held against the real compilers, plans and prelude."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from agents.minds.standing import contract, contract_summary, craft
from agents.model.blocks import blocks
from tools.candidates import new_candidate, parse_kernel, valid_settings, validate_plan
from tools.candidates.plan.vocabulary import HELPERS
from tools.candidates.run import PlanRunner
from tools.compile import Built, compile_candidate
from tools.compile.cuda import INCLUDE
from tools.nouns import Candidate, Language

WEIGHTS = {"weight": (8,), "linear.weight": (8, 16), "linear.bias": (8,), "scale": (8,)}
PRELUDES = {Language.CUDA: "kernelwright.cuh", Language.CPP: "kernelwright.hpp"}


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELWRIGHT_HOME", str(tmp_path_factory.mktemp("home")))
        yield


def words(language: Language) -> str:
    return contract(language, "sm_90a" if language is Language.CUDA else None)


def examples(language: Language) -> list[Candidate]:
    """The kernels of the contract with the plan that follows each."""
    found = blocks(words(language))
    return [
        new_candidate(language, kernel.text, plan.text)
        for kernel, plan in pairwise(found)
        if kernel.language == language.value and plan.language == "python"
    ]


@pytest.mark.parametrize("language", Language)
async def test_the_examples_keep_the_contract_and_compile_under_every_first_setting(
    language: Language,
) -> None:
    candidates = examples(language)
    assert len(candidates) == 2
    for candidate in candidates:
        source = parse_kernel(candidate.kernel, language)
        validate_plan(candidate.plan, source)
        assert len(valid_settings(source)) > 1
        built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=60)
        assert isinstance(built, Built), built
        assert all(not report.spill_bytes for report in built.reports)


@pytest.mark.parametrize("number", [0, 1])
async def test_the_examples_for_the_cpu_compute_what_they_say(number: int) -> None:
    candidate = examples(Language.CPP)[number]
    built = await compile_candidate(candidate, architecture=None, timeout_s=60)
    assert isinstance(built, Built), built
    weights = {name: torch.rand(shape) + 0.5 for name, shape in WEIGHTS.items()}
    runner = PlanRunner(candidate, built, "cpu")
    runner.prepare(weights)
    x = torch.randn(40, 8 if number == 0 else 16)
    (got,) = runner((x,), weights)
    if number == 0:
        right = x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6) * weights["weight"]
    else:
        linear = torch.addmm(weights["linear.bias"], x, weights["linear.weight"].t())
        right = torch.relu(linear * weights["scale"])
    torch.testing.assert_close(got, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("language", Language)
def test_every_name_of_the_prelude_that_is_promised_exists(language: Language) -> None:
    prelude = (INCLUDE / PRELUDES[language]).read_text(encoding="utf-8")
    text = words(language) + craft(language)
    promised = set(re.findall(r"\bkw::(\w+)", text))
    # A list of functions names the room once: `kw::exp exp2 expm1 ...`.
    for listed in re.findall(r"`kw::([\w ]+?)(?: \.\.\.)?`", text):
        promised |= set(listed.split())
    assert len(promised) > 35
    assert not [name for name in sorted(promised) if not re.search(rf"\b{name}\b", prelude)]


@pytest.mark.parametrize("language", Language)
def test_the_other_language_is_not_spoken_of(language: Language) -> None:
    text = words(language) + contract_summary(language)
    foreign = "__global__" if language is Language.CPP else "#pragma omp"
    assert foreign not in text


def test_every_helper_of_the_plans_language_is_listed() -> None:
    assert all(f"`{name}`" in words(Language.CUDA) for name in HELPERS)


FRAGMENT = """#include "kernelwright.cuh"
extern "C" __global__ void one_tile(const float* a, const float* b, float* c) {
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    unsigned int A[4], B[2];
    float C[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const int rows[4] = {g, g + 8, g, g + 8}, columns[4] = {t, t, t + 4, t + 4};
    for (int i = 0; i < 4; ++i)
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(A[i]) : "f"(a[rows[i] * 8 + columns[i]]));
    for (int i = 0; i < 2; ++i)
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(B[i]) : "f"(b[(t + 4 * i) * 8 + g]));
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(C[0]), "+f"(C[1]), "+f"(C[2]), "+f"(C[3])
        : "r"(A[0]), "r"(A[1]), "r"(A[2]), "r"(A[3]), "r"(B[0]), "r"(B[1]));
    c[g * 8 + 2 * t] = C[0];
    c[g * 8 + 2 * t + 1] = C[1];
    c[(g + 8) * 8 + 2 * t] = C[2];
    c[(g + 8) * 8 + 2 * t + 1] = C[3];
}
"""
FRAGMENT_PLAN = """def forward(a, b):
    c = empty((16, 8))
    launch("one_tile", grid=1, block=32, args=(a, b, c))
    return c
"""


async def test_the_tensor_core_instructions_that_are_named_compile() -> None:
    candidate = new_candidate(Language.CUDA, FRAGMENT, FRAGMENT_PLAN)
    built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=60)
    assert isinstance(built, Built), built


@pytest.mark.gpu
async def test_the_tensor_core_layout_that_is_described_is_the_devices() -> None:
    from tools.hardware import detect

    architecture = detect("cuda").architecture
    candidate = new_candidate(Language.CUDA, FRAGMENT, FRAGMENT_PLAN)
    built = await compile_candidate(candidate, architecture=architecture, timeout_s=60)
    assert isinstance(built, Built), built
    a, b = torch.randint(-8, 8, (16, 8)).float(), torch.randint(-8, 8, (8, 8)).float()
    (got,) = PlanRunner(candidate, built, "cuda")((a.cuda(), b.cuda()), {})
    assert torch.equal(got.cpu(), a @ b)


def test_no_path_of_this_machine_stands_in_the_words() -> None:
    for language in Language:
        assert str(Path.home()) not in words(language)
