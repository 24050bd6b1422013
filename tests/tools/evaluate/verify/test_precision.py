"""What computes in less than the task asks is labelled by source and by measurement, and apart."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import apart, ranked
from kernelwright.tools.archive.database import Standing
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.verify.measured_precision import resolve
from kernelwright.tools.evaluate.verify.precision import candidate_precision
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Candidate, Evaluation, LanguageName, Task, TracePolicy, Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

PRODUCT = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        return x @ y

def get_inputs():
    return [torch.randn(17, 96), torch.randn(96, 33)]
"""
PLAN = """
def forward(x, y):
    m, k = x.shape
    k2, n = y.shape
    z = empty([m, n], dtype=x.dtype)
    launch("product", args=(x, y, z, m, n, k))
    return z
"""
KERNEL = """
#include <cstdint>
#include <cstring>
#include <cmath>
%s
extern "C" void product(const float* x, const float* y, float* z, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++) sum += times(x[i * k + l], y[l * n + j]);
            z[i * n + j] = float(sum);
        }
}
"""
HONEST = "static double times(float a, float b) { return double(a) * b; }"
HALF = "static double times(float a, float b) { return double(_Float16(a)) * double(_Float16(b)); }"
# Right to the last digit for values near 1, and infinite for large ones.
SPLIT = """
static double parts(float a) {
    _Float16 high = _Float16(a), low = _Float16((a - float(high)) * 2048.0f);
    _Float16 rest = _Float16((a - float(high) - float(low) / 2048.0f) * 4194304.0f);
    return double(high) + double(low) / 2048.0 + double(rest) / 4194304.0;
}
static double times(float a, float b) { return parts(a) * parts(b); }
"""
# The same with the exponent taken out first.
SCALED = SPLIT.replace("double parts(", "double plain(").replace(
    "static double times",
    "static double parts(float a) { int e; float f = frexpf(a, &e); return ldexp(plain(f), e); }\n"
    "static double times",
)
# No name gives this away: TF32's digits, by cutting off the others.
CUT = """
static double cut(float a) {
    uint32_t u; memcpy(&u, &a, 4); u &= 0xFFFFE000u; memcpy(&a, &u, 4); return a;
}
static double times(float a, float b) { return cut(a) * cut(b); }
"""


def product(head: str) -> Candidate:
    return new_candidate("cpp", KERNEL % head, PLAN)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def judge(
    tmp_path_factory: pytest.TempPathFactory, cpu: Hardware, short_rules: Rules
) -> AsyncIterator[LocalExecutor]:
    made = LocalExecutor(cpu, tmp_path_factory.mktemp("scratch"), seed=3, rules=short_rules)
    yield made
    await made.aclose()


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("task") / "product.py"
    path.write_text(PRODUCT, encoding="utf-8")
    task = trace(PRODUCT, str(path), TracePolicy())
    assert isinstance(task, Task), task
    return task


@pytest.mark.exhaustive
async def test_an_honest_product_has_the_digits_of_its_task(
    judge: LocalExecutor, exact: Task
) -> None:
    found = (await judge.evaluate(exact, product(HONEST), "precise")).verification
    assert (found.verdict, found.precision, found.apart) == (Verdict.CORRECT, "fp32", "")
    assert found.effective_bits is not None
    assert found.effective_bits > 20


@pytest.mark.exhaustive
async def test_half_precision_is_wrong_unless_it_was_allowed(
    judge: LocalExecutor, exact: Task
) -> None:
    found = (await judge.evaluate(exact, product(HALF), "screen")).verification
    assert found.verdict is Verdict.WRONG_RESULT
    allowed = exact.model_copy(update={"allow": ("fp16",)})
    found = (await judge.evaluate(allowed, product(HALF), "screen")).verification
    assert (found.verdict, found.precision, found.apart) == (Verdict.CORRECT, "fp16", "")
    assert found.effective_bits == pytest.approx(11, abs=1.0)


@pytest.mark.exhaustive
async def test_digits_that_are_cut_off_without_a_name_are_measured(
    judge: LocalExecutor, exact: Task
) -> None:
    allowed = exact.model_copy(update={"allow": ("tf32",)})
    found = (await judge.evaluate(allowed, product(CUT), "precise")).verification
    assert (found.verdict, found.precision, found.apart) == (Verdict.CORRECT, "tf32", "")
    # Allowing something else does not allow this: it is kept, and ranked apart.
    other = exact.model_copy(update={"allow": ("fp16",)})
    found = (await judge.evaluate(other, product(CUT), "precise")).verification
    assert (found.verdict, found.precision) == (Verdict.CORRECT, "tf32")
    assert "computes in tf32" in found.apart


@pytest.mark.exhaustive
async def test_a_split_that_fails_beyond_half_precisions_range_is_ranked_apart(
    judge: LocalExecutor, exact: Task
) -> None:
    narrow = await judge.evaluate(exact, product(SPLIT), "screen")
    assert narrow.verdict is Verdict.CORRECT
    assert narrow.verification.precision == "fp16"
    assert narrow.verification.apart
    wide = await judge.evaluate(exact, product(SCALED), "screen")
    assert (wide.verification.precision, wide.verification.apart) == ("fp32 via fp16", "")
    standings = [standing(1, product(SPLIT), narrow), standing(2, product(SCALED), wide)]
    assert [item.number for item in ranked(standings)] == [2]
    assert [item.number for item in apart(standings)] == [1]


def standing(number: int, candidate: Candidate, found: Evaluation) -> Standing:
    return Standing(
        number=number, candidate=candidate, round=1, author="coder", effort="screen",
        evaluation=found,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("named", "bits", "exact_enough", "label", "is_apart"),
    [
        ((), 23.0, True, "fp32", False),
        (("tf32",), 22.0, True, "fp32 via tf32", False),
        (("tf32",), 10.9, True, "tf32", False),  # no coarser than PyTorch's own
        (("tf32",), 10.9, False, "tf32", True),
        (("tf32",), 7.9, False, "bf16", True),  # its source says more than it has
        (("bf16",), 11.0, False, "bf16", True),
        ((), 8.0, False, "bf16", True),
        ((), 18.0, False, "fp32", False),  # a few digits fewer are the error ratio's business
    ],
)
async def test_of_two_readings_the_lower_one_is_the_label(
    exact: Task,
    named: tuple[str, ...],
    bits: float,
    exact_enough: bool,
    label: str,
    is_apart: bool,
) -> None:
    found = resolve(exact, named, bits, exact=exact_enough)
    assert (found.label, bool(found.apart)) == (label, is_apart)


@pytest.mark.parametrize(
    ("language", "text", "label"),
    [
        ("cuda", "half h = x[0]; y[0] = h;", "fp16"),
        ("cuda", "half unused;", "fp32"),
        ("cuda", "int half = n / 2; y[half] = 0;", "fp32"),
        ("cuda", "#if 0\nhalf h = x[0]; y[0] = h;\n#endif\n", "fp32"),
        ("cuda", 'const char* s = "f16 half"; /* tf32 */ // bf16\n', "fp32"),
        ("cuda", "#include <cuda_fp16.h>\n#include <mma.h>\n", "fp32"),
        ("cuda", "y[0] = __half2float(__float2half_rn(x[0]));", "fp16"),
        ("cuda", "wmma::fragment<wmma::matrix_a, 16, 16, 8, precision::tf32> a;", "tf32"),
        (
            "cuda",
            'asm volatile ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0};\\n"\n'
            '    "// two" : "=f"(d) : "r"(a));',
            "bf16",
        ),
        ("cpp", "float a = kw::half_to_float(kw::float_to_half(x[0])); y[0] = a;", "fp16"),
    ],
)
async def test_tokens_that_are_compiled_make_the_label(
    exact: Task, language: LanguageName, text: str, label: str
) -> None:
    kernel = f'extern "C" __global__ void f(const float* x, float* y, int n) {{\n{text}\n}}'
    candidate = new_candidate(language, kernel, "def forward(x, y):\n    return x\n")
    assert candidate_precision(exact, candidate) == label


TOKENS = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(50, 96)
        self.head = torch.nn.Linear(96, 33, bias=False)

    def forward(self, tokens):
        return self.head(self.table(tokens))

def get_inputs():
    return [torch.randint(0, 50, (17,))]
"""
LOOKED_UP = KERNEL.replace(
    "const float* x, const float* y,", "const int64_t* tokens, const float* table, const float* y,"
).replace("x[i * k + l], y[l * n + j]", "table[tokens[i] * k + l], y[j * k + l]")
TOKENS_PLAN = """
def forward(tokens):
    (m,) = tokens.shape
    n, k = weights["head.weight"].shape
    z = empty([m, n], dtype="float32")
    launch("product", args=(tokens, weights["table.weight"], weights["head.weight"], z, m, n, k))
    return z
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("times", "label", "is_apart"),
    [(HONEST, "fp32", False), (SCALED, "fp32 via fp16", False), (SPLIT, "fp16", True)],
)
async def test_where_a_task_reads_tokens_weights_tell_the_digits(
    judge: LocalExecutor, tmp_path: Path, times: str, label: str, is_apart: bool
) -> None:
    """A language model has no floating input in which a short significand could be seen."""
    file = tmp_path / "tokens.py"
    file.write_text(TOKENS, encoding="utf-8")
    task = await judge.trace(file, TracePolicy())
    assert isinstance(task, Task), task
    found = await judge.evaluate(
        task, new_candidate("cpp", LOOKED_UP % times, TOKENS_PLAN), "precise"
    )
    told = found.verification
    assert (told.verdict, told.precision, bool(told.apart)) == (Verdict.CORRECT, label, is_apart)


# Products whose probes by values of any width come to no number, or are not for every input.
FAR = PRODUCT.replace("x @ y", "x @ y * 3e38").replace(
    "torch.randn(17, 96)", "torch.randn(17, 96) / 1e3"
)
FAR = FAR.replace("torch.randn(96, 33)", "torch.randn(96, 33) / 1e3")
WEIGHED = PRODUCT.replace("x @ y", "x.log().exp() @ y")
WEIGHED = WEIGHED.replace("torch.randn(17, 96)", "torch.randn(17, 96).softmax(-1)")


@pytest.mark.exhaustive
@pytest.mark.parametrize(("source", "times"), [(FAR, "3e38"), (WEIGHED, "1.0")], ids=["far", "sum"])
async def test_digits_are_measured_where_values_of_any_width_have_no_answer(
    judge: LocalExecutor, tmp_path: Path, source: str, times: str
) -> None:
    path = tmp_path / "product.py"
    path.write_text(source, encoding="utf-8")
    task = trace(source, str(path), TracePolicy(allow=("tf32",)))
    assert isinstance(task, Task), task

    def candidate(head: str) -> Candidate:
        text = (KERNEL % head).replace("float(sum)", f"float(sum * {times})")
        return new_candidate("cpp", text, PLAN)

    split = (await judge.evaluate(task, candidate(SCALED), "screen")).verification
    assert (split.verdict, split.precision, split.apart) == (Verdict.CORRECT, "fp32 via fp16", "")
    cut = (await judge.evaluate(task, candidate(CUT), "precise")).verification
    assert (cut.verdict, cut.precision) == (Verdict.CORRECT, "tf32")
