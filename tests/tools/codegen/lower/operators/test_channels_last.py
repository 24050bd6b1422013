"""Convolutions in channels-last layout: the same results, read where they lie, without a copy."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.ir import Loop, PlanLine
from kernelwright.tools.codegen.ir.roofline import line_ms, loop_bytes
from kernelwright.tools.codegen.ir.sliding import sliding_sums
from kernelwright.tools.codegen.lower import Lowering, lower

Check = Callable[..., Any]


class Residual(nn.Module):
    """Blocks of a ResNet in small: what is convolved next is added behind that, too.

    What is between them may be returned, or a view of it.
    """

    def __init__(self, *, returned: bool = False, viewed: bool = False) -> None:
        super().__init__()
        self.first, self.around = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(3, 8, 1)
        self.second, self.third = (nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(2))
        self.returned, self.viewed = returned, viewed

    def forward(self, x: torch.Tensor) -> Any:
        before = torch.tanh(self.first(x)) + self.around(x)
        between = torch.relu(self.second(before)) + before
        after = torch.relu(self.third(between)) + between
        shown = between.flatten(1).unsqueeze(0) if self.viewed else between
        return (after, shown) if self.returned else after


CASES: dict[str, tuple[nn.Module, Sequence[int]]] = {
    "an activation": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.Mish()), (2, 3, 9, 8)),
    "a norm": (nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.GroupNorm(2, 8)), (2, 3, 9, 8)),
    "a pool": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2)), (2, 3, 9, 8)),
    "a softmax over channels": (
        nn.Sequential(nn.ConvTranspose3d(3, 4, 2), nn.Softmax(1)), (2, 3, 4, 5, 3)),
    "two in a row": (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Conv2d(8, 4, 2), nn.Tanh()), (2, 3, 9, 8)),
    "residuals": (Residual(), (2, 3, 9, 8)),
    "a residual that is returned": (Residual(returned=True), (2, 3, 9, 8)),
    "a view of it is": (Residual(returned=True, viewed=True), (2, 3, 9, 8)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_tail_reads_channels_last_and_computes_the_same(
    name: str, check: Check, interpret: Any
) -> None:
    module, shape = CASES[name]
    x = torch.randn(shape)
    checked = check(module, x)
    program = lower(checked.graph, lowering=Lowering(channels_last=True))
    weights = {key: value.detach() for key, value in module.named_parameters()}
    mine, _ = interpret(program, [x], weights)
    for one, expected in zip(mine, checked.expected, strict=True):
        torch.testing.assert_close(one, expected, rtol=2e-4, atol=5e-5)
    calls = [step for step in program.steps if isinstance(step, PlanLine) and "aten" in step.text]
    made = {buffer for call in calls for buffer in call.makes}
    read = {s.access.buffer for loop in program.loops for s in loop.body if s.access}
    assert made <= read, "no pass of its own turns a result"
    assert all(program.buffer(name).shape[-1] in (4, 8) for name in made)


class Windows(nn.Module):
    """A convolution, then windows of each channel, a norm over channels, and what they add to."""

    def __init__(self, size: int, step: int = 1, gap: int = 1, *, biased: bool = True) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 2)
        padding = gap * (size // 2)
        self.windows = nn.Conv2d(8, 8, size, step, padding, gap, groups=8, bias=biased)
        self.norm, self.scale = nn.LayerNorm(8), nn.Parameter(torch.randn(8))
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = torch.tanh(self.first(x))
        rows = self.norm(self.windows(before).permute(0, 2, 3, 1)) * self.scale
        after = torch.relu(rows).permute(0, 3, 1, 2)
        return after + before if self.step == 1 else after


WINDOWS = {
    "five": Windows(5),
    "by steps": Windows(3, 2, biased=False),
    "dilated": Windows(3, 1, 2),
}


@pytest.mark.parametrize("called", [False, True], ids=["summed", "called"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_each_channel_read_and_write_rows_of_channels(
    name: str, called: bool, check: Check, interpret: Any
) -> None:
    """The library's or sums of ours: nothing under the window is computed for its positions."""
    module, x = WINDOWS[name], torch.randn(2, 3, 10, 9)
    checked = check(module, x)
    asked = {"calls_windows": True} if called else {"sums_windows": True}
    program = lower(checked.graph, lowering=Lowering(channels_last=True, **asked))
    weights = {key: value.detach() for key, value in module.named_parameters()}
    mine, _ = interpret(program, [x], weights)
    torch.testing.assert_close(mine[0], checked.expected[0], rtol=2e-4, atol=5e-5)
    calls = [s for s in program.steps if isinstance(s, PlanLine) and "convolution" in s.operator]
    assert len(calls) == (2 if called else 1)
    summed = [sliding for loop in program.loops if (sliding := sliding_sums(loop))]
    assert len(summed) == (0 if called else 1)
    for one in summed:
        reads = [s.access for s in one.under() if s.access and "weight" not in s.access.buffer]
        assert [where.step(one.lane.name) for where in reads] == [1]
        assert {store.access.step(one.lane.name) for store in one.loop.stores} == {1}
    rows = [loop for loop in program.loops if loop.inner and loop.columns == 8]
    assert len(rows) == 1, "a norm over channels reduces rows as they lie"


def test_what_is_turned_is_turned_by_loops_of_ours_and_by_nothing_else(check: Check) -> None:
    graph = check(*CASES["an activation"][:1], torch.randn(2, 3, 9, 8)).graph
    written, turned = (
        lower(graph, lowering=Lowering(channels_last=last)) for last in (False, True)
    )
    copies = turned.loops[: len(turned.loops) - len(written.loops)]
    assert [loop_bytes(loop) for loop in copies] == [
        (4 * elements, 4 * elements) for elements in (2 * 3 * 9 * 8, 8 * 3 * 3 * 3)
    ]
    lines = [[s.operator for s in p.steps if isinstance(s, PlanLine)] for p in (written, turned)]
    assert lines[0] == lines[1]


def test_what_lies_between_two_convolutions_is_stored_as_the_second_reads_it(check: Check) -> None:
    module, shape = CASES["two in a row"]
    program = lower(check(module, torch.randn(shape)).graph, lowering=Lowering(channels_last=True))
    calls = [step for step in program.steps if isinstance(step, PlanLine) and "aten" in step.text]
    made = {buffer for loop in program.loops for buffer in _stored(loop)}
    assert {buffer for buffer in calls[1].uses if "turned" in buffer} <= made
    assert len(program.loops) == 5, "an input, two weights, what lies between, and the result"


@pytest.mark.parametrize(
    ("returned", "viewed", "twice"), [(False, False, 0), (True, False, 1), (True, True, 1)]
)
def test_a_residual_is_stored_once_as_the_convolution_reads_it(
    check: Check, returned: bool, viewed: bool, twice: int
) -> None:
    module = Residual(returned=returned, viewed=viewed)
    checked = check(module, torch.randn(2, 3, 9, 8))
    program = lower(checked.graph, lowering=Lowering(channels_last=True))
    made = [_stored(loop) for loop in program.loops]
    assert sum("_turned" in "".join(names) and len(names) > 1 for names in made) == twice
    given = checked.graph.inputs[0]
    turned = [names for names in made if any(f"{given}_turned" in name for name in names)]
    assert len(turned) == 1, "both that read it share one copy"


class Skips(nn.Module):
    """A U-Net's step in small: what is concatenated is normalised and convolved."""

    def __init__(self, *, returned: bool = False) -> None:
        super().__init__()
        self.down, self.beside = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.up = nn.GroupNorm(4, 16), nn.Conv2d(16, 4, 3)
        self.returned = returned

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        skipped = torch.relu(self.down(x))
        both = torch.cat([torch.relu(self.beside(skipped)), skipped], 1)
        out = torch.relu(self.up(torch.relu(self.norm(both))))
        return (out, both.flatten(1)) if self.returned else (out,)


@pytest.mark.parametrize("returned", [False, True])
def test_what_is_concatenated_lies_as_its_parts_do(
    check: Check, interpret: Any, returned: bool
) -> None:
    module, x = Skips(returned=returned), torch.randn(2, 3, 9, 8)
    checked = check(module, x)
    program = lower(checked.graph, lowering=Lowering(channels_last=True))
    weights = {key: value.detach() for key, value in module.named_parameters()}
    mine, _ = interpret(program, [x], weights)
    for one, wanted in zip(mine, checked.expected, strict=True):
        torch.testing.assert_close(one, wanted, rtol=1e-4, atol=1e-5)
    wanted = (2, 16, 9, 8) if returned else (2, 9, 8, 16)
    assert program.buffer("cat").shape == wanted


def test_rows_are_reduced_as_they_lie_and_turned_when_they_are_written(check: Check) -> None:
    """A loop that did both would read or write an element a sector."""
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8))
    graph = check(module, torch.randn(2, 3, 9, 8)).graph
    turned, written = lower(graph, lowering=Lowering(channels_last=True)), lower(graph)
    assert len(written.loops) == 1
    reduced, stored = turned.loops[-2:]
    assert reduced.inner
    assert not stored.inner


@pytest.mark.parametrize(("channels", "loops"), [(1024, 1), (1025, 2)])
def test_rows_of_which_a_tile_fits_on_chip_are_reduced_and_turned_at_once(
    check: Check, channels: int, loops: int
) -> None:
    module = nn.Sequential(nn.Conv2d(3, channels, 1), nn.Softmax(1))
    program = lower(
        check(module, torch.randn(1, 3, 6, 5)).graph, lowering=Lowering(channels_last=True)
    )
    (made,) = (name for s in program.steps if isinstance(s, PlanLine) for name in s.makes[:1]
               if s.operator == "aten.convolution.default")  # fmt: skip
    read = [
        loop for loop in program.loops if made in {s.access.buffer for s in loop.body if s.access}
    ]
    assert len(read) == loops


def _stored(loop: Loop) -> set[str]:
    return {store.access.buffer for store in loop.stores}


# What is left of the library's own time with channels last, without what it turns.
GROUPS = {1: 1.0, 2: 1.36}


@pytest.mark.parametrize("groups", GROUPS)
def test_groups_of_several_channels_are_expected_to_be_slower_so(groups: int, check: Check) -> None:
    module = nn.Sequential(nn.Conv2d(16, 16, 3, groups=groups), nn.ReLU())
    graph = check(module, torch.randn(2, 16, 9, 8)).graph
    plain, turned = (
        next(
            s
            for s in lower(graph, lowering=Lowering(channels_last=last)).steps
            if isinstance(s, PlanLine)
        )
        for last in (False, True)
    )
    assert turned.cost_flops == pytest.approx(GROUPS[groups] * plain.cost_flops, rel=1e-3)
    assert plain.tensor_share == turned.tensor_share == 0.15 * 16 / groups / 32
    assert (plain.turned_launches > 0) == (groups == 1)
    assert not turned.turned_launches


@pytest.mark.parametrize(("groups", "dtype"), [(1, "float32"), (2, "float32"), (2, "bfloat16")])
def test_single_positions_in_groups_use_no_tf32(groups: int, dtype: str, check: Check) -> None:
    kind = getattr(torch, dtype)
    module = nn.Sequential(nn.Conv2d(64, 64, 1, groups=groups, dtype=kind), nn.ReLU())
    graph = check(module, torch.randn(2, 64, 9, 8, dtype=kind)).graph
    (call,) = (s for s in lower(graph).steps if isinstance(s, PlanLine) and s.cost_flops)
    tf32 = 0.15 if dtype == "float32" else 0.3
    assert call.tensor_share == (0.0146 if dtype == "float32" and groups > 1 else tf32)


def test_a_convolution_of_few_channels_is_expected_to_be_slow(check: Check) -> None:
    graph = check(*CASES["an activation"][:1], torch.randn(2, 3, 9, 8)).graph
    (call,) = (s for s in lower(graph).steps if isinstance(s, PlanLine) and s.cost_flops)
    of_many = call.model_copy(update={"tensor_share": 0.15})
    hopper = hardware_profile("h200")
    assert line_ms(call, hopper) > line_ms(of_many, hopper)
    no_tensor_cores = hopper.model_copy(update={"tensor_tflops": None})
    assert line_ms(call, no_tensor_cores) == line_ms(of_many, no_tensor_cores)
