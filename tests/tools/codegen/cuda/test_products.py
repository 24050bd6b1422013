"""Products of matrices, from the traced module to what the emulated device returns.

Each module is lowered with its products as loops and written by the playbook under every strategy
for products, with a few settings; all kernels are compiled together. What comes back is compared
with the module in double precision.
"""

from __future__ import annotations

import asyncio
import ctypes
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.agents.coder.coder import CoderRequest, PlaybookCoder
from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.contractions.simt import NAMES, SIMT_FAMILY, SPLIT
from kernelwright.tools.codegen.cuda.emitter import FAMILIES
from kernelwright.tools.codegen.ir.contraction import contraction_of
from kernelwright.tools.codegen.ir.kernel_family import LoopFamily
from kernelwright.tools.codegen.library.kernel_library import FORM as FORM_LOOP
from kernelwright.tools.codegen.library.kernel_library import (
    PlaybookRepertoire,
    Recipe,
    repertoire_for,
)
from kernelwright.tools.codegen.lower import Lowering, lower
from kernelwright.tools.languages import (
    Built,
    compile_candidate,
    new_candidate,
    parse_kernel,
)
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import DType, Task, TracePolicy

# The ordinary cores alone, whatever other families know of products.
EMITTER = CudaEmitter((*(one for one in FAMILIES if isinstance(one, LoopFamily)), SIMT_FAMILY))
FORM = {"form": "products"}
_FILE = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(36, 52), torch.nn.Linear(52, 20)

    def forward(self, {names}):
        return {returned}

def get_inputs():
    torch.manual_seed(1)
    return [{inputs}]
"""
# What is returned, and the shapes of x, y and so on.
MODULES: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "plain": ("x @ y", ((68, 40), (40, 72))),
    "odd": ("x @ y", ((67, 37), (37, 71))),
    "turned": ("x.T @ y.T", ((40, 68), (72, 40))),
    "batched": ("torch.bmm(x, y.transpose(1, 2)) * 0.5", ((3, 20, 33), (3, 17, 33))),
    "shared": ('torch.einsum("abij,jk->abik", x, y)', ((2, 3, 10, 24), (24, 36))),
    "slices": ("x[::2, 1:] @ y[:, ::3]", ((80, 41), (40, 99))),
    "layers": ("self.second(F.gelu(self.first(x)))", ((2, 30, 36),)),
    "residual": ("torch.relu(self.first(x)) * 0.5 + y", ((40, 36), (40, 52))),
    "turned_residual": ("torch.relu(x @ y) + z.T", ((40, 36), (36, 48), (48, 40))),
    "scaled": ("torch.addmm(z, x, y, beta=0.5, alpha=2.0)", ((20, 30), (30, 40), (40,))),
    "before": ("torch.relu(x * 2 + 1) @ torch.triu(y)", ((33, 40), (40, 40))),
    "masked": ("torch.tril(torch.triu(x) @ y)", ((40, 40), (40, 40))),
    "triangle": ("torch.triu(x @ y, 1) * 2", ((150, 40), (40, 160))),
    "nothing": ("torch.triu(x @ y, 50)", ((40, 40), (40, 40))),
    "half": ("torch.tanh(x.half() @ y.half()).float()", ((40, 48), (48, 40))),
    "half_in": ("torch.relu(x @ y)", ((40, 48), (48, 40))),
    "half_turned": ("(x.T @ y.T).float() * 2", ((48, 41), (40, 48))),
    "bfloat16": ("x @ y + z", ((24, 32), (32, 48), (48,))),
    "broadcast": ("(x[:, :, None] * y[None]).sum(1)", ((40, 30), (30, 36))),
    "gathered": ("x[torch.argmax(y, 1)] @ z", ((9, 36), (20, 9), (36, 24))),
    "padded": ("F.pad(x, (2, 3)) @ y", ((20, 31), (36, 24))),
    "few": ("x @ y.T", ((5, 70), (130, 70))),
    "tall": ("x @ y", ((150, 64), (64, 6))),
    "long": ("torch.sigmoid(x @ y) + z", ((20, 600), (600, 24), (24,))),
    "long_odd": ("torch.bmm(x, y)", ((2, 9, 517), (2, 517, 11))),
}
# Inputs of other types than float32, and what the result may be off by.
_TYPES = {"half_in": "float16", "half_turned": "float16", "bfloat16": "bfloat16"}
_ROUGH = {"half": 2e-2, "half_in": 2e-3, "half_turned": 2e-3, "bfloat16": 2e-2}
# What is tried every time; the others by `make test-all`.
QUICK = ("odd", "masked", "half_turned", "bfloat16", "long_odd")
# Two where sums are long enough to be split.
_SPLIT = ("long", "long_odd")


@dataclass
class Whole:
    """A candidate for a module under one setting."""

    name: str
    strategy: str
    chosen: str
    plan: str
    emitted: SimpleNamespace
    settings: dict[str, int]
    library: list[Path] = field(default_factory=list)


def _source(name: str) -> str:
    returned, shapes = MODULES[name]
    kind = _TYPES.get(name, "float32")
    inputs = ", ".join(f"torch.randn({shape}, dtype=torch.{kind})" for shape in shapes)
    names = ", ".join("xyz"[: len(shapes)])
    return _FILE.format(names=names, returned=returned, inputs=inputs)


def _repertoire(name: str, hardware: Hardware) -> PlaybookRepertoire:
    task = trace(_source(name), f"/tmp/{name}.py", TracePolicy())
    assert isinstance(task, Task), task
    return repertoire_for(task, hardware, EMITTER)


def _drafted(name: str, hardware: Hardware, count: int) -> list[Whole]:
    """Every strategy in the first setting with few threads, and in others as many as asked for."""
    found, repertoire = [], _repertoire(name, hardware)
    ours = [one for one in repertoire.options() if one.strategy.name in NAMES]
    form = {FORM_LOOP: ours[0].form} if ours[0].form else {}
    for strategy in NAMES if name in _SPLIT else NAMES[:1]:
        draft = repertoire.draft({**form, **{one.loop: strategy for one in ours}})
        assert "aten" not in draft.plan, draft.plan
        new_candidate("cuda", draft.kernel, draft.plan)
        every = [
            values
            for setting in valid_settings(parse_kernel(draft.kernel, "cuda"))
            if _threads(values := {one.name: int(one.value) for one in setting}) <= 128
        ]
        drawn = random.Random(name + strategy).sample(every, count - 1)
        for at, values in enumerate([every[0], *drawn]):
            own = f"{[*MODULES].index(name)}{NAMES.index(strategy)}{at}"
            kernel, plan = (_renamed(text, own) for text in (draft.kernel, draft.plan))
            settings = {f"K{own}{key}": value for key, value in values.items()}
            emitted = SimpleNamespace(source=kernel.replace(CudaEmitter().header(), ""))
            found.append(Whole(name, strategy, str(values), plan, emitted, settings))
    return found


def _threads(values: dict[str, int]) -> int:
    return max(value for key, value in values.items() if key.endswith("_THREADS"))


def _renamed(text: str, own: str) -> str:
    """Kernels of one library have names of their own."""
    return re.sub(r"\b(P?L\d+_)", rf"K{own}\1", text)


Compiled = Callable[[Iterable[str], int], list[Whole]]


@pytest.fixture(scope="module")
def compiled(toolbox: SimpleNamespace, small_device: Hardware) -> Compiled:
    """`compiled(names, count)`: modules under every strategy, in so many settings each."""

    def made(names: Iterable[str], count: int) -> list[Whole]:
        found = [one for name in names for one in _drafted(name, small_device, count)]
        toolbox.compile_emulated(found)
        return found

    return made


@pytest.fixture(scope="module")
def wholes(compiled: Compiled) -> list[Whole]:
    return compiled(QUICK, 1)


@pytest.fixture(scope="module")
def all_wholes(compiled: Compiled) -> list[Whole]:
    return compiled(MODULES, 3)


def _run(
    toolbox: SimpleNamespace,
    wholes: list[Whole],
    name: str,
    *inputs: torch.Tensor,
    weights: Mapping[str, torch.Tensor] | None = None,
) -> Iterator[tuple[str, torch.Tensor]]:
    """What each candidate of a module returns, with its setting."""
    for one in (one for one in wholes if one.name == name):
        play = toolbox.Emulated(ctypes.CDLL(str(one.library[0])), {}, one.settings)
        names: dict[str, Any] = {**play.names(), "weights": weights or {}}
        exec(one.plan, names)
        yield one.chosen, names["forward"](*inputs)


@pytest.mark.parametrize("name", QUICK)
def test_products_compute_what_the_module_does(
    toolbox: SimpleNamespace, wholes: list[Whole], name: str
) -> None:
    _compare(toolbox, wholes, name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODULES)
def test_every_product_in_several_settings(
    toolbox: SimpleNamespace, all_wholes: list[Whole], name: str
) -> None:
    _compare(toolbox, all_wholes, name)


def _compare(toolbox: SimpleNamespace, wholes: list[Whole], name: str) -> None:
    space: dict[str, Any] = {}
    exec(_source(name), space)
    module, inputs = space["Model"](), space["get_inputs"]()
    weights = {key: value.detach().clone() for key, value in module.named_parameters()}
    with torch.no_grad():
        wanted = module.double()(*(x.double() for x in inputs)).double()
    precision, scale = _ROUGH.get(name, 2e-6), float(wanted.abs().max())
    for chosen, found in _run(toolbox, wholes, name, *inputs, weights=weights):
        torch.testing.assert_close(
            found.double(), wanted, rtol=precision, atol=precision * scale, msg=chosen
        )


def test_infinities_nan_and_tiny_values_come_out_as_pytorch_has_them(
    toolbox: SimpleNamespace, wholes: list[Whole]
) -> None:
    x, y = (torch.randn(shape) for shape in MODULES["odd"][1])
    x[3, 5], x[4, 6], x[5, 7], y[7, 9] = float("inf"), float("-inf"), 3e38, float("nan")
    x[6], x[7], y[:, 3], y[:, 4] = 1e-42, -0.0, 3e38, float("inf")
    for _, found in _run(toolbox, wholes, "odd", x, y):
        torch.testing.assert_close(found, x @ y, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_sums_in_parts_have_the_same_bits_every_time(
    toolbox: SimpleNamespace, wholes: list[Whole]
) -> None:
    x, y = (torch.randn(shape) for shape in MODULES["long_odd"][1])
    first, again = (dict(_run(toolbox, wholes, "long_odd", x, y)) for _ in range(2))
    assert first
    assert all(torch.equal(first[one], again[one]) for one in first)


def test_long_sums_are_split(small_device: Hardware) -> None:
    options = _repertoire("long", small_device).options()
    assert SPLIT in {option.strategy.name for option in options}


def _task(size: int, dtype: str = "float32") -> Task:
    values = f"torch.randn({size}, {size}, dtype=torch.{dtype})"
    source = _FILE.format(names="x, y", returned="torch.relu(x @ y)", inputs=f"{values}, {values}")
    task = trace(source, "/tmp/product.py", TracePolicy())
    assert isinstance(task, Task), task
    return task


def _forms(task: Task, hardware: Hardware) -> set[str]:
    emitter = EMITTER if hardware.kind == "cuda" else None
    options = repertoire_for(task, hardware, emitter).options()
    return {option.strategy.name for option in options if option.loop == FORM_LOOP}


@pytest.mark.exhaustive
def test_the_planner_proposes_a_product_and_the_coder_writes_it(
    toolbox: SimpleNamespace, small_device: Hardware
) -> None:
    repertoire = repertoire_for(_task(40), small_device, EMITTER)
    question = PlannerInput(round=1, wanted=1, floor_ms=1e-9)
    (idea,) = asyncio.run(PlaybookPlanner(repertoire).plan(question)).ideas
    recipe = Recipe.from_idea(idea)
    assert recipe is not None
    assert recipe.choices["form"] == "products"
    answer = asyncio.run(PlaybookCoder(repertoire).write(CoderRequest(idea=idea, count=1)))
    candidate = answer.candidates[0]
    settings = {one.name: int(one.value) for one in candidate.settings}
    emitted = SimpleNamespace(source=candidate.kernel)
    whole = Whole("first", "", "", candidate.plan, emitted, settings)
    toolbox.compile_emulated([whole])
    names = toolbox.Emulated(ctypes.CDLL(str(whole.library[0])), {}, settings).names()
    exec(candidate.plan, names)
    x, y = torch.randn(40, 40), torch.randn(40, 40)
    torch.testing.assert_close(names["forward"](x, y), torch.relu(x @ y))


def test_products_are_offered_where_kernels_of_ours_are_no_multiple_of_the_library() -> None:
    device = hardware_profile("H200")
    assert "products" in _forms(_task(1024), device)
    assert "products" in _forms(_task(64, "float16"), device)
    assert "products" not in _forms(_task(2048, "float16"), device)
    assert "products" not in _forms(_task(64, "float64"), device)
    assert "products" not in _forms(_task(1024), hardware_profile("cpu"))


@pytest.mark.parametrize(
    "architecture",
    ["sm_90a", *(pytest.param(f"sm_{one}", marks=pytest.mark.exhaustive) for one in (80, 86, 120))],
)
async def test_the_first_setting_spills_nothing(architecture: str) -> None:
    draft = repertoire_for(_task(2048), hardware_profile("H200"), EMITTER).draft(FORM)
    first = valid_settings(parse_kernel(draft.kernel, "cuda"))[0]
    candidate = new_candidate("cuda", draft.kernel, draft.plan)
    candidate = candidate.model_copy(update={"settings": first})
    built = await compile_candidate(candidate, architecture=architecture, timeout_s=120)
    assert isinstance(built, Built), built
    assert [report.spill_bytes for report in built.reports] == [0]


def test_a_product_of_casts_tells_the_type_it_is_multiplied_in() -> None:
    for name, wanted in (("half", DType.FLOAT16), ("half_in", DType.FLOAT16), ("plain", None)):
        task = trace(_source(name), "/tmp/casts.py", TracePolicy())
        assert isinstance(task, Task)
        (loop,) = lower(task.graph, lowering=Lowering(products=True)).loops
        product = contraction_of(loop)
        assert product is not None
        assert product.precision is (wanted or DType.FLOAT32)
        assert product.left.access is not None


def test_a_tile_without_needed_sums_adds_nothing(small_device: Hardware) -> None:
    kernel = _repertoire("triangle", small_device).draft(FORM).kernel
    assert "(column0 + COLUMNS - 1) * 1 + row0 * -1 + -1 >= 0 ? " in kernel
    assert ">= 0 ? " not in _repertoire("plain", small_device).draft(FORM).kernel
