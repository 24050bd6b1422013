"""Assembled candidates keep the contract, whatever a graph holds."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.candidates.plan.validate import validate_plan
from kernelwright.tools.codegen.cpp import CppEmitter
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir import Program
from kernelwright.tools.codegen.ir.kernel_family import Emitter
from kernelwright.tools.codegen.library.assemble import MOST_TUNABLES, assemble, described
from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.languages import parse_kernel

Check = Callable[..., Any]
r = torch.randn

EMITTERS: list[tuple[Emitter, str]] = [(CppEmitter(), "generic_cpu"), (CudaEmitter(), "H200")]
MODULES = {
    "softmax": (lambda x: torch.softmax(x, 1), r(40, 70)),
    "cross-entropy": (F.cross_entropy, r(7, 9), torch.randint(0, 9, (7,))),
    "a convolution and a norm": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.MaxPool2d(2)),
        r(2, 3, 8, 8),
    ),
    "several outputs": (lambda x: (x.sum(1), x.t(), torch.relu(x).flip(0), x), r(4, 6)),
    "a layer": (nn.Sequential(nn.Linear(8, 8), nn.GELU()), r(4, 8)),
}


@pytest.mark.parametrize("emitter", EMITTERS, ids=["cpp", "cuda"])
@pytest.mark.parametrize("name", MODULES)
def test_every_strategy_makes_a_valid_candidate(
    name: str, emitter: tuple[Emitter, str], check: Check
) -> None:
    printer, device = emitter
    hardware = hardware_profile(device)
    module, *inputs = MODULES[name]
    program = check(module, *inputs).program
    known = {loop.name: printer.strategies(loop, hardware) for loop in program.loops}
    for at in range(max(map(len, known.values()))):
        choices = {loop: of[min(at, len(of) - 1)] for loop, of in known.items()}
        made = assemble(program, printer, choices, hardware)
        plan = validate_plan(made.plan, parse_kernel(made.kernel, printer.language))
        assert plan.parameters == program.parameters
        assert plan.launches
        for loop in program.loops:
            assert described(loop) in made.kernel


def test_a_loop_without_a_choice_takes_its_first_strategy(check: Check) -> None:
    printer, device = EMITTERS[0]
    program = check(lambda x: torch.relu(x), r(4, 6)).program
    hardware = hardware_profile(device)
    first = {"L0": printer.strategies(program.loops[0], hardware)[0]}
    with_choice = assemble(program, printer, first, hardware)
    assert assemble(program, printer, {}, hardware) == with_choice


def test_names_that_mean_something_to_a_plan_are_not_hidden(recorder: Any) -> None:
    graph = recorder()
    x = graph.input(r(4, 6))
    names = {"x0": "launch", graph.call("exp.default", x): "exp"}
    plain = graph.graph("n1").model_dump_json()
    for name, wanted in names.items():
        plain = plain.replace(f'"{name}"', f'"{wanted}"')
    program = lower(type(graph.graph("n1")).model_validate_json(plain))
    assert program.parameters == ("launch_",)
    assert program.returns == ("exp_",)


def test_plain_scalars_among_the_arguments_keep_their_place(recorder: Any) -> None:
    graph = recorder()
    x = graph.input(r(4, 6))
    y = graph.input(r(4, 6))
    name = graph.call("add.Tensor", x, y)
    program = lower(graph.graph(name), ("x0", "launch", "n2", "x1"))
    assert program.parameters == ("x0", "launch_", "n2_2", "x1")


def test_buffers_that_the_forward_updates_are_updated_by_the_plan(check: Check) -> None:
    printer, device = EMITTERS[0]
    program = check(nn.BatchNorm1d(6), r(32, 6)).program
    made = assemble(program, printer, {}, hardware_profile(device))
    plan = validate_plan(made.plan, parse_kernel(made.kernel, printer.language))
    assert set(plan.updates) == {"running_mean", "running_var", "num_batches_tracked"}
    assert set(plan.weights) >= {"weight", "bias", "running_mean"}


def softmaxes(recorder: Any, widths: list[int]) -> Program:
    """One softmax a width, over inputs of their own."""
    graph = recorder()
    rows = [graph.input(r(4, width)) for width in widths]
    outputs = [graph.call("_softmax.default", row, 1, False) for row in rows]
    return graph.check(*outputs)


@pytest.mark.parametrize("emitter", EMITTERS, ids=["cpp", "cuda"])
def test_equal_loops_share_a_kernel(emitter: tuple[Emitter, str], recorder: Any) -> None:
    printer, device = emitter
    program = softmaxes(recorder, [8, 8, 8])
    assert len(program.loops) == 3
    made = assemble(program, printer, {}, hardware_profile(device))
    assert described(program.loops[0]) in made.kernel
    assert described(program.loops[1]) not in made.kernel
    plan = validate_plan(made.plan, parse_kernel(made.kernel, printer.language))
    assert made.plan.count("launch(") == 3 * len(plan.launches)


@pytest.mark.parametrize("emitter", EMITTERS, ids=["cpp", "cuda"])
def test_many_loops_keep_the_contract_by_fixing_tunables(
    emitter: tuple[Emitter, str], recorder: Any
) -> None:
    printer, device = emitter
    # Large enough to be worth tuning in any language.
    program = softmaxes(recorder, [4096 + 8 * at for at in range(1, 41)])
    assert len(program.loops) == 40
    made = assemble(program, printer, {}, hardware_profile(device))
    source = parse_kernel(made.kernel, printer.language)
    assert 0 < len(source.tunables) <= MOST_TUNABLES
    assert len(validate_plan(made.plan, source).launches) >= 40
