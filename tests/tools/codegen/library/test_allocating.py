"""A plan allocates directly before the first launch that takes what it allocates."""

import ast
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.candidates.plan.validate import validate_plan
from kernelwright.tools.codegen.cpp import CppEmitter
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir import Strategy
from kernelwright.tools.codegen.ir.kernel_family import Emitter
from kernelwright.tools.codegen.library.assemble import allocated_late, assemble
from kernelwright.tools.languages import parse_kernel

Check = Callable[..., Any]
r = torch.randn

EMITTERS: list[tuple[Emitter, str]] = [(CppEmitter(), "generic_cpu"), (CudaEmitter(), "H200")]
# Few long rows, so that strategies with work memory are among those offered.
MODULES = {
    "one norm": (nn.LayerNorm(40_000), r(3, 40_000)),
    "a norm of norms": (
        nn.Sequential(nn.LayerNorm(40_000), nn.Flatten(0), nn.LayerNorm(120_000)),
        r(3, 40_000),
    ),
    "deviations from a mean, summed": (lambda x: (x - x.mean(1, True)).abs().sum(1), r(3, 40_000)),
    "a library call between": (
        nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.LayerNorm(64)),
        r(512, 64),
    ),
    "sums of columns": (lambda x: (x - x.mean(0)).abs().sum(0), r(40_000, 6)),
    "a view of what was made": (lambda x: x.exp().t().softmax(0).flatten(), r(700, 600)),
}


def allocates(line: str) -> str:
    found = re.match(r"\s*(\w+) = (?:empty|zeros)\(", line)
    return found[1] if found else ""


def mentions(line: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(line.strip())) if isinstance(node, ast.Name)}


def body(plan: str) -> list[str]:
    return [line.strip() for line in plan.splitlines()[1:]]


@pytest.mark.parametrize("emitter", EMITTERS, ids=["cpp", "cuda"])
@pytest.mark.parametrize("name", MODULES)
def test_what_is_allocated_is_taken_by_the_next_line(
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
        # Among others, that nothing is read before it is bound.
        validate_plan(made.plan, parse_kernel(made.kernel, printer.language))
        lines = body(made.plan)
        for number, line in enumerate(lines):
            if made_here := allocates(line):
                taker = next(one for one in lines[number:] if not allocates(one))
                assert taker.startswith("launch(")
                assert made_here in mentions(taker)


def chosen(program: Any, wanted: str) -> dict[str, Strategy]:
    """That strategy for every loop that it fits."""
    hardware = hardware_profile("H200")
    of = {loop.name: CudaEmitter().strategies(loop, hardware) for loop in program.loops}
    named = {name: [one for one in known if one.name == wanted] for name, known in of.items()}
    return {name: found[0] for name, found in named.items() if found}


def test_only_what_the_first_launch_takes_comes_before_it(check: Check) -> None:
    program = check(nn.LayerNorm(400_000), r(3, 400_000)).program
    choices = chosen(program, "split_rows_tiles")
    assert choices
    made = assemble(program, CudaEmitter(), choices, hardware_profile("H200"))
    kinds = [allocates(line) or line.split("(")[0] for line in body(made.plan)[2:]]
    # The device is busy with what was launched while the host allocates the rest.
    output = program.returns[0]
    assert kinds == ["L0_parts1", "launch", "launch", output, "launch", f"return {output}"]


def test_launches_keep_their_order_and_work_memory_of_two_loops_is_their_own(recorder: Any) -> None:
    graph = recorder()
    rows = [graph.input(r(3, 40_000)) for _ in range(2)]
    program = graph.check(*(graph.call("_softmax.default", row, 1, False) for row in rows))
    choices = chosen(program, "split_rows_tiles")
    assert len(choices) == 2
    made = assemble(program, CudaEmitter(), choices, hardware_profile("H200"))
    lines = body(made.plan)
    # One kernel for both, so that the second loop's work memory takes the name of the first's.
    launches = [line for line in lines if line.startswith("launch(")]
    once = ["L0_pass1", "L0_join1", "L0_pass2", "L0_join2", "L0_pass3"]
    assert [re.findall(r"L\d_(?:pass|join)\d", line)[0] for line in launches] == 2 * once
    starts = [at for at, line in enumerate(lines) if "L0_pass1" in line]
    for begin, end in pairwise([0, *(at + 1 for at in starts)]):
        asked = [line for line in lines[begin:end] if line.startswith("L0_parts1 = empty(")]
        assert len(asked) == 1


def test_a_size_is_read_where_it_was() -> None:
    lines = ["n = 4", "x = empty((n,))", "n = 5", "y = empty((n,))", 'launch("f", args=(x, y))']
    assert list(allocated_late(lines)) == lines


def test_an_allocation_that_another_depends_on_comes_first() -> None:
    lines = ["x = empty((4,))", "y = empty(x.shape)", 'launch("f", args=(y,))', "return x"]
    assert list(allocated_late(lines)) == lines


def test_what_nothing_takes_is_kept() -> None:
    assert list(allocated_late(["x = empty((4,))"])) == ["x = empty((4,))"]


MAKERS, NAMES = st.sampled_from(["empty", "zeros"]), st.sampled_from("abc")
NUMBERS = st.sampled_from("nm")
SIZES = st.sampled_from(["2", "n", "n + 1", "m"])
LINES = st.one_of(
    st.builds("{} = {}(({},))".format, NAMES, MAKERS, SIZES),
    st.builds("{} = {} + 1".format, NUMBERS, NUMBERS),
    st.builds('launch("{}", args=({}, {}))'.format, st.sampled_from("fg"), NAMES, NAMES),
)


def seen(lines: Sequence[str]) -> list[object]:
    """What every launch is given: which allocation, of what size, filled or not."""
    found: list[object] = []
    names: dict[str, object] = {
        "empty": lambda shape: ("empty", shape),
        "zeros": lambda shape: ("zeros", shape),
        "launch": lambda name, args: found.append((name, args)),
    }
    values: dict[str, object] = dict.fromkeys("nmabc", 0)
    exec("\n".join(lines), names, values)
    return [*found, {word: values[word] for word in "nm"}]


@given(st.lists(LINES, max_size=12))
def test_every_launch_is_given_what_it_was_given_before(lines: list[str]) -> None:
    late = list(allocated_late(lines))
    assert sorted(late) == sorted(lines)
    assert seen(late) == seen(lines)
