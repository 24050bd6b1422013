"""Where a plan may say `tensor_map`, and which parameters take one."""

import pytest

from kernelwright.tools.candidates import ContractError
from kernelwright.tools.candidates.plan import validate_plan
from kernelwright.tools.languages import parse_kernel

KERNEL = """extern "C" __global__ void f(
    const __grid_constant__ kw::TensorMap left, float* y, int n) {}
"""


def plan(arguments: str, before: str = "y = empty_like(x)") -> str:
    launch = f'launch("f", grid=1, block=32, args=({arguments}))'
    return f"def forward(x):\n    {before}\n    {launch}\n    return y\n"


@pytest.mark.parametrize(
    "given",
    [
        "x, box=(8, 64)",
        'weights["w"], box=(8, 64), swizzle=0',
        "x, box=(8, 64), shape=(x.shape[0], 64), strides=(64, 1), offset=8, swizzle=64",
    ],
)
def test_a_map_stands_where_its_parameter_does(given: str) -> None:
    source = parse_kernel(KERNEL, "cuda")
    assert source.letters == {"f": "MPi"}
    assert source.pointers == {"f": (False, True, False)}
    validate_plan(plan(f"tensor_map({given}), y, 1"), source)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (plan("x, y, 1"), "kw::TensorMap left takes tensor_map"),
        (plan("3, y, 1"), "kw::TensorMap left takes tensor_map"),
        (plan("tensor_map(x, box=(8, 8)), tensor_map(x, box=(8, 8)), 1"), "y takes no tensor map"),
        (plan("tensor_map(x, box=(8, 8)), y, tensor_map(x, box=(8, 8))"), "n takes no tensor map"),
        (plan("tensor_map(x), y, 1"), "the form is tensor_map"),
        (plan("tensor_map(x, (8, 8)), y, 1"), "the form is tensor_map"),
        (plan("tensor_map(x, box=(8, 8), im2col=1), y, 1"), "the form is tensor_map"),
        (plan("tensor_map(x.T, box=(8, 8)), y, 1"), "the form is tensor_map"),
        (plan("tensor_map(x[1:], box=(8, 8)), y, 1"), "give the view one first"),
        (plan("m, y, 1", "m = y = tensor_map(x, box=(8, 8))"), "among the args of a launch only"),
        (plan("x, y, 1", "y = tensor_map"), "must be called"),
        (
            plan("tensor_map(x, box=(8, 8)), y, 1", "tensor_map = y = x"),
            "word of the plan's language",
        ),
    ],
)
def test_a_map_anywhere_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        validate_plan(text, parse_kernel(KERNEL, "cuda"))


def test_a_map_is_a_constant_of_the_grid() -> None:
    for spelled in (
        "kw::TensorMap m",
        "const kw::TensorMap m",
        "__grid_constant__ kw::TensorMap m",
    ):
        with pytest.raises(
            ContractError, match="must be `const __grid_constant__ kw::TensorMap m`"
        ):
            parse_kernel(f'extern "C" __global__ void f({spelled}) {{}}', "cuda")
    with pytest.raises(ContractError, match="pointer to 'kw::TensorMap'"):
        parse_kernel('extern "C" __global__ void f(const kw::TensorMap* m) {}', "cuda")


def test_a_language_without_a_grid_has_none() -> None:
    with pytest.raises(ContractError, match="this language has no tensor maps"):
        parse_kernel('extern "C" void f(const __grid_constant__ kw::TensorMap m) {}', "cpp")
