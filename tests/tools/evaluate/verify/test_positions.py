"""Another position is right where the value there is as good, and where it could be given."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.process_setup import no_new_processes
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.verify.comparison import ResultComparator
from kernelwright.tools.evaluate.verify.memory import GuardedMemory
from kernelwright.tools.evaluate.verify.positions import as_good, evaluate, searched
from kernelwright.tools.evaluate.verify.reasons import RejectedError
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime
from kernelwright.tools.evaluate.verify.trials import Trials
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Graph, Task, TracePolicy

SOURCE = """
import torch
from torch.nn import functional as F

class Model(torch.nn.Module):
    def forward(self, x):
        return {}

def get_inputs():
    return [torch.randn({})]
"""


def traced(answer: str, shape: str = "4, 6") -> Graph:
    task = trace(SOURCE.format(answer, shape), "searched.py", TracePolicy())
    assert isinstance(task, Task), task
    return task.graph


def right(graph: Graph, got: Tensor, best: Tensor, x: Tensor) -> Tensor:
    found = searched(graph, 0)
    assert found is not None
    return as_good(graph, found, got, best, [x], {}, bound=4.0, chunk_elements=1 << 16)


@pytest.mark.parametrize("of", ["x", "x * 0.1"], ids=["of-an-input", "of-a-computation"])
def test_another_position_is_right_only_where_the_values_tie(of: str) -> None:
    graph = traced(f"({of}).argmax(1)")
    x = torch.zeros(4, 6)
    x[:, 2] = x[:, 5] = 3.0
    first, last = torch.full((4,), 2), torch.full((4,), 5)
    assert right(graph, last, first, x).all()
    assert not right(graph, torch.full((4,), 1), first, x).any()
    assert not right(graph, torch.full((4,), 99), first, x).any()
    assert right(graph, torch.tensor([5, 1, 2, -1]), first, x).tolist() == [
        True,
        False,
        True,
        False,
    ]


def test_values_that_were_computed_tie_within_their_roundings_and_inputs_do_not() -> None:
    x = torch.zeros(4, 6)
    x[:, 2], x[:, 5] = 3.0, 3.0 * (1 + 2**-22)
    first, last = torch.full((4,), 2), torch.full((4,), 5)
    assert right(traced("(x * 0.1).argmax(1)"), first, last, x).all()
    assert not right(traced("x.argmax(1)"), first, last, x).any()
    x[:, 2] = 2.999
    assert not right(traced("(x * 0.1).argmax(1)"), first, last, x).any()


@pytest.mark.parametrize(
    ("answer", "shape"),
    [
        ("F.max_pool2d(x * 0.3, 3, 2, 1, return_indices=True)[1]", "2, 3, 11, 14"),
        ("F.max_pool2d(x * 0.3, (2, 3), dilation=(1, 2), return_indices=True)[1]", "3, 11, 14"),
        ("F.max_pool1d(x * 0.3, 4, padding=1, return_indices=True)[1]", "2, 3, 29"),
        ("F.max_pool2d(x, 3, ceil_mode=True, return_indices=True)[1]", "1, 2, 10, 11"),
        ("F.max_pool3d(x * 0.3, 2, (1, 2, 2), return_indices=True)[1]", "2, 3, 5, 6, 8"),
        ("F.adaptive_max_pool2d(x * 0.3, (4, 5), return_indices=True)[1]", "2, 3, 11, 14"),
        ("F.adaptive_max_pool3d(x * 0.3, 3, return_indices=True)[1]", "2, 3, 5, 6, 8"),
        ("(x * 0.3).topk(3, 0).indices", "7, 5"),
        ("(x * 0.3).sort(-1, descending=True)[1]", "7, 5"),
        ("(x * 0.3).kthvalue(2, 1).indices", "7, 5"),
        ("(x * 0.3).median(0).indices", "7, 5"),
        ("(x * 0.3).cummax(1).indices", "7, 5"),
        ("(x * 0.3).min(1, keepdim=True).indices.squeeze(1).to(torch.int32)", "7, 5"),
        ("(x * 0.3).argmin()", "7, 5"),
    ],
)
def test_what_the_operator_gives_is_possible_and_what_it_never_would_is_not(
    answer: str, shape: str
) -> None:
    graph = traced(answer, shape)
    source = torch.Generator().manual_seed(3)
    x = torch.randn([int(size) for size in shape.split(",")], generator=source)
    x = x + torch.arange(x.numel()).view(x.shape) * 1e-3  # apart from each other
    own = eval(answer, {"torch": torch, "F": torch.nn.functional, "x": x})
    assert right(graph, own, own, x).all()
    # All values are as good as each other: what is left is whether they could have been given.
    even = torch.zeros_like(x)
    assert right(graph, own, own, even).all()
    assert not right(graph, own + x.numel(), own, even).any()
    if "pool" in answer:
        assert not right(graph, own.flip(-1, -2), own, even).all()
    if "topk" in answer or "sort" in answer:
        assert not right(graph, torch.zeros_like(own), own, even).any()
    if "cummax" in answer:
        assert right(graph, torch.full_like(own, 4), own, even)[:, :4].any().logical_not()


def test_integers_that_are_no_positions_are_not_searched() -> None:
    assert searched(traced("(x > 0).sum(1)"), 0) is None
    assert searched(traced("torch.sort(x, stable=True, dim=1)[1]"), 0) is None


def test_a_tensor_of_random_numbers_is_not_worked_out_again() -> None:
    graph = traced("(x + torch.rand_like(x)).argmax(1)")
    found = searched(graph, 0)
    assert found is not None
    assert evaluate(graph, found.source.name, [torch.ones(4, 6)], {}) is None
    assert not right(graph, torch.zeros(4), torch.ones(4), torch.ones(4, 6)).any()


POOLED = """
import torch
from torch.nn import functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(24, 8, 1)
        self.norm = torch.nn.GroupNorm(2, 8)

    def forward(self, x):
        return F.max_pool2d(F.gelu(self.norm(self.conv(x))), 2, return_indices=True)

def get_inputs():
    return [torch.randn(4, 24, 32, 32)]
"""


class Runner:
    """Computes it in PyTorch, with channels added up from the other end."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        self._change = change

    def prepare(self, weights: Mapping[str, Tensor]) -> None:
        """Nothing."""

    def __call__(
        self, arguments: Sequence[object], weights: Mapping[str, Tensor], /
    ) -> tuple[Tensor, ...]:
        (x,) = (argument for argument in arguments if isinstance(argument, Tensor))
        functional = torch.nn.functional
        kernel, bias = weights["conv.weight"], weights["conv.bias"]
        y = functional.conv2d(x.flip(1), kernel.flip(1), bias)
        y = functional.group_norm(y, 2, weights["norm.weight"], weights["norm.bias"])
        values, places = functional.max_pool2d(functional.gelu(y), 2, return_indices=True)
        return values, self._change(places)


@pytest.fixture(scope="module")
def judged(
    tmp_path_factory: pytest.TempPathFactory, cpu: Hardware
) -> Callable[[Callable[[Tensor], Tensor], str], ResultComparator]:
    task = trace(POOLED, str(tmp_path_factory.mktemp("task") / "pooled.py"), TracePolicy())
    assert isinstance(task, Task), task
    runtime = ReferenceRuntime(task, cpu, Rules(), 3, no_new_processes)

    source = torch.Generator().manual_seed(4)
    x = torch.randn(4, 24, 32, 32, generator=source)
    x[..., 1::2] = x[..., ::2] * (1 + 1e-7 * torch.randn(4, 24, 32, 16, generator=source))

    def judge(change: Callable[[Tensor], Tensor], draw: str) -> ResultComparator:
        comparator = ResultComparator(runtime)
        memory = GuardedMemory("cpu", runtime.rules.guard_bytes)
        Trials(runtime, memory, Runner(change), lambda _: None).run(
            Draw(draw, 5),
            comparator,
            twice=False,
            settle=lambda: None,
            instead=(x,) if draw == "tied" else None,
        )
        return comparator

    return judge


@pytest.mark.parametrize("draw", ["task", "large_offset", "tied"])
def test_a_pooling_behind_a_convolution_may_name_another_of_a_window(
    judged: Callable[..., ResultComparator], draw: str
) -> None:
    judged(lambda places: places, draw)


def test_what_is_not_the_largest_or_of_another_window_is_wrong(
    judged: Callable[..., ResultComparator], tmp_path: Path
) -> None:
    def first_of_window(places: Tensor) -> Tensor:
        rows, columns = places // 32, places % 32
        return rows // 2 * 2 * 32 + columns // 2 * 2

    def one_is_off(places: Tensor) -> Tensor:
        places = places.clone()
        places[1, 2, 3, 4] += 2
        return places

    with pytest.raises(RejectedError, match=r"output 1 .* elements .* are wrong"):
        judged(first_of_window, "task")
    with pytest.raises(
        RejectedError, match=r"output 1 .*: 1 of 8192 elements .* at \[1, 2, 3, 4\]"
    ):
        judged(one_is_off, "task")
