"""A family added by its own file alone is proposed, written, compiled and runs: the seam is whole.

Two toys: one thread an element, for loops that reduce nothing, and one thread an output element,
for products that were the library's. Both stand behind the Protocol with nothing of ours besides.
"""

import ctypes
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelwright.agents.coder.coder import CoderRequest, PlaybookCoder
from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.contractions.family import ContractionFamily
from kernelwright.tools.codegen.cuda.emitter import FAMILIES
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    buffer_arguments,
    complete,
    expression,
)
from kernelwright.tools.codegen.ir import Access, Emitted, LibraryCall, Loop, Stmt, Strategy
from kernelwright.tools.codegen.ir.kernel_family import LIBRARY, Fit, KernelFamily, LoopFamily
from kernelwright.tools.codegen.ir.rewrites import GraphRewrite, LoopRewrite
from kernelwright.tools.codegen.ir.roofline import roofline_ms
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    PlaybookRepertoire,
    Recipe,
    repertoire_for,
)
from kernelwright.tools.languages import Built, compile_candidate, new_candidate
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Candidate, DType, Graph, Node, Scalar, Task, TracePolicy

H200 = hardware_profile("H200")
SOURCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, w):
        return torch.tanh(x @ w) + 0.5

def get_inputs():
    return [torch.randn(24, 40), torch.randn(40, 12)]
"""
NAIVE = Strategy(
    name="naive_elements",
    title="One thread an element",
    mechanism="Each thread computes one element and ends.",
    reason="it is the shortest kernel there is",
    category="parallelism",
    metric="dram throughput",
    memory="single pass",
    compute="fused chain",
    parallel="thread per element",
)


class NaiveElements:
    """One thread an element of a loop of float32 that reduces nothing."""

    names: tuple[str, ...] = (NAIVE.name,)
    rewrites: tuple[LoopRewrite, ...] = ()
    graph_rewrites: tuple[GraphRewrite, ...] = ()

    def fit(self, case: Case, /) -> Fit:
        loop = case.node
        if not isinstance(loop, Loop) or loop.inner or any(s.op == "index" for s in loop.body):
            return Fit.NO
        plain = all(stmt.dtype is DType.FLOAT32 for stmt in loop.body)
        return Fit.BEST if plain and not any(map(_is_dear, loop.body)) else Fit.NO

    def strategies(self, case: Case, /) -> list[Strategy]:
        return [NAIVE]

    def predicted_ms(self, case: Case, strategy: Strategy, /) -> float:
        return 1e-6  # what a family says of itself is believed until it is measured

    def emit(self, case: Case, name: str, prefix: str, /) -> Emitted:
        loop = case.loop
        tunables = Tunables(prefix).add("THREADS", (64, 128, 256))
        text = "\n".join(f"    {line}" for line in [*_positions(loop), *_statements(loop)])
        source = tunables.named(
            f"{tunables.text()}\n"
            f'extern "C" __global__ void __launch_bounds__({{THREADS}}) '
            f"{prefix}_naive(@parameters@) {{\n"
            f"    const long long i = (long long)blockIdx.x * {{THREADS}} + threadIdx.x;\n"
            f"    if (i >= {loop.rows}) return;\n{text}\n}}\n"
        )
        grid = tunables.named(f"ceil_div({loop.rows}, {{THREADS}})")
        launch = Launch(f"{prefix}_naive", grid, tunables.named("{THREADS}"))
        source, plan = complete(source, buffer_arguments(case.nest), [launch])
        return Emitted(source=source, plan=plan)


def _is_dear(stmt: Stmt) -> bool:
    strides = stmt.access.strides if stmt.access is not None else ()
    return stmt.op == "load" and (bool(stmt.args) or any(s.by.startswith("s") for s in strides))


def _positions(loop: Loop) -> list[str]:
    lines, below = [], 1
    for axis in reversed(loop.outer):
        lines.append(f"const long long o_{axis.name} = i / {below} % {axis.size};")
        below *= axis.size
    return lines


def _at(access: Access) -> str:
    terms = [f"o_{stride.by} * {stride.step}" for stride in access.strides]
    return f"g_{access.buffer}[{' + '.join([str(access.offset), *terms])}]"


def _statements(loop: Loop) -> list[str]:
    lines = []
    for stmt in loop.body:
        args = [(f"v_{name}", DType.FLOAT32) for name in stmt.args]
        text = _at(stmt.access) if stmt.access is not None else expression(stmt, args)
        lines.append(f"const float v_{stmt.name} = {text};")
    return [*lines, *(f"{_at(store.access)} = v_{store.value};" for store in loop.stores)]


class NaiveProduct:
    """One thread an output element of a product of two matrices, taken from the library."""

    names: tuple[str, ...] = ("naive_product",)
    rewrites: tuple[LoopRewrite, ...] = ()
    graph_rewrites: tuple[GraphRewrite, ...] = ()

    def fit(self, case: Case, /) -> Fit:
        call = case.node
        if not isinstance(call, LibraryCall) or call.line.operator != "aten.mm.default":
            return Fit.NO
        plain = call.line.text == _as_written(call)
        floats = all(one.dtype is DType.FLOAT32 for one in (*call.operands, *call.results))
        return Fit.BEST if plain and floats else Fit.NO

    def strategies(self, case: Case, /) -> list[Strategy]:
        words = {"name": self.names[0], "title": "One thread an output", "efficiency": 1.0}
        return [NAIVE.model_copy(update=words)]

    def predicted_ms(self, case: Case, strategy: Strategy, /) -> float:
        call = case.node
        assert isinstance(call, LibraryCall)
        rate = case.hardware.tensor_tflops
        line = call.line
        return roofline_ms(line.cost_bytes, line.cost_flops, strategy, case.hardware, tflops=rate)

    def emit(self, case: Case, name: str, prefix: str, /) -> Emitted:
        call = case.node
        assert isinstance(call, LibraryCall)
        (rows, depth), (_, columns) = (one.shape for one in call.operands)
        tunables = Tunables(prefix).add("THREADS", (32, 64))
        source = tunables.named(
            f"{tunables.text()}\n"
            f'extern "C" __global__ void __launch_bounds__({{THREADS}}) {prefix}_mm(@parameters@)'
            f" {{\n    const int i = blockIdx.x * {{THREADS}} + threadIdx.x;\n"
            f"    if (i >= {rows * columns}) return;\n    float sum = 0.0f;\n"
            f"    for (int k = 0; k < {depth}; ++k)\n"
            f"        sum += g_a[i / {columns} * {depth} + k]"
            f" * g_b[k * {columns} + i % {columns}];\n"
            f"    g_c[i] = sum;\n}}\n"
        )
        names = [*(one.name for one in call.operands), call.results[0].name]
        kinds = ("const float* __restrict__ g_a", "const float* __restrict__ g_b", "float* g_c")
        arguments = [Argument(k[-3:], k, n) for k, n in zip(kinds, names, strict=True)]
        grid = tunables.named(f"ceil_div({rows * columns}, {{THREADS}})")
        launch = Launch(f"{prefix}_mm", grid, tunables.named("{THREADS}"))
        source, plan = complete(source, arguments, [launch])
        return Emitted(source=source, plan=plan)


def _as_written(call: LibraryCall) -> str:
    return f"{call.name} = aten.mm({', '.join(one.name for one in call.operands)})"


TOYS: tuple[KernelFamily[Case], ...] = (NaiveElements(), NaiveProduct())
# Without kernels for products of our own, a product is a call that stays or is taken.
OTHERS = tuple(one for one in FAMILIES if not isinstance(one, ContractionFamily))


@pytest.fixture(scope="module")
def task() -> Task:
    found = trace(SOURCE, "/tmp/product.py", TracePolicy())
    assert isinstance(found, Task)
    return found


@pytest.fixture(scope="module")
def repertoire(task: Task) -> PlaybookRepertoire:
    return repertoire_for(task, H200, CudaEmitter((*OTHERS, *TOYS)))


@dataclass
class Playable:
    """A candidate as the emulator takes it."""

    candidate: Candidate
    library: list[Path] = field(default_factory=list)

    @property
    def emitted(self) -> Emitted:
        return Emitted(source=self.candidate.kernel, plan=())

    @property
    def settings(self) -> dict[str, int]:
        return {one.name: int(one.value) for one in self.candidate.settings}


async def _first(repertoire: PlaybookRepertoire) -> tuple[dict[str, str], Candidate]:
    proposal = await PlaybookPlanner(repertoire).plan(
        PlannerInput(round=1, wanted=1, floor_ms=1e-9)
    )
    (idea,) = proposal.ideas
    recipe = Recipe.from_idea(idea)
    assert recipe is not None
    answer = await PlaybookCoder(repertoire).write(CoderRequest(idea=idea, count=1))
    return recipe.choices, answer.candidates[0]


async def test_a_family_is_proposed_written_compiled_and_runs(
    repertoire: PlaybookRepertoire, toolbox: SimpleNamespace
) -> None:
    choices, candidate = await _first(repertoire)
    assert set(choices.values()) == {"naive_elements", "naive_product"}
    assert "aten" not in candidate.plan
    built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=120)
    assert isinstance(built, Built), built

    playable = Playable(candidate)
    toolbox.compile_emulated([playable])
    library = ctypes.CDLL(str(playable.library[0]))
    names = toolbox.Emulated(library, {}, playable.settings).names()
    exec(candidate.plan, names)
    x, w = torch.randn(24, 40), torch.randn(40, 12)
    torch.testing.assert_close(names["forward"](x, w), torch.tanh(x @ w) + 0.5)


def test_a_family_stands_among_the_others(repertoire: PlaybookRepertoire) -> None:
    ways: dict[str, list[str]] = {}
    for option in repertoire.options():
        ways.setdefault(option.loop, []).append(option.strategy.name)
    assert ways["mm"] == ["naive_product", LIBRARY.name]
    assert {"naive_elements", "pointwise_tiles"} <= {*ways["L0"]}


def test_what_a_family_may_take_can_stay_with_the_library(repertoire: PlaybookRepertoire) -> None:
    draft = repertoire.draft({"mm": LIBRARY.name})
    assert "mm = aten.mm(x, w)" in draft.plan
    assert "mm=library" in draft.strategies
    assert repertoire.fixed_ms == 0.0


def test_without_its_line_in_the_registry_nothing_of_it_is_known(task: Task) -> None:
    plain = repertoire_for(task, H200, CudaEmitter(OTHERS))
    assert {option.loop for option in plain.options()} == {"L0"}
    assert "aten.mm" in plain.draft({}).plan
    assert plain.fixed_ms > 0


def test_equal_calls_share_a_kernel() -> None:
    source = SOURCE.replace("torch.tanh(x @ w) + 0.5", "torch.tanh(x @ w) + (x * 2) @ w")
    task = trace(source, "/tmp/products.py", TracePolicy())
    assert isinstance(task, Task)
    drafts = repertoire_for(task, H200, CudaEmitter((*OTHERS, *TOYS)))
    draft = drafts.draft({"mm": "naive_product", "mm_1": "naive_product"})
    assert draft.kernel.count("_mm(") == 1
    assert draft.plan.count("mm_mm") == 2
    new_candidate("cuda", draft.kernel, draft.plan)


def test_two_families_do_not_share_a_name() -> None:
    with pytest.raises(ValueError, match="two families know the strategies naive_elements"):
        CudaEmitter((*FAMILIES, NaiveElements(), NaiveElements()))


def _doubled(graph: Graph, node: Node) -> Graph | None:
    """x * 2 becomes x + x."""
    if node.op != "aten.mul.Tensor" or node.args[1] != Scalar(value=2):
        return None
    added = node.model_copy(update={"op": "aten.add.Tensor", "args": (node.args[0],) * 2})
    nodes = tuple(added if one is node else one for one in graph.nodes)
    return graph.model_copy(update={"nodes": nodes})


def test_a_family_brings_rewrites_of_the_graph() -> None:
    doubling = GraphRewrite("doubling", "add instead of doubling", "2 x = x + x", "none", _doubled)
    family = LoopFamily(
        ("toy",), lambda case: Fit.ON_REQUEST, lambda case: [], _no_source, (), (doubling,)
    )
    source = SOURCE.replace("torch.tanh(x @ w) + 0.5", "torch.tanh(x * 2)")
    task = trace(source, "/tmp/doubled.py", TracePolicy())
    assert isinstance(task, Task)
    ideas = repertoire_for(task, H200, CudaEmitter((*FAMILIES, family))).options()
    titles = {option.strategy.title for option in ideas if option.loop == FORM}
    assert "add instead of doubling" in titles


def _no_source(case: Case, name: str, prefix: str) -> Emitted:
    raise ValueError(f"{case.loop.name}: {name} prints nothing")
