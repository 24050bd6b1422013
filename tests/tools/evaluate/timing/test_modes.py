"""A plan inside torch.compile, and as the replay of a graph: the same results as called eagerly."""

import asyncio
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from kernelwright.tools.candidates import LaunchRefused
from kernelwright.tools.candidates.run import modes
from kernelwright.tools.candidates.run.modes import Launches, MapOf, Operators, Replayed, layout_of
from kernelwright.tools.evaluate.timing.modes import CompiledPlan, GuardedFirst, replayed
from kernelwright.tools.languages import (
    Built,
    compile_candidate,
    in_mode,
    load_candidate,
    new_candidate,
)
from kernelwright.tools.types import Candidate

KERNEL = """
#include "kernelwright.hpp"
extern "C" void shifted(const float* x, const float* shift, float* y, int rows, int columns,
                        float scale) {
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) y[r * columns + c] = x[r * columns + c] * scale + shift[c];
}
extern "C" void doubled(float* x, int count) {
  for (int i = 0; i < count; ++i) x[i] *= 2;
}
"""

# Library operators around launches, weights, what was prepared, a buffer, a number, and a kernel
# that writes where a library operator did.
PLAN = """
def prepare(weights):
    return {"turned": weights["weight"].t().contiguous()}

def forward(x, scale):
    rows, columns = x.shape
    product = aten.mm(aten.tanh(x), prepared["turned"])
    y = empty((rows, columns))
    launch("shifted", args=(product, weights["shift"], y, rows, columns, scale))
    after = aten.add(weights["running"], aten.mean.dim(y, [0]))
    launch("doubled", args=(after, columns))
    update("running", after)
    return y, aten.relu(y).t()
"""


def candidate() -> Candidate:
    return new_candidate("cpp", KERNEL, textwrap.dedent(PLAN))


@pytest.fixture(scope="module")
def built() -> Built:
    found = asyncio.run(compile_candidate(candidate(), architecture=None, timeout_s=90))
    assert isinstance(found, Built), found
    return found


def state(seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return {"weight": torch.randn(8, 8), "shift": torch.randn(8), "running": torch.zeros(8)}


def eager(built: Built, arguments: list, weights: dict[str, torch.Tensor]) -> tuple:
    runner = load_candidate(candidate(), built, "cpu")
    runner.prepare(weights)
    return runner(arguments, weights)


def test_inside_torch_compile_it_computes_what_it_does_eagerly(built: Built):
    plan = CompiledPlan(load_candidate(candidate(), built, "cpu"), "toy")
    for seed in range(2):  # other weights and values, in what was compiled once
        mine, theirs = state(seed), state(seed)
        arguments = [torch.randn(4, 8), 0.5]
        plan.prepare(mine)
        for got, right in zip(plan(arguments, mine), eager(built, arguments, theirs), strict=True):
            torch.testing.assert_close(got, right)
        torch.testing.assert_close(mine, theirs)


def test_buffers_are_updated_once_although_the_plan_runs_twice(built: Built):
    plain = load_candidate(candidate(), built, "cpu")

    class Same:
        prepare = plain.prepare

        def __call__(self, arguments: list, weights: dict[str, torch.Tensor]) -> tuple:
            return plain(arguments, weights)

    mine, theirs = state(0), state(0)
    both, arguments = GuardedFirst(plain, Same()), [torch.randn(4, 8), 0.5]
    both.prepare(mine)
    both(arguments, mine)
    eager(built, arguments, theirs)
    torch.testing.assert_close(mine, theirs)


def test_what_cannot_be_traced_is_refused_in_words(built: Built):
    runner = load_candidate(candidate(), built, "cpu")
    with pytest.raises(LaunchRefused, match=r"torch\.compile cannot compile"):
        CompiledPlan(runner, "toy").compile([torch.randn(4, 7), 0.5], state(0))


def test_a_mode_is_a_candidate_of_its_own():
    plain = candidate()
    ids = {in_mode(plain, mode).id for mode in ("eager", "graph", "compile")}
    assert len(ids) == 3
    assert in_mode(plain, "eager") == plain


def again(call):
    """Stands for a capture: the results lie in memory that every replay writes anew."""
    kept = call()

    def replay():
        for old, new in zip(kept, call(), strict=True):
            old.copy_(new)
        return kept

    return replay


def test_a_replay_reads_the_arguments_of_its_call_and_keeps_no_results():
    call = Replayed(lambda given: (given[0] * given[1],), [torch.ones(3), 2.0], again)
    first = call([torch.full((3,), 5.0), 2.0])
    second = call([torch.full((3,), 7.0), 2.0])
    assert (first[0].tolist(), second[0].tolist()) == ([10.0] * 3, [14.0] * 3)


def test_a_replay_keeps_the_layout_that_it_was_made_for():
    seen: list[tuple[int, ...]] = []

    def call(given: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        seen.append(given[0].stride())
        return (given[0] + 1,)

    given = torch.arange(6.0).view(2, 3).t()
    (result,) = Replayed(call, [given], again)([given])
    assert set(seen) == {(1, 3)}
    torch.testing.assert_close(result, given + 1)


def test_a_launch_by_tensor_maps_is_an_operator_of_the_tensors_behind_them():
    taken: list[object] = []
    operators = Operators("toy", "cpu", lambda tensor, *words, **named: (tensor, words, named))
    launch = operators.launcher(
        "fetched", lambda arguments, *geometry: taken.append((arguments, geometry)), [False, True]
    )
    x, y = torch.ones(2), torch.zeros(2)
    launch((MapOf(x, box=(2,)), y), 1, 32)
    ((arguments, geometry),) = taken
    assert arguments[0][0] is x
    assert arguments[0][2] == {"box": (2,)}
    assert arguments[1] is y
    assert geometry == (1, 32)


def test_what_is_written_by_its_map_and_its_pointer_is_one_tensor():
    """Else a compiled graph copies what the pointer names, and returns the copy."""
    operators = Operators("toy", "cpu", lambda tensor, **named: tensor)

    def stored(arguments: list[torch.Tensor], *geometry: int) -> None:
        by_map, x, by_pointer = arguments
        assert by_map.data_ptr() == by_pointer.data_ptr()
        by_map.copy_(x)

    launch = operators.launcher("stored", stored, [False, False, True])

    def plan(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        launch((MapOf(y, box=(2,)), x, y), 1)
        return y

    x = torch.arange(4.0)
    graph = modes.traced(lambda given: [plan(given)], [x])
    found = torch.compile(graph, backend="aot_eager")(x)
    assert torch.equal(plan(x), x)
    assert torch.equal(found[0], x)


@pytest.mark.parametrize("count", [20, 30, 100])  # one by one, past the letters, in lists
def test_a_launch_of_many_tensors_writes_those_that_it_says(count: int):
    operators = Operators(f"many {count}", "cpu")

    def doubled(arguments: list[torch.Tensor], *geometry: int) -> None:
        for x, y in zip(arguments[::2], arguments[1::2], strict=True):
            y.copy_(2 * x)

    launch = operators.launcher("doubled", doubled, [False, True] * count)

    def plan(x: torch.Tensor) -> list[torch.Tensor]:
        given = [tensor for n in range(count) for tensor in (x + n, torch.empty_like(x))]
        launch(given, 1)
        return given[1::2]

    x = torch.arange(4.0)
    found = torch.compile(modes.traced(lambda given: plan(given), [x]), backend="aot_eager")(x)
    for number, (eager, compiled) in enumerate(zip(plan(x), found, strict=True)):
        assert torch.equal(eager, 2 * (x + number))
        assert torch.equal(compiled, eager)


@pytest.mark.parametrize("traced", [False, True])
def test_an_exports_launch_gets_its_geometry_and_addresses(traced: bool):
    taken: list[tuple[object, ...]] = []
    kernels = SimpleNamespace(
        device=torch.device("cpu"),
        tensor_map=lambda tensor, **named: ("map", tensor.data_ptr(), named),
        fetched=lambda *given: taken.append(given),
    )
    operators = Operators("toy", "cpu", kernels.tensor_map) if traced else None
    launches = Launches(kernels, {"fetched": (False, True, False)}, 4, operators)
    x, y = torch.ones(2), torch.zeros(2)
    launches.fetched((8, 2), 32, 0, 1, launches.tensor_map(x, box=(2,)), y, 3)
    named = {"box": (2,)}
    assert taken == [((8, 2), 32, 0, 1, ("map", x.data_ptr(), named), y.data_ptr(), 3)]


def test_after_a_capture_that_failed_nothing_is_left_begun(monkeypatch: pytest.MonkeyPatch):
    begun: list[str] = []

    class Graph:
        def pool(self) -> tuple[int, int]:
            return (0, 1)

    @contextmanager
    def capturing(graph: Graph) -> Iterator[None]:
        begun.append("capture")
        yield
        begun.append("end")

    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda size, device: zeros(size))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capturing)

    def ended(device: int, pool: object) -> None:
        begun.append(f"pool {pool}")

    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", ended, raising=False)

    def call() -> None:
        if begun:
            raise RuntimeError("it waits")

    with pytest.raises(RuntimeError, match="it waits"):
        modes.captured(call)
    assert begun == ["capture", "pool (0, 1)", "capture", "end"]


@pytest.mark.gpu
def test_on_a_device_a_graph_computes_what_it_captured():
    weight = torch.randn(8, 8, device="cuda")

    call = replayed(Rectified(), [torch.randn(4, 8, device="cuda")], {"weight": weight})
    for _ in range(2):
        given = torch.randn(4, 8, device="cuda")
        weight.add_(1.0)  # in place, as a training step or a loaded state does
        torch.testing.assert_close(call([given])[0], torch.relu(given @ weight))
    with pytest.raises(LaunchRefused, match="CUDA graph"):
        replayed(Waiting(), [given], {})
    # PyTorch leaves its generator and its allocator capturing, which would be everybody's trouble.
    assert torch.randn(4, device="cuda").isfinite().all()
    torch.cuda.empty_cache()
    torch.testing.assert_close(call([given])[0], torch.relu(given @ weight))


class Rectified:
    """A plan that prepares nothing."""

    def keep_up(self, weights: dict[str, torch.Tensor]) -> None: ...

    def __call__(self, given: list[torch.Tensor], weights: dict[str, torch.Tensor]):
        return (torch.relu(given[0] @ weights["weight"]),)


class Waiting(Rectified):
    """One that waits for a value, which no capture allows."""

    def __call__(self, given: list[torch.Tensor], weights: dict[str, torch.Tensor]):
        return (given[0] * given[0].sum().item(),)


def test_the_same_launch_is_the_same_operator_so_that_what_was_compiled_is_found_again():
    """A candidate is compiled when it is screened and again when it is looked at closely."""
    assert operator() is operator()


def operator() -> object:
    operators = Operators("same", "cpu")
    operators.launcher("kernel", lambda arguments: None, [True])([torch.zeros(1)])
    (found,) = (call for content, call in modes._KNOWN.items() if "'same'" in content)
    return found


def test_a_made_call_is_for_the_layout_type_and_plain_values_that_it_was_made_of() -> None:
    x = torch.ones(4, 6)
    same = layout_of((torch.zeros(4, 6), 2.0, True))
    assert layout_of((x, 2.0, True)) == same
    others = [(x, 3.0, True), (x, 2.0, 1), (x.mT.contiguous().mT, 2.0, True), (x.half(), 2.0, True)]
    assert same not in [layout_of(given) for given in others]
