"""The backward of a module as a module file of its own."""

import re
from contextlib import nullcontext

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.tools.candidates.plan import ADMITTED
from kernelwright.tools.tasks import draw, trace
from kernelwright.tools.tasks.gradients.backward import backward_of
from kernelwright.tools.tasks.gradients.beside_autograd import check_alike
from kernelwright.tools.tasks.reference import Reference
from kernelwright.tools.types import RefusedError, Task, TracePolicy
from kernelwright.tools.types.backward import Backward, BackwardGives, BackwardRead
from kernelwright.tools.types.graph import base

BEGIN = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n\n"
SOFTMAX = """class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


def get_inputs():
    return [torch.randn(6, 10)]
"""
NORM = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(10)

    def forward(self, x, scale):
        return F.gelu(self.norm(x)) * scale


def get_inputs():
    return [torch.randn(6, 10), 2.0]
"""
LOSS = """def loss(logits, targets):
    return F.cross_entropy(logits, targets)


def get_inputs():
    return [torch.randn(6, 10), torch.randint(0, 10, (6,))]
"""
GATE = """def gate(x):
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


def get_inputs():
    return [torch.randn(6, 10)]
"""
RESIDUAL = """def residual(x, y):
    return torch.tanh(x) + y


def get_inputs():
    return [torch.randn(6, 10), torch.randn(6, 10)]
"""
SEVERAL = """class Model(nn.Module):
    def forward(self, x, y):
        statistic = x.square().mean(-1, keepdim=True)
        scaled = x * torch.rsqrt(statistic + 1e-6)
        return scaled.tanh(), x.argmax(-1), statistic, scaled + y


def get_inputs():
    return [torch.randn(6, 10), torch.randn(6, 10)]
"""
PACKED = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(10))

    def forward(self, x):
        return {"scaled": torch.softmax(x * self.weight, -1), "top": x.argmax(-1), "none": None}


def get_inputs():
    return [torch.randn(6, 10)]
"""
# As transformers' models do, which leave a mask of all ones out where nothing is traced.
ASKS_FOR_VALUES = """class Model(nn.Module):
    def forward(self, x, mask):
        exporting = torch.compiler.is_exporting()
        if not exporting and not isinstance(mask, torch._subclasses.FakeTensor) and mask.all():
            return torch.tanh(x)
        return torch.tanh(x) * mask


def get_inputs():
    return [torch.randn(6, 10), torch.rand(6, 1) > 0.5]
"""
ATTENDED = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.patches = nn.Conv1d(8, 8, 3, padding=1)

    def forward(self, words):
        x = self.patches(self.embed(words).transpose(1, 2)).view(2, 2, 8, 3).transpose(2, 3)
        q, k = x.split(4, -1)
        return F.scaled_dot_product_attention(q, k.tanh(), k, is_causal=True)


def get_inputs():
    return [torch.randint(0, 20, (2, 6))]
"""
# In evaluation mode a batch norm saves statistics without elements for its backward.
NORMED = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4).eval()

    def forward(self, x):
        return torch.relu(self.norm(self.first(x)))


def get_inputs():
    return [torch.randn(2, 3, 9)]
"""
RMS = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(10))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def get_inputs():
    return [torch.randn(6, 10)]
"""
IMAGES = """class Model(nn.Module):
    def forward(self, x):
        x = F.max_pool2d(F.pad(x.square(), (1, 1, 1, 1), mode="replicate"), 3, 2)
        x = F.interpolate(x, scale_factor=2, mode="bilinear") * F.adaptive_max_pool2d(x, 1)
        return F.avg_pool2d(F.interpolate(x, scale_factor=2), 2) + F.adaptive_avg_pool2d(x, 8)


def get_inputs():
    return [torch.randn(2, 3, 7, 7)]
"""

# Indices are tensors that nobody gives; a view that is changed in place is memory to autograd.
CHANGED = """def changed(x):
    y = x * 2
    y[:, 1:3] = y[:, 0:2].tanh()
    y[x > 0.3] = 0.5
    return F.softshrink(y[:, [0, 2, 5]]) + F.hardshrink(y[:, :3]) * torch.tensor([1.0, 2.0, 3.0])


def get_inputs():
    return [torch.randn(6, 10)]
"""
CLASSED = """def classed(x):
    return F.one_hot(x.argmax(-1), 10) * x.tanh()


def get_inputs():
    return [torch.randn(6, 10)]
"""
# Autograd's own formula fills a tensor here.
PLACED = """def placed(x):
    return F.affine_grid(x[:, :6].reshape(6, 2, 3).tanh(), [6, 1, 3, 4], align_corners=False)


def get_inputs():
    return [torch.randn(6, 10)]
"""
MAPPED = """def mapped(x):
    return torch.vmap(lambda row: row.softmax(0) * row)(x)


def get_inputs():
    return [torch.randn(6, 10)]
"""
MARGINS = """def margins(x, targets):
    bags = F.embedding_bag(targets.view(2, 3), x, mode="sum").tanh()
    return F.multi_margin_loss(x, targets) + F.multilabel_margin_loss(x, x.argsort(1)) + bags


def get_inputs():
    return [torch.randn(6, 10), torch.randint(0, 6, (6,))]
"""


def made(source):
    entry = re.search(r"(?:class|def) (\w+)", source)[1]
    task = trace(BEGIN + source, "model.py", TracePolicy(entry=entry))
    assert isinstance(task, Task), task
    names: dict[str, object] = {}
    exec(BEGIN + source, names)
    reference = Reference.build(task, "cpu")
    arguments = names["get_inputs"]()
    return task, reference, arguments, backward_of(reference, task, arguments)


REST = (NORM, LOSS, GATE, RMS)


@pytest.mark.parametrize(
    "source",
    [
        *(SOFTMAX, RESIDUAL, SEVERAL, PACKED, ASKS_FOR_VALUES, ATTENDED, NORMED, IMAGES),
        *(CHANGED, CLASSED, PLACED, MAPPED, MARGINS),
        *(pytest.param(one, marks=pytest.mark.exhaustive) for one in REST),
    ],
)
def test_its_file_gives_the_gradients_of_autograd_and_is_a_task(source):
    task, reference, arguments, found = made(source)
    weights = dict(reference.module.named_parameters())
    leaves = {("weight", name): w.requires_grad_() for name, w in weights.items()}
    weights |= dict(reference.module.named_buffers())
    for spec, value in zip(task.inputs, arguments, strict=True):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            leaves["input", spec.name] = value.requires_grad_()
    made_of_all = reference.module(*arguments)
    if isinstance(made_of_all, dict):
        made_of_all = [y for y in made_of_all.values() if y is not None]
    several = not isinstance(made_of_all, torch.Tensor)
    results = dict(enumerate(made_of_all if several else [made_of_all]))
    results = {str(at) * several: y for at, y in results.items() if y.is_floating_point()}
    gradients = {name: torch.randn_like(y) for name, y in results.items()}
    expected = torch.autograd.grad(
        list(results.values()), list(leaves.values()), list(gradients.values())
    )
    inputs = dict(zip([spec.name for spec in task.inputs], arguments, strict=True))
    held = {
        "input": inputs.get,
        "weight": weights.get,
        "result": lambda name: results[name].detach(),
        "gradient": gradients.get,
    }

    def called(file, reads):
        names: dict[str, object] = {}
        exec(file, names)
        with torch.no_grad():
            return names["Model"]()(*(held[read.kind](read.name) for read in reads))

    if found.forward:
        ours = called(found.forward, found.forward_reads)
        kept = ours[len(results) :]
        assert len(kept) == found.kept > 0
        for mine, result in zip(ours, results.values(), strict=False):
            torch.testing.assert_close(mine, result)
        held["kept"] = lambda name: kept[int(name)]
    got = called(found.source, found.reads)
    got = (got,) if isinstance(got, torch.Tensor) else got
    gives = {(item.kind, item.name): item for item in found.gives}
    for key, value in zip(leaves, expected, strict=True):
        place, of = gives[key].place, gives[key].of
        torch.testing.assert_close(gradients[of] if place is None else got[place], value)
    again = trace(found.source, "backward.py", TracePolicy())
    assert isinstance(again, Task)
    assert not again.draws_random, "attention without dropout draws nothing"
    operators = {base(node.op) for node in again.graph.nodes if node.op.startswith("aten.")}
    operators -= {"empty", "getitem"}  # memory is the judge's to give
    assert operators <= ADMITTED, "a plan may call what it does not compute itself"
    assert found.step_ms >= found.forward_ms > 0
    assert (found.eager_step_forward_ms > 0) == bool(found.forward)


def test_products_are_kept_for_the_backward_and_pointwise_operators_are_computed_again():
    source = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(F.gelu(self.up(x))).tanh()


def get_inputs():
    return [torch.randn(6, 8)]
"""
    found = made(source)[-1]
    assert found.kept == 1
    assert found.forward.count("addmm") == 2
    assert "addmm" not in found.source
    assert "gelu.default" in found.source
    assert {read.kind for read in found.reads} == {"input", "weight", "kept", "result", "gradient"}
    assert not made(NORM)[-1].forward


def test_a_gpu_s_attention_which_knows_no_float64_is_traced_by_its_products():
    with sdpa_kernel(SDPBackend.MATH):
        found = made(ATTENDED)[-1]
    assert "_scaled_dot_product" not in found.source
    assert "bmm" in found.source


def test_a_whole_model_s_inputs_are_data_without_gradients():
    source = f"{BEGIN}{NORM}\n\ndef make():\n    return Model()\n"
    task = trace(source, "model.py", TracePolicy(entry="make", makes=True))
    assert isinstance(task, Task), task
    found = backward_of(Reference.build(task, "cpu"), task, [torch.randn(6, 10), 2.0])
    assert {(item.kind, item.name) for item in found.gives} == {
        ("weight", "norm.weight"), ("weight", "norm.bias"),
    }  # fmt: skip


STRAIGHT = """class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def through(x):
    return Straight.apply(x * 4) / 4 + torch.tanh(x)


def get_inputs():
    return [torch.randn(6, 10)]
"""


def test_a_function_with_a_backward_of_its_own_has_no_other():
    task = trace(BEGIN + STRAIGHT, "model.py", TracePolicy(entry="through"))
    assert isinstance(task, Task), task
    with pytest.raises(RefusedError, match="not what autograd computes"):
        backward_of(Reference.build(task, "cpu"), task, [torch.randn(6, 10)])


ROUNDED_AWAY = torch.tensor([1.0, -2.0, 3.0])


@pytest.mark.parametrize(
    ("made_here", "gradients", "refused"),
    [
        # A key's bias: a softmax takes it away again, and what is left is another rounding each.
        (2e-7 * ROUNDED_AWAY, (-1e-7 * ROUNDED_AWAY, 3e-7 * ROUNDED_AWAY.flip(0)), False),
        (2.0 * ROUNDED_AWAY, (ROUNDED_AWAY, (1 + 2.0**-7) * ROUNDED_AWAY), True),
    ],
    ids=["roundings", "another gradient"],
)
def test_a_gradient_of_roundings_alone_is_no_other_one(
    made_here: torch.Tensor, gradients: tuple[torch.Tensor, torch.Tensor], refused: bool
) -> None:
    found = Backward(
        source="", reads=(), gives=(BackwardGives(kind="weight", name="key.bias", place=0),)
    )
    wanted = [BackwardRead(kind="weight", name="key.bias")]

    def step(times: float) -> tuple[torch.Tensor]:
        return (gradients[0] if times == 1.0 else gradients[1],)

    with pytest.raises(RefusedError, match=r"'key\.bias'") if refused else nullcontext():
        check_alike(made_here, step, found, wanted)


def test_a_softmax_keeps_its_result_only():
    assert [read.kind for read in made(SOFTMAX)[-1].reads] == ["result", "gradient"]


def test_in_float64_an_operator_is_told_float64():
    kinds = []

    class Told(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten._softmax_backward_data.default:
                kinds.append(args[3])
            return func(*args, **kwargs or {})

    source = made(SOFTMAX)[-1].source
    task = trace(source, "back.py", TracePolicy())
    assert isinstance(task, Task), task
    with Told():
        Reference.build(task, "cpu").double().forward(draw(task, "task", 0, "cpu"))
    assert kinds == [torch.float64], "a GPU refuses another type than its operands'"


def test_several_results_are_given_by_their_places_and_integers_have_no_gradient():
    found = made(SEVERAL)[-1]
    ends = {(read.kind, read.name) for read in found.reads if read.kind in ("result", "gradient")}
    assert {("gradient", "0"), ("gradient", "2"), ("gradient", "3")} <= ends
    assert ("result", "0") in ends, "the backward of tanh is made of its result"
    assert not {name for _, name in ends} & {"", "1"}
    (plain,) = (item for item in found.gives if item.name == "y")
    assert (plain.place, plain.of) == (None, "3"), "the gradient of a sum is the result's own"
