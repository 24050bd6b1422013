"""A plan that reads, writes or hands out what it must not is refused before it is text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.cpp import CppEmitter
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir import Loop, Program
from kernelwright.tools.codegen.library import assemble, prepare
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    PlaybookRepertoire,
    fastest,
    in_form,
    repertoire_for,
)
from kernelwright.tools.codegen.library.plan_check import Part, PlanError, Preparation, check_plan
from kernelwright.tools.codegen.library.statements import declared, statement
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

Check = Callable[..., Any]

SOURCE = """
// tune: WIDE in 1, 2
extern "C" __global__ void __launch_bounds__(64 * (WIDE)) turn(const float* x, float* y) {}
extern "C" __global__ void by_map(const __grid_constant__ kw::TensorMap to, const float* x) {}
extern "C" __global__ void both(const float* __restrict__ x, const float* w, float* y, long n) {}
"""
TURNED = Preparation(
    ('turned = empty((4,), dtype="float32")', 'launch("turn", args=(w, turned))'), ("turned",)
)
KEPT_IN = " = prepared["
KEPT = 'turned = prepared["turned"]'
Y = 'y = empty((4,), dtype="float32")'
BOTH = 'launch("both", grid=WIDE, args=(x, turned, y, 4))'


def kernels(*lines: str, stores: tuple[str, ...] = ()) -> Part:
    return Part(lines, stores, is_kernels=True)


def own(line: str) -> Part:
    return Part((line,))


def follow(*call: Part, prepare: tuple[Preparation, ...] = (TURNED,)) -> None:
    weights = (("w", "layer.weight"), ("seen", "seen"))
    check_plan(("x",), weights, prepare, call, (SOURCE,))


RIGHT = {
    "a product of what is packed once": (
        kernels(KEPT, Y, BOTH, stores=("y",)), own("return y"),
    ),
    "pieces of one buffer": (
        kernels(Y, 'launch("turn", args=(x, y))', stores=("y",)),
        kernels('launch("turn", args=(w, y))', stores=("y",)), own("return y.reshape((2, 2))"),
    ),
    "what the library makes, laid out anew": (
        own("z = aten.mm(x, w.permute((1, 0)))"), own("z = z.contiguous()"),
        kernels(Y, 'launch("turn", args=(z, y))', stores=("y",)), own("return y"),
    ),
    "a buffer that the forward changes": (
        kernels(Y, 'launch("turn", args=(seen, y))', stores=("y",)), own('update("seen", y)'),
        own("return (y, x)"),
    ),
    "a module's own weight": (own("v = w.narrow(0, 0, 2)"), own("return (w, v, x.mT)")),
    "a copy of what is kept": (kernels(KEPT), own("z = aten.clone(turned)"), own("return z")),
    "work memory of two launches": (
        kernels(KEPT, Y, "p = empty_like(y)", 'launch("turn", args=(x, p))', BOTH, stores=("y",)),
        kernels("p = empty_like(y)", 'launch("turn", args=(y, p))'), own("return y"),
    ),
    "through a tensor map": (
        kernels(Y, 'launch("by_map", args=(tensor_map(y, box=(2, 2)), x))', stores=("y",)),
        own("return y"),
    ),
    "a loop over parts": (
        kernels(Y, 'for i in range(2): launch("both", args=(x.select(0, i), w, y, i))',
                stores=("y",)),
        own("return y"),
    ),
    "a function of another language": (
        kernels(Y, 'launch("unknown", args=(x, y))', stores=("y",)), own("return y"),
    ),
    "an allocation by the shape of one that is empty": (
        kernels(Y, "z = empty(y.shape)", 'launch("turn", args=(x, y))',
                'launch("turn", args=(y, z))', stores=("y", "z")),
        own("return (y, z)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_plans_pass(name: str) -> None:
    follow(*RIGHT[name])


WRONG: Mapping[str, tuple[tuple[Part, ...], str]] = {
    "a result that nothing allocates": (
        (kernels('launch("turn", args=(x, y))', stores=("y",)), own("return y")),
        r"in forward, `launch\(.turn., args=\(x, y\)\)` reads y, which is not bound before",
    ),
    "an allocation behind its launch": (
        (kernels('launch("turn", args=(x, y))', Y, stores=("y",)),), "reads y, which is not bound",
    ),
    "a name of another node": ((own("return z"),), "`return z` reads z, which is not bound"),
    "what prepare does not keep": (
        (kernels('p = prepared["other"]'),), r'reads prepared\["other"\], which is not bound',
    ),
    "memory that nothing has written": (
        (kernels(Y, 'launch("both", args=(y, w, y, 4))', stores=("y",)),), "reads y, to which",
    ),
    "empty memory in a call of the library": (
        (kernels(Y), own("z = aten.mm(x, y.permute((1, 0)))")), "reads y, to which nothing was",
    ),
    "empty memory as a result": ((kernels(Y), own("return y.reshape((2, 2))")), "reads y, to wh"),
    "an update by empty memory": ((kernels(Y), own('update("seen", y)')), "reads y, to which"),
    "a step that stores nothing": (
        (kernels(Y, stores=("y",)),), r"`y = empty\(.*` ends a step that does not store y",
    ),
    "a kernel that writes what was made once": (
        (kernels(KEPT, 'launch("turn", args=(x, turned))'),),
        r'writes to turned, which is prepared\["turned"\] or a view of it',
    ),
    "a kernel that writes a view of it": (
        (kernels(KEPT), own("v = turned.narrow(0, 0, 2)"), own("u = aten.view(v, [2])"),
         kernels('launch("turn", args=(x, u))')), r"writes to u, which is prepared",
    ),
    "another piece of what was taken for the whole": (
        (kernels('cat = prepared["turned"]'),
         kernels('launch("turn", args=(x, cat))', stores=("cat",))), "writes to cat, which is prep",
    ),
    "a piece made once behind another one": (
        (kernels("cat = empty((8,))", 'launch("turn", args=(x, cat))', stores=("cat",)),
         kernels(KEPT, "cat = turned")), "`cat = turned` binds cat anew, and nothing has read",
    ),
    "a map by which a kernel stores there": (
        (kernels(KEPT, 'launch("by_map", args=(tensor_map(turned, box=(2, 2)), x))',
                 stores=("turned",)),), "writes to turned, which is prepared",
    ),
    "a kernel that writes a weight": (
        (kernels('launch("turn", args=(x, w))'),), r'writes to w, which is weights\["layer.weight"',
    ),
    "a kernel that writes an input": (
        (kernels('launch("turn", args=(w, x.permute((1, 0))))'),), "writes to x, which is x or",
    ),
    "an update of what is packed": (
        (own('update("layer.weight", x)'),), "of which prepare made something",
    ),
    "an update by a kernel's lines": (
        (kernels('update("seen", x)'),), "which the program does not",
    ),
    "a result that was made once": (
        (kernels(KEPT), own("return turned")), r'hands turned out, which is prepared\["turned"\]',
    ),
    "a view of one among others": (
        (kernels(KEPT, "y = turned if WIDE > 1 else x"), own("z = y.contiguous()"),
         own("return (x, z.mT)")), "hands z out, which is prepared",
    ),
    "one that a branch returns": (
        (kernels(KEPT), own("if WIDE > 1: return turned")), "hands turned out, which is prepared",
    ),
    "a part of a tuple of views": (
        (kernels(KEPT), own("a, b = turned.chunk(2)"), own("return b")), "hands b out, which is",
    ),
    "a weight for a kernel's result": (
        (kernels("y = w.permute((1, 0))"), own("return y")),
        r'hands y out, which is weights\["layer.weight"\] or a view of it',
    ),
    "an input for a kernel's result": (
        (kernels("y = x"), own("v = y.select(0, 0)"), own("return v")), "hands v out, which is x",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_plans_are_refused_by_their_statement(name: str) -> None:
    call, words = WRONG[name]
    with pytest.raises(PlanError, match="cannot be assembled") as refused:
        follow(*call)
    assert refused.match(words)


@pytest.mark.parametrize(
    ("lines", "kept", "words"),
    [
        (('launch("turn", args=(w, t))',), (), "in prepare, .* reads t, which is not bound"),
        (("t = empty((4,))", 'launch("turn", args=(x, t))'), ("t",), "in prepare, .* reads x,"),
        (('t = prepared["turned"]',), ("t",), "in prepare, .* reads prepared"),
        (('launch("turn", args=(seen, w))',), (), "in prepare, .* writes to w, which is weights"),
        (("t = empty((4,))",), ("t",), "in prepare, `return t` reads t, to which nothing was"),
        ((), ("t",), "in prepare, `return t` reads t, which is not bound"),
    ],
)
def test_what_prepare_does_is_followed_too(
    lines: tuple[str, ...], kept: tuple[str, ...], words: str
) -> None:
    with pytest.raises(PlanError, match=words):
        follow(own("return x"), prepare=(TURNED, Preparation(lines, kept)))


HEAD = """
import torch
from torch import nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
"""
MODULES = {
    "convolutions and norms, channels last": """
        self.net = nn.Sequential(
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 16, 1))
        self.eval()
    def forward(self, x):
        return torch.cat([x, self.net(x)], 1)
def get_inputs():
    return [torch.randn(2, 16, 12, 12).to(memory_format=torch.channels_last)]
""",
    "attention": """
        self.qkv, self.out = nn.Linear(128, 384).half(), nn.Linear(128, 128).half()
    def forward(self, x):
        q, k, v = (y.view(2, 64, 2, 64).transpose(1, 2) for y in self.qkv(x).split(128, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(2, 64, 128))
def get_inputs():
    return [torch.randn(2, 64, 128).half()]
""",
    "a transformer layer": """
        self.layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    def forward(self, x):
        return self.layer(x)
def get_inputs():
    return [torch.randn(2, 64, 128)]
""",
    "recurrent layers": """
        self.layers = nn.LSTM(64, 64, 2)
    def forward(self, x):
        y, (h, c) = self.layers(x)
        return y[-1], h, c
def get_inputs():
    return [torch.randn(16, 4, 64)]
""",
    "batch norm in training": """
        self.convolve, self.norm = nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16)
    def forward(self, x):
        return torch.relu(self.norm(self.convolve(x)))
def get_inputs():
    return [torch.randn(4, 8, 12, 12)]
""",
    "weights beside inputs": """
        self.w, self.v = nn.Parameter(torch.randn(1, 1, 64)), nn.Parameter(torch.randn(64, 64))
        self.layer = nn.Linear(64, 128)
        self.register_buffer("seen", torch.zeros(64))
    def forward(self, x):
        y = torch.cat([self.w.expand(4, 1, 64), x @ self.v.mT, x], 1)
        self.seen.mul_(0.9).add_(y.mean((0, 1)))
        return F.gelu(self.layer(y)), torch.cat([self.v.mT, self.v], 0), self.v.t(), self.seen, x
def get_inputs():
    return [torch.randn(4, 7, 64)]
""",
    "a layer that packs its weight": """
        self.layer = nn.Linear(2048, 1024)
    def forward(self, x):
        return F.relu(self.layer(x))
def get_inputs():
    return [torch.randn(256, 2048)]
""",
}
EXAMPLES = sorted((Path(__file__).parents[4] / "examples").glob("*.py"))
SOURCES = {name: HEAD + text for name, text in MODULES.items()}
SOURCES |= {path.stem: path.read_text() for path in EXAMPLES}
QUICK = {*MODULES, "group_norm_swish", "swiglu"}


def traced(text: str) -> Task:
    task = trace(text, "/tmp/followed.py", TracePolicy())
    assert isinstance(task, Task), task
    return task


def first_round(repertoire: PlaybookRepertoire) -> list[dict[str, str]]:
    """Every form at its fastest, and every option of its loops beside the others at theirs."""
    options = repertoire.options()
    ways = [fastest(options)]
    for option in options:
        form = option.strategy.name if option.loop == FORM else option.form
        ways.append(in_form(options, ({FORM: form} if form else ways[0]) | option.change))
    return [*{frozenset(way.items()): way for way in ways}.values()]


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.exhaustive) for n in SOURCES],
)
def test_drafts_of_the_first_round_pass(name: str) -> None:
    task = traced(SOURCES[name])
    for device in ("generic_cpu", "H200"):
        repertoire = repertoire_for(task, hardware_profile(device))
        for way in first_round(repertoire):
            assert "\n    return " in repertoire.draft(way).plan


def test_a_piece_of_a_concatenation_made_once_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As drafts were before what is laid out once had to be a whole buffer."""
    text = HEAD + MODULES["weights beside inputs"]
    monkeypatch.setattr(prepare, "_lays_out_weights", _reads_weights_alone)
    repertoire = repertoire_for(traced(text), hardware_profile("generic_cpu"))
    with pytest.raises(PlanError, match="writes to cat, which is prepared"):
        repertoire.draft({})


def _reads_weights_alone(program: Program, loop: Loop, fixed: set[str]) -> bool:
    reads = {stmt.access.buffer for stmt in loop.body if stmt.access is not None}
    return not loop.inner and reads <= fixed


def test_an_allocation_that_is_lost_is_refused(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As own attention lost its result's."""
    q = torch.randn(1, 2, 64, 64)
    program = check(F.scaled_dot_product_attention, q, q, q).program
    hardware, emitter = hardware_profile("H200"), CudaEmitter()
    (call,) = program.nodes
    choices = {call.name: emitter.strategies(call, hardware)[0]}
    assemble.assemble(program, emitter, choices, hardware)
    monkeypatch.setattr(assemble, "_allocation_lines", lambda buffer: f"{buffer.name}_ = 0")
    with pytest.raises(PlanError, match=f"reads {call.name}, which is not bound before"):
        assemble.assemble(program, emitter, choices, hardware)


def test_a_kernel_that_may_write_to_a_weight_is_refused(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = check(torch.relu, torch.randn(4, 6)).program
    hardware, emitter = hardware_profile("generic_cpu"), CppEmitter()
    emit = emitter.emit

    def careless(*args: Any) -> Any:
        found = emit(*args)
        return found.model_copy(update={"source": found.source.replace("const float", "float")})

    monkeypatch.setattr(emitter, "emit", careless)
    with pytest.raises(PlanError, match="writes to x0, which is x0 or a view of it"):
        assemble.assemble(program, emitter, {}, hardware)


@pytest.mark.parametrize("strategy", ["split_mma", "split_wgmma", "streamed_wgmma"])
def test_a_packed_weight_is_const_to_the_product(strategy: str) -> None:
    text = HEAD + MODULES["a layer that packs its weight"]
    repertoire = repertoire_for(traced(text), hardware_profile("H200"))
    loops = {one.loop for one in repertoire.options() if one.strategy.name == strategy}
    draft = repertoire.draft({FORM: "products", **dict.fromkeys(loops, strategy)})
    kept = [line.partition(" = ")[0].strip() for line in draft.plan.splitlines() if KEPT_IN in line]
    assert kept
    call = draft.plan.partition("def forward")[2]
    may_write = declared(draft.kernel).functions
    given = [
        (names, may)
        for line in call.splitlines()
        if "launch(" in line
        for launch in statement(line.strip()).launches
        for names, may in zip(launch.arguments, may_write[launch.function], strict=True)
    ]
    assert {may for names, may in given if set(names) & {*kept}} == {False}
