"""Loops that differ in names and in meaningless orders are one kernel's, and others are not."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.cpp import CppEmitter
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir import Access, Loop
from kernelwright.tools.codegen.ir.loops import Axis, Stmt, Store, Stride
from kernelwright.tools.codegen.library.alike import buffers_of, on_other_buffers, shape_of
from kernelwright.tools.codegen.library.assemble import assemble
from kernelwright.tools.codegen.library.emitters import RememberingEmitter
from kernelwright.tools.languages import (
    Built,
    compile_candidate,
    load_candidate,
    new_candidate,
    parse_kernel,
)
from kernelwright.tools.types import DType

F32 = DType.FLOAT32
ROW, COLUMN = ("o0", 8), ("i0", 1)


def at(buffer: str, *strides: tuple[str, int]) -> Access:
    steps = tuple(Stride(by=by, step=step) for by, step in strides)
    return Access(buffer=buffer, dtype=F32, strides=steps)


def load(name: str, access: Access) -> Stmt:
    return Stmt(name=name, op="load", dtype=F32, access=access)


def made(name: str, *body: Stmt, store: Store) -> Loop:
    axes = (Axis(name="o0", size=4), Axis(name="i0", size=8))
    return Loop(name=name, outer=axes, inner=(), body=body, stores=(store,))


def op(name: str, kind: str, *args: str) -> Stmt:
    return Stmt(name=name, op=kind, dtype=F32, args=args)


def layer(kind: str = "sub", bias_step: int = 1) -> Loop:
    """(x + bias) - x * x, where x is a matrix and bias a row."""
    return made(
        "L1",
        load("v0", at("x", ROW, COLUMN)),
        load("v1", at("bias", ("i0", bias_step))),
        op("v2", "add", "v0", "v1"),
        op("v3", "mul", "v0", "v0"),
        op("v4", kind, "v2", "v3"),
        store=Store(access=at("y", ROW, COLUMN), value="v4"),
    )


def same_layer() -> Loop:
    """The same with other names, terms, operands and order."""
    return made(
        "L10",
        load("v0", at("b", COLUMN)),
        load("v1", at("a", COLUMN, ROW)),
        op("v2", "mul", "v1", "v1"),
        op("v3", "add", "v0", "v1"),
        op("v4", "sub", "v3", "v2"),
        store=Store(access=at("c", COLUMN, ROW), value="v4"),
    )


def test_the_order_of_terms_operands_and_statements_says_nothing() -> None:
    assert shape_of(layer()) == shape_of(same_layer())
    assert dict(zip(buffers_of(layer()), buffers_of(same_layer()), strict=True)) == {
        "x": "a", "bias": "b", "y": "c",
    }  # fmt: skip


def test_a_launch_is_renamed_by_what_buffers_are_for() -> None:
    lines = ('launch("l", grid=1, block=32, args=(x, bias, y))',)
    (line,) = on_other_buffers(lines, layer(), same_layer())
    assert line == "launch('l', grid=1, block=32, args=(a, b, c))"


@pytest.mark.parametrize("other", [layer("add"), layer(bias_step=2)])
def test_what_computes_something_else_is_not_alike(other: Loop) -> None:
    assert shape_of(layer()) != shape_of(other)


def test_operands_of_a_difference_keep_their_places() -> None:
    turned = layer().model_copy(update={"body": (*layer().body[:-1], op("v4", "sub", "v3", "v2"))})
    assert shape_of(layer()) != shape_of(turned)


def test_one_buffer_in_two_places_is_not_two() -> None:
    def summed(second: str) -> Loop:
        return made(
            "L",
            load("v0", at("x", ROW, COLUMN)),
            load("v1", at(second, ROW, COLUMN)),
            op("v2", "add", "v0", "v1"),
            store=Store(access=at("y", ROW, COLUMN), value="v2"),
        )

    assert shape_of(summed("x")) != shape_of(summed("z"))
    assert shape_of(summed("w")) == shape_of(summed("z"))


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (1, True), (1, 1.0)])
def test_constants_that_only_compare_equal_are_not_alike(one: float, other: float) -> None:
    def signed(value: float) -> Loop:
        return made(
            "L",
            load("v0", at("x", ROW, COLUMN)),
            Stmt(name="v1", op="const", dtype=F32, value=value),
            op("v2", "copysign", "v0", "v1"),
            store=Store(access=at("y", ROW, COLUMN), value="v2"),
        )

    assert shape_of(signed(one)) == shape_of(signed(one))
    assert shape_of(signed(one)) != shape_of(signed(other))
    assert len({signed(one), signed(other), signed(one)}) == 2  # as what remembers loops has them


def test_stores_of_one_buffer_keep_their_order() -> None:
    """The last one stays; stores of different buffers may come in any order."""

    def stored(*pairs: tuple[str, str]) -> Loop:
        body = (load("v0", at("x", ROW, COLUMN)), op("v1", "neg", "v0"), op("v2", "sin", "v0"))
        stores = tuple(Store(access=at(to, ROW, COLUMN), value=value) for to, value in pairs)
        return made("L", *body, store=stores[0]).model_copy(update={"stores": stores})

    first, second, third = ("y", "v0"), ("y", "v1"), ("z", "v2")
    assert shape_of(stored(first, second)) != shape_of(stored(second, first))
    shapes = [
        shape_of(stored(*order))
        for order in ((first, second, third), (third, first, second), (first, third, second))
    ]
    assert shapes[0] == shapes[1] == shapes[2] != shape_of(stored(second, first, third))


class _Signs(nn.Module):
    """Two loops that differ in the sign of a zero, with a product between them."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(64, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.copysign(torch.sin(x), torch.tensor(0.0)) @ self.w
        return torch.copysign(torch.sin(y), torch.tensor(-0.0))


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(nn.functional.gelu(self.up(self.norm(x))))
        return x + y


def test_twelve_layers_have_the_kernels_of_a_few(check: Callable[..., Any]) -> None:
    """Layers ten to twelve are called otherwise, and names decide how lowering orders things.

    The first layers are not like the others: nothing is stored yet of what is added up.
    """
    kinds: list[int] = []
    for count in (4, 12):
        layers = nn.Sequential(*(_Block() for _ in range(count)))
        program = check(layers, torch.randn(8, 64), products=True).program
        assert len(program.loops) == count * 3
        kinds.append(len({shape_of(loop) for loop in program.loops}))
    assert kinds[0] == kinds[1] <= 6
    made = assemble(program, CudaEmitter(), {}, hardware_profile("H200"))
    assert made.kernel.count("// L") == kinds[1]


async def test_shared_kernels_compute_what_every_layer_does(check: Callable[..., Any]) -> None:
    layers = nn.Sequential(*(_Block() for _ in range(12)))
    with torch.no_grad():
        for value in layers.parameters():
            value.normal_(std=0.3)
    functions, loops = await computed_as_cpp(check, layers, torch.randn(8, 64))
    assert functions < loops / 2


async def test_kernels_of_either_zero_compute_what_the_module_does(
    check: Callable[..., Any],
) -> None:
    functions, loops = await computed_as_cpp(check, _Signs(), torch.randn(64, 64))
    assert functions == loops == 2


def test_either_zero_is_printed_in_cuda(check: Callable[..., Any]) -> None:
    program = check(_Signs(), torch.randn(64, 64)).program
    made = assemble(program, CudaEmitter(), {}, hardware_profile("H200"))
    assert re.findall(r"[(, ]0\.0f", made.kernel)
    assert re.findall(r"-0\.0f", made.kernel)


async def computed_as_cpp(
    check: Callable[..., Any], module: nn.Module, x: torch.Tensor
) -> tuple[int, int]:
    """Compares a module's kernels, as C++, with the module; how many there are, and loops."""
    program = check(module, x).program
    made = assemble(program, CppEmitter(), {}, hardware_profile("generic_cpu"))
    candidate = new_candidate("cpp", made.kernel, made.plan)
    built = await compile_candidate(candidate, architecture=None, timeout_s=120)
    assert isinstance(built, Built), built
    weights = {name: value.detach() for name, value in module.named_parameters()}
    (y,) = load_candidate(candidate, built, "cpu")((x,), weights)
    with torch.no_grad():
        torch.testing.assert_close(y, module(x), rtol=1e-4, atol=1e-4)
    return len(parse_kernel(made.kernel, "cpp").functions), len(program.loops)


class _Asked(CudaEmitter):
    asked = 0

    def strategies(self, node: Any, hardware: Any) -> Any:
        self.asked += 1
        return super().strategies(node, hardware)


def test_what_is_alike_is_asked_about_once(check: Callable[..., Any]) -> None:
    hardware, asked = hardware_profile("H200"), _Asked()
    emitter = RememberingEmitter(asked, hardware)
    program = check(nn.Sequential(*(_Block() for _ in range(12))), torch.randn(8, 64)).program
    for _ in range(2):
        for loop in program.loops:
            assert emitter.strategies(loop, hardware) == asked.strategies(loop, hardware)
            asked.asked -= 1
            for strategy in emitter.strategies(loop, hardware):
                told = emitter.predicted_ms(loop, strategy, hardware)
                assert told == asked.predicted_ms(loop, strategy, hardware)
    assert asked.asked == len({shape_of(loop) for loop in program.loops})


class _Analysed(CudaEmitter):
    analysed = 0

    def case(self, node: Any, hardware: Any) -> Any:
        self.analysed += 1
        return super().case(node, hardware)


def test_a_node_is_analysed_once_for_all_that_is_asked_of_it(check: Callable[..., Any]) -> None:
    hardware, emitter = hardware_profile("H200"), _Analysed()
    (loop,) = check(lambda x: torch.relu(x).sum(1), torch.randn(64, 512)).program.loops
    ways = emitter.strategies(loop, hardware)
    plain = [way for way in ways if not way.rewrite]
    assert len(plain) > 1
    analysed = emitter.analysed
    assert [emitter.predicted_ms(loop, way, hardware) for way in plain]
    assert all(emitter.emit(loop, way, "k", hardware).source for way in plain)
    assert emitter.analysed == analysed
