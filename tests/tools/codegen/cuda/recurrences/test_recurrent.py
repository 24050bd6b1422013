"""Recurrent layers in persistent blocks compute what the module does, on the emulated device."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.recurrences.family import CLUSTERS, GROUPS
from kernelwright.tools.codegen.cuda.recurrences.layouts import Layout, layouts
from kernelwright.tools.codegen.cuda.recurrences.stack import StackPrinter
from kernelwright.tools.codegen.ir import Emitted, LibraryCall, Program
from kernelwright.tools.codegen.ir.kernel_family import LIBRARY
from kernelwright.tools.codegen.ir.recurrence import GATES, recurrence_of
from kernelwright.tools.codegen.ir.roofline import line_ms
from kernelwright.tools.codegen.library.assemble import assemble
from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.hardware import detect
from kernelwright.tools.languages import (
    Built,
    compile_candidate,
    load_candidate,
    new_candidate,
    parse_kernel,
    with_settings,
)
from kernelwright.tools.tasks.graph.aten_graph import trace_graph
from kernelwright.tools.tasks.graph.convert import simplify, to_graph
from kernelwright.tools.types import Setting

H200 = hardware_profile("H200")
# Sixteen blocks are as many as the emulator runs at the same time.
DEVICE = H200.model_copy(update={"sm_count": 16})
# (members, lanes, units, rows) of clusters, and of groups that meet through memory.
TOGETHER = [(1, 4, 1, 1), (2, 8, 2, 4), (4, 4, 4, 2), (8, 16, 1, 2)]
APART = [(2, 4, 1, 2), (3, 8, 4, 8), (5, 32, 1, 8)]


class Stack(nn.Module):
    """A recurrent module that returns everything it makes."""

    def __init__(self, inner: nn.RNNBase) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = states if len(states) > 1 else states[0] if states else None
        out, last = self.inner(x, given)
        return (out, *last) if isinstance(last, tuple) else (out, last)


def lowered(module: nn.Module, *inputs: torch.Tensor) -> Program:
    traced = trace_graph(module, inputs, None)
    simplify(traced)
    return lower(to_graph(traced, [f"x{at}" for at in range(len(inputs))]))


def call_of(program: Program) -> LibraryCall:
    (call,) = (one for one in program.nodes if isinstance(one, LibraryCall))
    return call


@dataclass
class Played:
    """One module under one layout, as the emulator compiles and runs it."""

    label: str
    module: Stack
    inputs: tuple[torch.Tensor, ...]
    emitted: Emitted
    program: Program
    settings: dict[str, int]
    library: list[Path] = field(default_factory=list)

    def run(self, simple: Callable[..., Any], *, flat: bool = False) -> list[torch.Tensor]:
        tensors = {f"x{at}": tensor for at, tensor in enumerate(self.inputs)}
        state = self.module.state_dict()
        state = in_one_buffer(state) if flat else state
        tensors |= {name: state[target].detach() for name, target in self.program.weights}
        call = call_of(self.program)
        made = {one.name: torch.full(one.shape, torch.nan, dtype=self.inputs[0].dtype)
                for one in call.results}  # fmt: skip
        tensors |= made
        # What the graph makes before the call: states of zeros.
        for one in call.operands:
            if one.name not in tensors:
                tensors[one.name] = torch.zeros(one.shape, dtype=self.inputs[0].dtype)
        names = simple(ctypes.CDLL(str(self.library[0])), tensors, self.settings).names()
        exec("\n".join(self.emitted.plan), names)
        return list(made.values())

    def truth(self) -> list[torch.Tensor]:
        with torch.no_grad():
            wide = Stack(type(self.module.inner)(**options(self.module.inner)))
            wide.load_state_dict(self.module.state_dict())
            return list(wide.double()(*(one.double() for one in self.inputs)))


def in_one_buffer(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights as a module on a GPU has them: one after the other, here from an odd place on."""
    sizes = [one.numel() for one in state.values()]
    whole = torch.cat([torch.zeros(1), *(one.flatten() for one in state.values())])
    parts = whole[1:].split(sizes)
    return {
        name: part.view(one.shape) for (name, one), part in zip(state.items(), parts, strict=True)
    }


def options(inner: nn.RNNBase) -> dict[str, Any]:
    names = ["input_size", "hidden_size", "num_layers", "bias", "batch_first", "bidirectional"]
    found = {name: getattr(inner, name) for name in names}
    return found | ({"nonlinearity": inner.nonlinearity} if isinstance(inner, nn.RNN) else {})


def played(
    module: Stack,
    inputs: tuple[torch.Tensor, ...],
    layout: tuple[int, ...],
    clustered: bool,
    at: int,
) -> Played:
    program = lowered(module, *inputs)
    call = call_of(program)
    recurrence = recurrence_of(call)
    members, lanes, units, rows = layout
    chosen = Layout(recurrence, clustered, members, lanes, units, rows)
    assert chosen.fits(DEVICE)
    printer = StackPrinter(Case(call, DEVICE), recurrence, [chosen], f"k{at}", "steps")
    emitted, settings = printer.emitted(), {}
    for line in emitted.source.splitlines():
        if line.startswith("// tune: "):
            name, values = line.removeprefix("// tune: ").split(" in ")
            settings[name] = int(values.split(",")[0])
    kind = "cluster" if clustered else "group"
    label = f"{module.inner} {tuple(inputs[0].shape)} {kind} {layout}"
    return Played(label, module, inputs, emitted, program, settings)


def cases(dtype: torch.dtype = torch.float32) -> list[tuple[Stack, tuple[torch.Tensor, ...]]]:
    """Every kind, with odd sizes: layers, directions, layouts of batches, states, biases."""
    torch.manual_seed(0)
    r = torch.randn
    listed: list[tuple[nn.RNNBase, tuple[torch.Tensor, ...]]] = [
        (nn.GRU(8, 13, num_layers=2, bidirectional=True), (r(7, 3, 8),)),
        (nn.GRU(6, 40, batch_first=True), (r(7, 5, 6), r(1, 7, 40))),
        (nn.LSTM(5, 17, num_layers=2, batch_first=True, bias=False), (r(3, 4, 5),)),
        (nn.LSTM(4, 37, bidirectional=True), (r(6, 7, 4), r(2, 7, 37), r(2, 7, 37))),
        (nn.RNN(3, 19, nonlinearity="relu"), (r(5, 1, 3),)),
        (nn.RNN(4, 20, bidirectional=True, bias=False), (r(1, 10, 4),)),
        (nn.LSTM(1, 8), (r(9, 2, 1),)),
    ]
    return [
        (Stack(inner.to(dtype)), tuple(one.to(dtype) for one in inputs)) for inner, inputs in listed
    ]


def everything(numbers: Collection[int] = range(7)) -> list[Played]:
    made: list[Played] = []
    for number, (module, inputs) in enumerate(cases()):
        if number not in numbers:
            continue
        for clustered, chosen in ((True, TOGETHER), (False, APART)):
            # Each layout meets another module; a sweep would only repeat them.
            layout = chosen[number % len(chosen)]
            groups = -(-inputs[0].shape[0 if module.inner.batch_first else 1] // layout[3])
            fitting = groups * layout[0] * (1 + module.inner.bidirectional) <= 16
            layout = layout if clustered or fitting else (2, 4, 1, 8)
            made.append(played(module, inputs, layout, clustered, len(made)))
    return made


# A GRU and an LSTM, in a cluster and in groups; all kinds of all shapes by `make test-all`.
_FEW = (1, 3)


@pytest.fixture(scope="module")
def few(toolbox: SimpleNamespace) -> list[Played]:
    made = everything(_FEW)
    toolbox.compile_emulated(made, shard=2)
    return made


@pytest.fixture(scope="module")
def variants(toolbox: SimpleNamespace) -> list[Played]:
    made = everything()
    toolbox.compile_emulated(made, shard=7)
    return made


@pytest.mark.exhaustive
def test_states_are_those_of_the_module(toolbox: SimpleNamespace, variants: list[Played]) -> None:
    for variant in variants:
        for mine, wanted in zip(variant.run(toolbox.Emulated), variant.truth(), strict=True):
            torch.testing.assert_close(
                mine.double(), wanted, rtol=0, atol=1e-6,
                msg=lambda text, label=variant.label: f"{label}: {text}",
            )  # fmt: skip


def test_infinities_and_nan_go_where_they_go_in_the_module(
    toolbox: SimpleNamespace, few: list[Played]
) -> None:
    for variant in few:
        x = variant.inputs[0].clone()
        x[1, 0, 0], x[1, 1, 1], x[2, 2, 2] = torch.nan, torch.inf, -torch.inf
        variant.inputs, kept = (x, *variant.inputs[1:]), variant.inputs
        for mine, wanted in zip(variant.run(toolbox.Emulated), variant.truth(), strict=True):
            torch.testing.assert_close(
                mine.double(), wanted, rtol=0, atol=1e-6, equal_nan=True, msg=variant.label
            )
        variant.inputs = kept


def test_weights_may_begin_anywhere(toolbox: SimpleNamespace, few: list[Played]) -> None:
    # The emulated device stops at a vector that is not aligned.
    for variant in few:
        apart, together = (variant.run(toolbox.Emulated, flat=flat) for flat in (False, True))
        assert all(map(torch.equal, apart, together)), variant.label


@pytest.mark.exhaustive
def test_the_same_bits_every_time(toolbox: SimpleNamespace, few: list[Played]) -> None:
    for variant in (few[0], few[3]):
        first, second = (variant.run(toolbox.Emulated) for _ in range(2))
        assert all(map(torch.equal, first, second))


@pytest.mark.exhaustive
def test_every_layout_makes_the_same_states(toolbox: SimpleNamespace) -> None:
    made: list[Played] = []
    for module, inputs in cases():
        recurrence = recurrence_of(call_of(lowered(module, *inputs)))
        for clustered in (True, False):
            found = layouts(recurrence, DEVICE, clustered=clustered)
            for one in random.Random(len(made)).sample(found, min(5, len(found))):
                numbers = (one.members, one.lanes, one.units, one.rows)
                made.append(played(module, inputs, numbers, clustered, len(made)))
    toolbox.compile_emulated(made, shard=12)
    for variant in made:
        for mine, wanted in zip(variant.run(toolbox.Emulated), variant.truth(), strict=True):
            torch.testing.assert_close(mine.double(), wanted, rtol=0, atol=1e-6, msg=variant.label)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_round_states_alone(toolbox: SimpleNamespace, dtype: torch.dtype) -> None:
    step = 2.0 ** (-8 if dtype is torch.bfloat16 else -11)
    chosen = [cases(dtype)[at] for at in (0, 3)]
    made = [played(*one, TOGETHER[1], True, at) for at, one in enumerate(chosen)]
    toolbox.compile_emulated(made)
    for variant in made:
        with torch.no_grad():
            theirs = variant.module(*variant.inputs)
        for mine, wanted, other in zip(
            variant.run(toolbox.Emulated), variant.truth(), theirs, strict=True
        ):
            assert mine.dtype is dtype
            error, reference = (float((one.double() - wanted).abs().max()) for one in (mine, other))
            assert error <= max(reference, 2 * step), variant.label


def test_both_ways_are_proposed_beside_the_library() -> None:
    program = lowered(Stack(nn.GRU(128, 256, num_layers=6)), torch.randn(512, 10, 128))
    call, emitter = call_of(program), CudaEmitter()
    found = emitter.strategies(call, H200)
    assert [one.name for one in found] == [CLUSTERS, GROUPS]
    times = [emitter.predicted_ms(call, one, H200) for one in found]
    assert times == sorted(times)
    # 42 ms were measured on an H200.
    assert line_ms(call.line, H200) == pytest.approx(42, rel=0.02)
    assert LIBRARY.name not in [one.name for one in found]


def test_what_no_device_holds_stays_with_the_library() -> None:
    call = call_of(lowered(Stack(nn.LSTM(64, 2048)), torch.randn(4, 2, 64)))
    assert CudaEmitter().strategies(call, H200) == ()


def test_no_steps_stay_with_the_library() -> None:
    call = call_of(lowered(Stack(nn.GRU(4, 6)), torch.randn(3, 2, 4)))
    none = call.results[0].model_copy(update={"shape": (0, 2, 6)})
    empty = call.model_copy(update={"results": (none, *call.results[1:])})
    with pytest.raises(ValueError, match="nothing to compute"):
        recurrence_of(empty)


def test_a_layer_larger_than_a_cluster_is_held_by_groups() -> None:
    call = call_of(lowered(Stack(nn.LSTM(64, 1024)), torch.randn(4, 1, 64)))
    assert [one.name for one in CudaEmitter().strategies(call, H200)] == [GROUPS]


def test_before_hopper_a_block_holds_what_fits_one() -> None:
    ampere = hardware_profile("A100")
    call = call_of(lowered(Stack(nn.GRU(64, 64)), torch.randn(4, 2, 64)))
    emitted = CudaEmitter().emit(call, CudaEmitter().strategies(call, ampere)[0], "k", ampere)
    assert "cluster" not in "".join(emitted.plan)
    assert "kw::cluster" not in emitted.source


@pytest.mark.parametrize(
    ("inner", "why"),
    [
        (nn.LSTM(4, 6, proj_size=2), "proj_size puts a second product into every step"),
        (nn.GRU(4, 6).double(), "states in float64"),
    ],
)
def test_what_is_not_read_is_refused_with_the_reason(inner: nn.RNNBase, why: str) -> None:
    x = torch.randn(3, 2, 4, dtype=next(inner.parameters()).dtype)
    call = call_of(lowered(Stack(inner), x))
    with pytest.raises(ValueError, match=why):
        recurrence_of(call)
    assert CudaEmitter().strategies(call, H200) == ()


def test_dropout_between_layers_counts_only_in_training() -> None:
    inner = nn.GRU(4, 6, num_layers=2, dropout=0.5)
    with pytest.raises(ValueError, match="draws random numbers while training"):
        recurrence_of(call_of(lowered(Stack(inner), torch.randn(3, 2, 4))))
    resting = call_of(lowered(Stack(inner).eval(), torch.randn(3, 2, 4)))
    assert recurrence_of(resting).layers == 2
    assert recurrence_of(resting).gates == GATES["gru"]


DEVICE_CASES = [
    (nn.GRU, {"num_layers": 2, "bidirectional": True}, (40, 10, 96, 256)),
    (nn.LSTM, {"bidirectional": True, "batch_first": True}, (33, 7, 31, 65)),
    (nn.LSTM, {}, (50, 1, 64, 1024)),
    (nn.RNN, {"nonlinearity": "relu", "bias": False}, (9, 64, 17, 33)),
    (nn.GRU, {}, (1, 3, 8, 512)),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("kind", "options", "sizes"), DEVICE_CASES)
@pytest.mark.parametrize("strategy", [CLUSTERS, GROUPS])
async def test_states_on_a_device_are_those_of_the_module(
    kind: type[nn.RNNBase], options: dict[str, Any], sizes: tuple[int, ...], strategy: str
) -> None:
    torch.manual_seed(0)
    steps, batch, inputs, hidden = sizes
    module = Stack(kind(inputs, hidden, **options))
    x = torch.randn(*((batch, steps) if options.get("batch_first") else (steps, batch)), inputs)
    program, emitter, hardware = lowered(module, x), CudaEmitter(), detect("cuda")
    call = call_of(program)
    ways = {one.name: one for one in emitter.strategies(call, hardware)}
    if strategy not in ways:
        pytest.skip(f"{strategy} does not hold this layer here")
    made = assemble(program, emitter, {call.name: ways[strategy]}, hardware)
    base = new_candidate("cuda", made.kernel, made.plan)
    tunables = parse_kernel(made.kernel, "cuda").tunables
    (tuned,) = (one for one in tunables if one.name.endswith("_LAYOUT"))
    for value in tuned.values[:4]:
        candidate = with_settings(base, [Setting(name=tuned.name, value=value)])
        built = await compile_candidate(
            candidate, architecture=hardware.architecture, timeout_s=120
        )
        assert isinstance(built, Built), built
        runner = load_candidate(candidate, built, "cuda:0")
        # Weights are given at call time, and may be others in the next call.
        for scale in (1.0, 0.5):
            state = {name: scale * one for name, one in module.state_dict().items()}
            weights = {name: one.cuda() for name, one in state.items()}
            found, again = (runner([x.cuda()], weights) for _ in range(2))
            wide = Stack(kind(inputs, hidden, **options))
            wide.load_state_dict(state)
            with torch.no_grad():
                truth = wide.double()(x.double())
            for mine, same, wanted in zip(found, again, truth, strict=True):
                assert torch.equal(mine, same), value
                torch.testing.assert_close(mine.double().cpu(), wanted, rtol=0, atol=5e-6)


@pytest.mark.parametrize(
    ("name", "architecture", "at"),
    [("H200", "sm_90a", 0), pytest.param("A100", "sm_80", -1, marks=pytest.mark.exhaustive)],
)
async def test_weights_stay_in_registers(
    toolbox: SimpleNamespace, name: str, architecture: str, at: int
) -> None:
    hardware, emitter = hardware_profile(name), CudaEmitter()
    program = lowered(Stack(nn.GRU(4, 256)), torch.randn(4, 3, 4))
    call = call_of(program)
    strategy = emitter.strategies(call, hardware)[at]
    made = assemble(program, emitter, {call.name: strategy}, hardware)
    candidate = new_candidate("cuda", made.kernel, made.plan)
    built = await compile_candidate(candidate, architecture=architecture, timeout_s=120)
    assert isinstance(built, Built), built
    (steps,) = (one for one in built.reports if one.kernel.endswith("_steps"))
    assert (steps.spill_bytes, steps.stack_bytes) == (0, 0)
    # The one trap is for a device that cannot run all blocks of a group at the same time.
    stops = await toolbox.never_runs(built.artifact)
    assert stops == ["BPT.TRAP"] * (strategy.name == GROUPS)
