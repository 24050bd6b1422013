"""Random graphs of pointwise operators, reductions and views compute what PyTorch computes."""

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Recorder = Callable[[], Any]

UNARY = ["relu.default", "sigmoid.default", "neg.default", "tanh.default", "square.default"]
BINARY = ["add.Tensor", "sub.Tensor", "mul.Tensor", "maximum.default"]
REDUCTIONS = ["sum.dim_IntList", "mean.dim", "amax.default", "amin.default"]
KINDS = ["unary", "binary", "reduce", "view", "view", "scan", "softmax", "cat", "cat", "replace"]

GENTLE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def view(draw: st.DrawFn, graph: Any, name: str) -> str:
    """One random view operator on a value."""
    shape = graph.values[name].shape
    dim = draw(st.integers(0, len(shape) - 1))
    kind = draw(st.sampled_from(["permute", "flip", "slice", "reshape", "unsqueeze", "expand"]))
    if kind == "permute":
        return graph.call("permute.default", name, draw(st.permutations(range(len(shape)))))
    if kind == "flip":
        return graph.call("flip.default", name, [dim])
    if kind == "slice" and shape[dim] > 1:
        start = draw(st.integers(0, shape[dim] - 2))
        step = draw(st.integers(1, 2))
        return graph.call("slice.Tensor", name, dim, start, shape[dim], step)
    if kind == "reshape":
        return graph.call("reshape.default", name, draw(shapes(graph.values[name].numel())))
    if kind == "unsqueeze":
        return graph.call("unsqueeze.default", name, dim)
    return graph.call("expand.default", graph.call("unsqueeze.default", name, 0), [2, *shape])


@st.composite
def shapes(draw: st.DrawFn, numel: int) -> list[int]:
    """A shape of so many elements, of up to four dimensions."""
    shape = []
    while len(shape) < 3 and numel > 1 and draw(st.booleans()):
        size = draw(st.sampled_from([n for n in range(1, numel + 1) if numel % n == 0]))
        shape.append(size)
        numel //= size
    return [*shape, numel]


def partner(draw: st.DrawFn, graph: Any, name: str) -> str:
    """A value that broadcasts with this one, or itself."""
    shape = graph.values[name].shape
    fits = [name]
    for other, value in graph.values.items():
        try:
            if 0 < torch.broadcast_shapes(value.shape, shape).numel() <= 600:
                fits.append(other)
        except RuntimeError:
            continue
    return draw(st.sampled_from(fits))


def joined(draw: st.DrawFn, graph: Any, name: str) -> str:
    """A value beside others of its size along the other dimensions, constants among them."""
    shape = list(graph.values[name].shape)
    dim = draw(st.integers(0, len(shape) - 1))
    fits = [
        other
        for other, value in graph.values.items()
        if value.dim() == len(shape)
        and all(n == shape[at] for at, n in enumerate(value.shape) if at != dim)
    ]
    pieces = [name, *draw(st.lists(st.sampled_from([*fits, "fill"]), min_size=1, max_size=2))]
    for at, piece in enumerate(pieces):
        if piece == "fill":
            sizes = [*shape[:dim], draw(st.integers(0, 2)), *shape[dim + 1 :]]
            pieces[at] = filled(draw, graph, name, sizes)
    return str(graph.call("cat.default", draw(st.permutations(pieces)), dim))


def filled(draw: st.DrawFn, graph: Any, name: str, sizes: list[int]) -> str:
    """A constant of the same type."""
    return str(graph.call("new_full.default", name, sizes, draw(st.sampled_from([0.0, 1.0, -2.5]))))


def replaced(draw: st.DrawFn, graph: Any, name: str) -> str:
    """A value or a constant of which another takes a part; or a padded value."""
    shape = list(graph.values[name].shape)
    dim = draw(st.integers(0, len(shape) - 1))
    low, high = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    kind = draw(st.sampled_from(["pad", "slice", "select"]))
    if kind == "pad":
        widths = [0, 0] * (len(shape) - 1 - dim) + [low, high]
        return str(graph.call("constant_pad_nd.default", name, widths, draw(st.floats(-1, 1))))
    step = draw(st.integers(1, 2)) if kind == "slice" else 1
    sizes = [*shape[:dim], low + (shape[dim] - 1) * step + 1 + high, *shape[dim + 1 :]]
    if kind == "slice":
        end = low + (shape[dim] - 1) * step + 1
        whole = filled(draw, graph, name, sizes)
        return str(graph.call("slice_scatter.default", whole, name, dim, low, end, step))
    one = graph.call("select.int", name, dim, 0)
    return str(graph.call("select_scatter.default", name, one, dim, shape[dim] - 1))


@st.composite
def graphs(draw: st.DrawFn, make: Recorder) -> tuple[Any, list[str]]:
    """A recorded graph of up to ten operators, and one to three of its values as outputs."""
    graph = make()
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    sizes = st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=3)
    for _ in range(draw(st.integers(1, 2))):
        shape = draw(sizes)
        graph.input(torch.randn(shape, dtype=torch.float64, generator=generator))
    for _ in range(draw(st.integers(1, 10))):
        name = draw(st.sampled_from([n for n, value in graph.values.items() if value.numel()]))
        rank = graph.values[name].dim()
        kind = draw(st.sampled_from(KINDS))
        if kind == "binary":
            graph.call(draw(st.sampled_from(BINARY)), name, partner(draw, graph, name))
        elif kind == "unary" or rank == 0:
            graph.call(draw(st.sampled_from(UNARY)), name)
        elif kind == "reduce":
            dims = draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=2, unique=True))
            graph.call(draw(st.sampled_from(REDUCTIONS)), name, dims, draw(st.booleans()))
        elif kind == "scan":
            graph.call("cumsum.default", name, draw(st.integers(0, rank - 1)))
        elif kind == "softmax":
            graph.call("_softmax.default", name, draw(st.integers(0, rank - 1)), False)
        elif kind == "cat" and graph.values[name].numel() <= 300:
            joined(draw, graph, name)
        elif kind == "replace" and graph.values[name].numel() <= 300:
            replaced(draw, graph, name)
        else:
            view(draw, graph, name)
    last = list(graph.values)[-1]
    return graph, [last, *draw(st.lists(st.sampled_from(list(graph.values)), max_size=2))]


@given(data=st.data())
@GENTLE
def test_a_random_graph_computes_the_same(data: st.DataObject, recorder: Recorder) -> None:
    graph, outputs = data.draw(graphs(recorder))
    program = graph.check(*outputs)
    made = set(program.parameters)
    for loop in program.loops:
        assert {stmt.access.buffer for stmt in loop.body if stmt.access} <= made
        made |= {store.access.buffer for store in loop.stores}
        assert all(axis.size > 1 for axis in (*loop.outer, *loop.inner))
    assert made <= {buffer.name for buffer in program.buffers}


def test_a_number_beside_a_scan_that_needs_no_scan_is_a_loop_of_its_own(recorder: Recorder) -> None:
    graph = recorder()
    x = graph.input(torch.randn([1], dtype=torch.float64))
    once = graph.call("relu.default", x)
    repeated = graph.call("expand.default", graph.call("unsqueeze.default", x, 0), [2, 1])
    running = graph.call("cumsum.default", repeated, 0)
    program = graph.check(running, once)
    assert [len(loop.outer) for loop in program.loops] in ([0, 1], [1, 0])
