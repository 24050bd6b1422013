"""What the contract promises to models is held against the real compilers, plans and prelude."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from kernelwright.agents.llm.json_text import blocks
from kernelwright.agents.prompting.templates import contract, contract_summary, craft
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.candidates.plan import validate_plan
from kernelwright.tools.candidates.plan.vocabulary import HELPERS
from kernelwright.tools.languages import (
    INCLUDE,
    Built,
    compile_candidate,
    load_candidate,
    new_candidate,
    parse_kernel,
)
from kernelwright.tools.types import Candidate, LanguageName

WEIGHTS = {"weight": (8,), "linear.weight": (8, 16), "linear.bias": (8,), "scale": (8,)}
PRELUDES = {"cuda": ("kernelwright.cuh", "kernelwright_mma.cuh"), "cpp": ("kernelwright.hpp",)}


def words(language: LanguageName) -> str:
    return contract(language, "sm_90a" if language == "cuda" else None)


def examples(language: LanguageName) -> list[Candidate]:
    """The kernels of the contract with the plan that follows each."""
    found = blocks(words(language))
    return [
        new_candidate(language, kernel.text, plan.text)
        for kernel, plan in pairwise(found)
        if kernel.language == language and plan.language == "python"
    ]


@pytest.mark.parametrize("language", ["cuda", "cpp"])
async def test_the_examples_keep_the_contract_and_compile_under_every_first_setting(
    language: LanguageName,
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
    candidate = examples("cpp")[number]
    built = await compile_candidate(candidate, architecture=None, timeout_s=60)
    assert isinstance(built, Built), built
    weights = {name: torch.rand(shape) + 0.5 for name, shape in WEIGHTS.items()}
    runner = load_candidate(candidate, built, "cpu")
    runner.prepare(weights)
    x = torch.randn(40, 8 if number == 0 else 16)
    (got,) = runner((x,), weights)
    if number == 0:
        right = x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6) * weights["weight"]
    else:
        linear = torch.addmm(weights["linear.bias"], x, weights["linear.weight"].t())
        right = torch.relu(linear * weights["scale"])
    torch.testing.assert_close(got, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("language", ["cuda", "cpp"])
def test_every_name_of_the_prelude_that_is_promised_exists(language: LanguageName) -> None:
    headers = (INCLUDE / name for name in PRELUDES[language])
    prelude = "\n".join(header.read_text(encoding="utf-8") for header in headers)
    text = words(language) + craft(language)
    promised = set(re.findall(r"\bkw::(\w+)", text))
    # A list of functions names the room once: `kw::exp exp2 expm1 ...`.
    for listed in re.findall(r"`kw::([\w ]+?)(?: \.\.\.)?`", text):
        promised |= set(listed.split())
    assert len(promised) > 35
    assert not [name for name in sorted(promised) if not re.search(rf"\b{name}\b", prelude)]


@pytest.mark.parametrize("language", ["cuda", "cpp"])
def test_the_other_language_is_not_spoken_of(language: LanguageName) -> None:
    text = words(language) + contract_summary(language)
    foreign = "__global__" if language == "cpp" else "#pragma omp"
    assert foreign not in text


def test_every_helper_of_the_plans_language_is_listed() -> None:
    assert all(f"`{name}`" in words("cuda") for name in HELPERS)


# Everything that the tables of the preludes offer, used as they say.
USES = {
    "cuda": """#include "kernelwright.cuh"
struct Own {
    float a = 0.0f;
    __device__ void combine(const Own& other) { a += other.a; }
};
extern "C" __global__ void __launch_bounds__(128)
uses(const float* x, const __half* h, float* y, unsigned int* counter) {
    float* s = reinterpret_cast<float*>(kw::dynamic_shared());
    kw::copy_async<16>(s + threadIdx.x * 4, x + threadIdx.x * 4);
    kw::copy_commit();
    kw::copy_wait<0>();
    __syncthreads();
    const kw::Vec<float, 4> v = kw::load<kw::STREAM, 4>(x);
    const float values[4] = {v[0], v[1], kw::to<float>(h[0]), s[threadIdx.x]};
    const int positions[4] = {0, 1, 2, 3};
    kw::Sum<float> sum;
    kw::Product<float> product;
    kw::Maximum<float> most;
    kw::Minimum<float> least;
    kw::Moments<float> moments;
    kw::OnlineSoftmax<float> online;
    kw::ArgMaximum<float, int> where;
    sum.template add<4>(values);
    product.template add<4>(values);
    most.template add<4>(values);
    least.template add<4>(values);
    moments.template add<4>(values);
    online.template add<4>(values);
    where.template add<4>(values, positions);
    sum = kw::block_reduce<128>(sum);
    most = kw::warp_reduce<32>(most);
    moments = kw::cluster_reduce<128, 2>(moments);
    kw::cluster_sync();
    const Own own = kw::block_reduce<128>(Own{});
    kw::Sum<float> columns[2];
    kw::column_reduce<32, 4, 2>(columns, threadIdx.x % 32, threadIdx.x / 32);
    float total, carry = 0.0f, batch[4] = {1.0f, 2.0f, 3.0f, 4.0f};
    const float before = kw::warp_exclusive<32, kw::ScanSum<float>>(values[0], total);
    kw::scan_batch<32, 128, 2, 2, kw::ScanMaximum<float>>(batch, carry);
    if (kw::is_last(counter, gridDim.x)) y[4] = kw::load_shared_with_others(y);
    const float* far = kw::of_block(s, kw::cluster_rank() ^ 1);
    kw::cluster_sync();
    y[0] = sum.value() + product.value() + most.value() + least.value() + where.value() + before;
    y[1] = moments.value() + moments.second() + online.value() + online.second() + own.a + *far;
    y[2] = kw::divide_by_row(columns[0].value(), 3.0f) + batch[3] + kw::acquire(counter);
    y[3] = kw::multiply_add(kw::exp2(total), kw::sigmoid(carry), kw::round(kw::log1p(values[1])));
    kw::store<kw::DEFAULT>(y + 8, v);
}
""",
    "cpp": """#include "kernelwright.hpp"
extern "C" void uses(const float* x, const uint16_t* h, float* y, int64_t n) {
    kw::Sum<float, 16> sum;
    kw::Max<float, 16> most;
    kw::ArgMax<float, 16> where;
    kw::Moments<float, 16> moments;
    kw::Softmax<float, 16> softmax;
    kw::lanes<16>(n, [&](int64_t j, int l) {
        sum.add(l, x[j] + kw::half_to_float(h[j]));
        most.add(l, x[j]);
        where.add(l, x[j], j);
        moments.add(l, x[j]);
        softmax.add(l, x[j]);
    });
    sum.fold();
    most.fold();
    where.fold(0);
    moments.settle(n);
    softmax.settle(n);
    kw::lanes<16>(n, [&](int64_t j, int l) {
        moments.spread(l, x[j]);
        softmax.spread(l, x[j]);
    });
    moments.fold(n);
    softmax.fold(n);
    kw::Sum<float, 16> other;
    sum.total.merge(other.total);
    kw::ColumnSum<float, 16> columns;
    for (int l = 0; l < 16; ++l) columns.add(l, x[l]);
    float part[16] = {};
    double carry = 0;
    kw::scan<kw::SumOf>(part, 16, carry);
    kw::stream(y + 16, part, 16);
    kw::fence();
    y[0] = float(sum.total.value()) + most.total.value() + float(where.total.value());
    y[1] = float(moments.total.value() + moments.total.m2() + softmax.total.sum());
    y[3] = float(columns.value(3));
    y[2] = softmax.total.value() + kw::exp_below(-x[0]) + kw::one_plus_erf(x[1]) + kw::square(x[2]);
}
""",
}


@pytest.mark.parametrize("language", ["cuda", "cpp"])
async def test_the_prelude_can_be_used_as_the_tables_say(language: LanguageName) -> None:
    candidate = new_candidate(language, USES[language], "def forward(x):\n    return x\n")
    built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=60)
    assert isinstance(built, Built), built


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
    candidate = new_candidate("cuda", FRAGMENT, FRAGMENT_PLAN)
    built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=60)
    assert isinstance(built, Built), built


@pytest.mark.gpu
async def test_the_tensor_core_layout_that_is_described_is_the_devices() -> None:
    from kernelwright.tools.hardware import detect

    architecture = detect("cuda").architecture
    candidate = new_candidate("cuda", FRAGMENT, FRAGMENT_PLAN)
    built = await compile_candidate(candidate, architecture=architecture, timeout_s=60)
    assert isinstance(built, Built), built
    a, b = torch.randint(-8, 8, (16, 8)).float(), torch.randint(-8, 8, (8, 8)).float()
    (got,) = load_candidate(candidate, built, "cuda")((a.cuda(), b.cuda()), {})
    assert torch.equal(got.cpu(), a @ b)


def test_no_path_of_this_machine_stands_in_the_words() -> None:
    for language in ("cuda", "cpp"):
        assert str(Path.home()) not in words(language)
