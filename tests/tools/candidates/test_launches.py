"""Launches of bare kernels: what is inferred, what a comment says, and what has to be asked for."""

import pytest

from kernelwright.tools.candidates.launches import Inferred, exported, inferred
from kernelwright.tools.candidates.plan import validate_plan
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.types import DType, Graph, InputSpec, Task, TensorSpec
from kernelwright.tools.types.task import WeightSpec

ADD = """// tune: THREADS in 128, 256
__global__ void add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
"""
SOFTMAX = """__global__ void __launch_bounds__(512)
softmax(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
  const float* row = x + (long long)blockIdx.x * cols;
}
"""
MATMUL = """#define TILE 16
__global__ void matmul(const float* A, const float* B, float* C, int M, int N, int K) {
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
}
"""


def spec(*shape: int) -> TensorSpec:
    return TensorSpec(shape=shape, dtype=DType.FLOAT32)


def task(inputs: dict[str, TensorSpec], *outputs: TensorSpec, **weights: TensorSpec) -> Task:
    return Task(
        name="t", path="t.py", source="", source_sha256="0", entry="Model",
        entry_kind="kernelbench", outputs=outputs, bytes_moved=1, flops=1,
        inputs=tuple(InputSpec(name=name, tensor=of) for name, of in inputs.items()),
        weights=tuple(WeightSpec(name=name, tensor=of) for name, of in weights.items()),
        graph=Graph(nodes=(), inputs=(), outputs=()),
    )  # fmt: skip


def launches(kernel: str, about: Task, language: str = "cuda") -> Inferred:
    text = exported(kernel)
    source = parse_kernel(text, language)
    found = inferred(source, text, about)
    for plan in found.plans:
        validate_plan(plan, source)
    return found


def line(found: Inferred, number: int = 0) -> str:
    assert not found.missing
    return next(one.strip() for one in found.plans[number].splitlines() if "launch(" in one)


def test_grids_are_of_blocks_of_the_size_that_was_said() -> None:
    about = task({"x": spec(8, 64), "z": spec(8, 64)}, spec(8, 64))
    found = launches(
        f"// launch: block=64\n{ADD.splitlines(True)[1]}" + ADD[ADD.index("  int") :], about
    )
    assert line(found) == (
        'launch("add", grid=ceil_div(512, 64), block=64, args=(x, z, out0, 512))'
    )
    wide = task({"a": spec(64, 32), "b": spec(32, 48)}, spec(64, 48))
    found = launches("// launch: block=(32, 8)\n" + MATMUL, wide)
    assert "grid=(ceil_div(48, 32), ceil_div(64, 8)), block=(32, 8)" in line(found)


def test_a_thread_an_element_with_inputs_in_order_and_the_tunable_as_block() -> None:
    found = launches(ADD, task({"x": spec(8, 64), "z": spec(8, 64)}, spec(8, 64)))
    assert line(found) == (
        'launch("add", grid=ceil_div(512, THREADS), block=THREADS, args=(x, z, out0, 512))'
    )
    assert 'out0 = empty((8, 64), dtype="float32")' in found.plans[0]


def test_a_block_a_row_by_the_names_of_sizes_and_the_launch_bounds() -> None:
    found = launches(SOFTMAX, task({"x": spec(4, 8, 64)}, spec(4, 8, 64)))
    assert line(found) == 'launch("softmax", grid=32, block=512, args=(x, out0, 32, 64))'


def test_tiles_of_a_product_and_its_three_sizes() -> None:
    found = launches(MATMUL, task({"x": spec(96, 32), "w": spec(32, 80)}, spec(96, 80)))
    assert line(found) == (
        'launch("matmul", grid=(ceil_div(80, 16), ceil_div(96, 16)), block=(16, 16), '
        "args=(x, w, out0, 96, 80, 32))"
    )


def test_names_go_before_order_and_weights_are_taken_by_their_own() -> None:
    kernel = ADD.replace("const float* b", "const float* bias").replace("b[i]", "bias[i]")
    about = task({"x": spec(8)}, spec(8), **{"norm.weight": spec(8), "norm.bias": spec(8)})
    assert 'args=(x, weights["norm.bias"], out0, 8)' in line(launches(kernel, about))


def test_where_a_size_may_be_two_things_there_is_a_plan_for_either() -> None:
    kernel = SOFTMAX.replace("int rows, int cols", "int b, int d").replace("cols;", "d;")
    found = launches(kernel, task({"x": spec(4, 8, 64)}, spec(4, 8, 64)))
    assert "args=(x, out0, 32, 64)" in line(found)
    assert any("args=(x, out0, 4, 64)" in plan for plan in found.plans)
    assert len(found.plans) <= 6


def test_a_comment_says_what_cannot_be_inferred_in_the_kernels_own_names() -> None:
    said = "// launch: grid=(cols, rows), block=64, shared=4 * cols\nextern __shared__ float s[];\n"
    found = launches(said + SOFTMAX, task({"x": spec(4, 64)}, spec(4, 64)))
    assert line(found) == (
        'launch("softmax", grid=(64, 4), block=64, shared=4 * 64, args=(x, out0, 4, 64))'
    )
    given = "// launch: args=(x, y, 7, 9)\n"
    found = launches(given + SOFTMAX.replace("int cols", "int what"), found_task())
    assert "args=(x, out0, 7, 9)" in line(found)


def found_task() -> Task:
    return task({"x": spec(4, 64)}, spec(4, 64))


def test_a_function_of_c_has_arguments_alone() -> None:
    kernel = 'extern "C" void twice(const float* x, float* y, long long n) {}\n'
    found = launches(kernel, task({"x": spec(4, 64)}, spec(4, 64)), "cpp")
    assert line(found) == 'launch("twice", args=(x, out0, 256))'


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (SOFTMAX.replace("int cols", "int what"), "which size what is"),
        (SOFTMAX.replace("int cols", "float eps"), "what float eps is"),
        (SOFTMAX.replace("float* __restrict__ y", "float* y, float* z"), "writes 2 tensors"),
        (SOFTMAX.replace("const float*", "const double*"), "no input or weight"),
        (SOFTMAX.replace("float* __restrict__ y", "int* y"), "y is int*"),
        ("extern __shared__ float s[];\n" + SOFTMAX, "dynamic shared memory"),
        (SOFTMAX + ADD, "exports softmax, add"),
        ("// launch: 4 blocks\n" + SOFTMAX, "is not of the form"),
    ],
)
def test_what_cannot_be_told_is_asked_for(kernel: str, words: str) -> None:
    found = launches(kernel, found_task())
    assert found.plans == ()
    assert words in found.missing


def test_only_bare_kernels_are_exported() -> None:
    assert exported(ADD).count('extern "C" __global__') == 1
    assert exported(exported(ADD)) == exported(ADD)
    template = "template <int N>\n__global__ void f(const float* x, float* y) {}\n"
    assert exported(template) == template
