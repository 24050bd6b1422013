"""A sum of what is linear or normalised may be taken before it: random graphs, to nine digits."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from kernelwright.tools.codegen.algebra import rewritten
from kernelwright.tools.types import Graph

Run = Callable[..., Any]
Recorder = Callable[[], Any]
GENTLE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def tensor(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def names(graph: Any, *outputs: str) -> list[str]:
    return [rewrite.name for rewrite in rewritten(graph.graph(*outputs))[1]]


def agrees(graph: Any, run: Run, *outputs: str) -> None:
    changed, _ = rewritten(graph.graph(*outputs))
    values = run(changed, graph.inputs)
    for name in outputs:
        torch.testing.assert_close(values[name], graph.values[name], rtol=1e-9, atol=1e-10)


def contraction(draw: st.DrawFn, graph: Any) -> str:
    """A product or a convolution of small random sizes, with or without bias."""
    kind = draw(st.sampled_from(["mm", "addmm", "conv", "conv", "transposed"]))
    if kind in ("mm", "addmm"):
        factors = graph.input(tensor(4, 3)), graph.input(tensor(3, 6))
        if kind == "mm":
            return graph.call("mm.default", *factors)
        bias = draw(st.sampled_from([(6,), (4, 6), (1, 6)]))
        return graph.call("addmm.default", graph.input(tensor(*bias)), *factors)
    rank, transposed = draw(st.integers(1, 2)), kind == "transposed"
    taps, stride = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    weight = (3, 4) if transposed else (4, 3)
    args = (
        graph.input(tensor(2, 3, *[7, 6][:rank])),
        graph.input(tensor(*weight, *[taps] * rank)),
        graph.input(tensor(4)) if draw(st.booleans()) else None,
        [stride] * rank,
        [draw(st.integers(0, 2))] * rank,
        [draw(st.integers(1, 2))] * rank,
        transposed,
        [draw(st.integers(0, stride - 1)) if transposed else 0] * rank,
        1,
    )
    return graph.call("convolution.default", *args)


def step(draw: st.DrawFn, graph: Any, name: str) -> str:
    """One operator that is affine in its argument."""
    shape = tuple(graph.values[name].shape)
    at = draw(st.integers(0, len(shape) - 1))
    along = tuple(size if dim == at else 1 for dim, size in enumerate(shape))
    kind = draw(st.sampled_from(["scale", "number", "shift", "back", "neg", "view", "sum", "div"]))
    if kind == "number":
        return graph.call(draw(st.sampled_from(["mul.Tensor", "add.Tensor"])), name, 1.5)
    if kind == "neg":
        return graph.call("neg.default", name)
    if kind == "view":
        return graph.call("unsqueeze.default", name, at)
    if kind == "sum" and len(shape) > 2:
        return graph.call("sum.dim_IntList", name, [at], draw(st.booleans()))
    other = graph.input(tensor(*draw(st.sampled_from([along, shape]))) + 3)
    if kind == "back":
        return graph.call("sub.Tensor", other, name)
    operator = {"scale": "mul.Tensor", "div": "div.Tensor"}.get(kind, "add.Tensor")
    return graph.call(operator, name, other)


@given(data=st.data())
@GENTLE
def test_a_sum_of_a_random_affine_chain_is_the_same(
    data: st.DataObject, recorder: Recorder, run: Run
) -> None:
    graph = recorder()
    name = contraction(data.draw, graph)
    if not graph.values[name].numel():
        return
    for _ in range(data.draw(st.integers(0, 4))):
        name = step(data.draw, graph, name)
    rank = graph.values[name].dim()
    dims = data.draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True))
    name = graph.call("sum.dim_IntList", name, dims, data.draw(st.booleans()))
    agrees(graph, run, name)


def linear(graph: Any) -> str:
    return graph.call(
        "addmm.default",
        graph.input(tensor(6)),
        graph.input(tensor(4, 3)),
        graph.input(tensor(3, 6)),
    )


def test_the_product_shrinks_to_the_summed_weight(recorder: Recorder, run: Run) -> None:
    graph = recorder()
    total = graph.call("sum.dim_IntList", linear(graph), [1], True)
    changed, rewrites = rewritten(graph.graph(total))
    products = [node for node in changed.nodes if node.op == "aten.mm.default"]
    assert [node.out[0].shape for node in products] == [(4, 1)]
    assert [rewrite.name for rewrite in rewrites] == ["sum_after_linear_map"]
    agrees(graph, run, total)


def test_a_convolution_summed_over_space_is_not_made(recorder: Recorder, run: Run) -> None:
    graph = recorder()
    args = (graph.input(tensor(2, 3, 7, 6)), graph.input(tensor(3, 4, 3, 3)), None)
    y = graph.call("convolution.default", *args, [2, 2], [1, 1], [1, 1], True, [1, 1], 1)
    total = graph.call("sum.dim_IntList", graph.call("mul.Tensor", y, 0.5), [2, 3])
    changed, _ = rewritten(graph.graph(total))
    assert not [node for node in changed.nodes if "convolution" in node.op]
    agrees(graph, run, total)


@pytest.mark.parametrize("what", ["another reader", "returned too", "a square", "half"])
def test_what_is_read_elsewhere_or_is_not_linear_stays(what: str, recorder: Recorder) -> None:
    graph = recorder()
    if what == "half":
        a, b = (graph.input(tensor(*shape).half()) for shape in ((4, 3), (3, 6)))
        y = graph.call("mm.default", a, b)
    else:
        y = linear(graph)
    summed = graph.call("square.default", y) if what == "a square" else y
    total = graph.call("sum.dim_IntList", summed, [1])
    outputs = [total]
    if what == "another reader":
        outputs.append(graph.call("relu.default", y))
    if what == "returned too":
        outputs.append(y)
    assert names(graph, *outputs) == []


NORMS = {
    "group norm over space": (nn.GroupNorm(2, 6), [2, 3]),
    "group norm over all": (nn.GroupNorm(2, 6), [1, 2, 3]),
    "instance norm, by channel": (nn.InstanceNorm2d(6, affine=True), [1]),
    "batch norm in training": (nn.BatchNorm2d(6), [2, 3]),
    "layer norm": (nn.LayerNorm([6, 5, 4]), [1, 2]),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_sum_of_normalised_values_is_taken_of_what_is_normalised(
    name: str, traced: Callable[..., Any]
) -> None:
    norm, dims = NORMS[name]
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    task = traced(lambda part, x: part(x.tanh()).mean(dims), tensor(3, 6, 5, 4), part=norm)
    changed, rewrites = rewritten(task.graph)
    assert rewrites[0].name == "sum_after_norm"
    task.agrees(changed)
    assert whole_passes(changed) < whole_passes(task.graph)


def whole_passes(graph: Graph) -> int:
    """How many pointwise operators make something as large as the input."""
    names = ("aten.mul.Tensor", "aten.sub.Tensor", "aten.add.Tensor")
    return sum(node.op in names and node.out[0].numel == 3 * 6 * 5 * 4 for node in graph.nodes)
