import pytest

from kernelwright.tools.candidates import ContractError
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.types import DType, LanguageName

CUDA = """#include "kernelwright.cuh"
// tune: THREADS in 128, 256
__device__ inline float twice(float x) { return x * 2; }
template <int N> __global__ void not_exported(float* x) {}
extern "C" __global__ void __launch_bounds__(THREADS)
a(const float* __restrict__ x, __half *y, int n, const long long m, unsigned long long q, bool b) {}
extern "C" {
__global__ __launch_bounds__(256, 2) void b(
    unsigned char* __restrict__ z,  // bytes
    const __nv_bfloat16* const __restrict__ w) {}
}
extern "C" __global__ void __cluster_dims__(8, 1, 1) c(void) {}
"""


def spellings(text: str, language: LanguageName) -> dict[str, list[str]]:
    source = parse_kernel(text, language)
    return {item.name: [p.spelling for p in item.parameters] for item in source.functions}


def test_cuda_exports_are_read_whatever_their_attributes() -> None:
    assert spellings(CUDA, "cuda") == {
        "a": ["float*", "__half*", "int", "long long", "unsigned long long", "bool"],
        "b": ["unsigned char*", "__nv_bfloat16*"],
        "c": [],
    }


def test_lines_are_those_of_the_text() -> None:
    source = parse_kernel(CUDA, "cuda")
    assert [item.line for item in source.functions] == [5, 8, 12]
    assert source.tunables[0].line == 2


def test_a_cpp_export_needs_no_global() -> None:
    text = 'extern "C" void f(const std::uint16_t* __restrict x, int64_t n, size_t k, float s) {}'
    assert spellings(text, "cpp") == {"f": ["uint16_t*", "int64_t", "size_t", "float"]}


def test_half_bits_take_both_half_types_on_the_host() -> None:
    text = 'extern "C" void f(std::uint16_t* x) {}'
    accepts = parse_kernel(text, "cpp").functions[0].parameters[0].accepts
    assert {DType.FLOAT16, DType.BFLOAT16} <= set(accepts)


def test_a_host_function_is_not_exported_to_cuda_plans() -> None:
    text = 'extern "C" void host(int n) {}\nextern "C" __global__ void k(int n) {}'
    assert list(spellings(text, "cuda")) == ["k"]


def test_comments_between_parameters_do_not_count() -> None:
    text = 'extern "C" void f(/* input */ const float* x, // the first\n int n /* last */) {}'
    assert spellings(text, "cpp") == {"f": ["float*", "int"]}


@pytest.mark.parametrize(
    ("text", "rule", "line", "word"),
    [
        ("void f(int n) {}", "exports", 0, "exported"),
        ("", "exports", 0, "exported"),
        ('\nextern "C" void f(int* x, int n) { x[0] = n }', "exports", 2, "';' is missing"),
        ("\x00", "source", 0, "text"),
        ('\nextern "C" int f(int n) { return n; }', "signature", 2, "void"),
        ('extern "C" static void f(int n) {}', "signature", 1, "static"),
        ('extern "C" void f(float** x) {}', "signature", 1, "float**"),
        ('extern "C" void f(float& x) {}', "signature", 1, "float& x"),
        ('extern "C" void f(int x[4]) {}', "signature", 1, "int x[4]"),
        ('extern "C" void f(void (*g)(int)) {}', "signature", 1, "g"),
        ('extern "C" void f(float4* x) {}', "signature", 1, "float4"),
        ('extern "C" void f(short n) {}', "signature", 1, "short"),
        ('extern "C" void f(float) {}', "signature", 1, "float"),
        ('extern "C" void f(int n, ...) {}', "signature", 1, "..."),
        ('extern "C" void f(int n) {}\nextern "C" void f(float n) {}', "exports", 2, "twice"),
    ],
)
def test_a_signature_outside_of_the_contract_is_named(
    text: str, rule: str, line: int, word: str
) -> None:
    with pytest.raises(ContractError) as caught:
        parse_kernel(text, "cpp")
    assert (caught.value.rule, caught.value.line) == (rule, line)
    assert word in caught.value.words


def test_a_deeply_nested_source_does_not_end_the_parser() -> None:
    text = 'extern "C" void f(int n) ' + "{ if (n) " * 300 + "}" * 300
    assert spellings(text, "cpp") == {"f": ["int"]}
