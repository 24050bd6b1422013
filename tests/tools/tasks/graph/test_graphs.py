"""A typed graph says exactly what the module does: interpreted, it gives the module's results."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernelwright.tools.tasks import Reference, draw
from kernelwright.tools.types import Graph, Task

Model = Callable[..., Task]
RunGraph = Callable[..., tuple[list[torch.Tensor], dict[str, torch.Tensor]]]

IMAGES = "[torch.randn(2, 8, 6, 6)]"
TOKENS = "[torch.randn(2, 5, 16)]"

ATTENTION = """
def forward(self, q):
    n = q.shape[1]
    scores = q @ q.transpose(1, 2) / q.shape[-1] ** 0.5
    hidden = torch.triu(torch.ones(n, n, dtype=torch.bool, device=q.device), 1)
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ q
"""
IN_PLACE = """
def forward(self, x):
    y = x * 2
    y.add_(1).relu_()
    y[:, 0] = 0
    return y
"""
SHAPES = """
def forward(self, x):
    if x.shape[0] > 4:
        x = x * 2
    for i in range(x.shape[1] // 8):
        x = x + i
    return x
"""
ACTIVATIONS = """
def forward(self, x):
    kinds = (F.gelu, F.silu, F.mish, F.hardswish, F.hardsigmoid, F.elu, F.selu, F.celu, F.softplus,
             F.softsign, F.tanhshrink, F.hardshrink, F.softshrink, F.leaky_relu, F.relu6,
             F.logsigmoid, F.hardtanh, F.relu, torch.tanh, torch.erf)
    return sum(kind(x) for kind in kinds) + self.slope(x) + F.gelu(x, approximate="tanh")
"""
REDUCTIONS = """
def forward(self, x):
    return (x.norm(), x.norm(p=1, dim=1), x.prod(-1), (x > 0).all(-1), x.logsumexp(-1),
            torch.var_mean(x, -1), x.std(), x.mean(0), x.mean(), x.max(), x.min(-1), x.argmax(-1),
            F.normalize(x), x.cumsum(0), x.amin(0))
"""
LOSSES = """
def forward(self, p, t):
    return (F.mse_loss(p, t), F.l1_loss(p, t), F.huber_loss(p, t), F.smooth_l1_loss(p, t),
            F.soft_margin_loss(p, t.sign()), F.hinge_embedding_loss(p, t.sign()),
            F.triplet_margin_loss(p, t, t * 2), F.binary_cross_entropy_with_logits(p, t.sigmoid()))
"""
BAKED_IN = """
def forward(self, x):
    table = torch.tensor([1.0, 2.0, 3.0, float("-inf")]).clamp(-9).repeat(8)
    return x * table + torch.tensor(3.0) + self.scale * self.ramp + self.kept[0]
"""
COUNTER = """
def forward(self, x):
    self.seen += 1
    self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)
    return x - self.average
"""

CASES: dict[str, tuple[str, ...]] = {
    "rows picked by one number": (
        "def forward(self, x, i): return x[i] + x[:, i - 3, None] * x[i.item()]",
        "[torch.randn(6, 6), torch.tensor(4)]",
    ),
    "log softmax": ("def forward(self, x): return F.log_softmax(x, 0)",),
    "half softmax": ("def forward(self, x): return x.softmax(-1)", "[torch.randn(4, 9).half()]"),
    "masked softmax": (
        "def forward(self, x, m): return torch.softmax(x.masked_fill(m, float('-inf')), -1)",
        "[torch.randn(8, 32), torch.rand(8, 32) > 0.7]",
    ),
    "attention": (ATTENTION, "[torch.randn(2, 16, 8)]"),
    "sdpa": (
        "def forward(self, q): return F.scaled_dot_product_attention(q, q, q, is_causal=True)",
        "[torch.randn(2, 4, 16, 8)]",
    ),
    "layer norm in bfloat16": (
        "def forward(self, x): return self.norm(x)",
        "[torch.randn(8, 32).bfloat16()]",
        "self.norm = nn.LayerNorm(32).bfloat16()",
    ),
    "group norm": (
        "def forward(self, x): return self.n(x)",
        IMAGES,
        "self.n = nn.GroupNorm(2, 8)",
    ),
    "batch norm": (
        "def forward(self, x): return self.n(x)",
        IMAGES,
        "self.n = nn.BatchNorm2d(8)",
    ),
    "batch norm in evaluation": (
        "def forward(self, x): return self.n(x)",
        IMAGES,
        "self.n = nn.BatchNorm2d(8).eval()",
    ),
    "instance norm": (
        "def forward(self, x): return self.n(x)",
        IMAGES,
        "self.n = nn.InstanceNorm2d(8, affine=True, track_running_stats=True)",
    ),
    "rms norm": ("def forward(self, x): return F.rms_norm(x, (32,))",),
    "nested tuple": (
        "def forward(self, x):\n    a, b = x.chunk(2, -1)\n"
        "    return a * b.sigmoid(), (a, b.sum())",
    ),
    "split": ("def forward(self, x): return torch.cat(x.split([8, 8, 16], -1)[::-1], -1)",),
    "in place": (IN_PLACE,),
    "shapes": (SHAPES,),
    "activations": (ACTIVATIONS, "[torch.randn(8, 32)]", "self.slope = nn.PReLU(32)"),
    "reductions": (REDUCTIONS,),
    "half reductions": (
        "def forward(self, x): return x.mean(-1), x.mean(), x.std(0), x.sum()",
        "[torch.randn(8, 32).half()]",
    ),
    "losses": (LOSSES, "[torch.randn(8, 4), torch.randn(8, 4)]"),
    "cross entropy": (
        "def forward(self, p, t): return F.cross_entropy(p, t, label_smoothing=0.1)",
        "[torch.randn(8, 4, 3), torch.randint(0, 4, (8, 3))]",
    ),
    "integers": (
        "def forward(self, x): return x * 2, x // 3, x % 5, x > 3, x.sum()",
        "[torch.randint(0, 50, (4, 8), dtype=torch.int32)]",
    ),
    "embedding bag": (
        "def forward(self, i, o): return self.e(i, o)",
        "[torch.randint(0, 100, (64,)), torch.arange(0, 64, 8)]",
        "self.e = nn.EmbeddingBag(100, 16, mode='mean')",
    ),
    "baked in": (
        BAKED_IN,
        "[torch.randn(8, 32)]",
        "self.scale = torch.tensor(2.0); self.ramp = torch.arange(32.0); self.kept = [self.ramp]",
    ),
    "buffers": (
        COUNTER,
        "[torch.randn(8, 32)]",
        "self.register_buffer('seen', torch.zeros((), dtype=torch.long))\n"
        "self.register_buffer('average', torch.zeros(32), persistent=False)",
    ),
    "rebound buffer": (
        "def forward(self, x):\n    self.ema = self.ema * 0.9 + x.mean(0)\n    return x - self.ema",
        "[torch.randn(8, 32)]",
        "self.register_buffer('ema', torch.zeros(32))",
    ),
    "attribute set on the way": (
        "def forward(self, x):\n    self.last = x * 2\n    return self.last + 1",
    ),
    "autocast": (
        "def forward(self, x):\n    with torch.autocast('cpu', dtype=torch.bfloat16):\n"
        "        return self.linear(x)",
        "[torch.randn(8, 32)]",
        "self.linear = nn.Linear(32, 8)",
    ),
    "gradient inside": (
        "def forward(self, x):\n    with torch.enable_grad():\n"
        "        y = x.detach().requires_grad_()\n"
        "        return torch.autograd.grad((y ** 2).sum(), y)[0]",
    ),
    "lstm": (
        "def forward(self, x): return self.l(x)",
        "[torch.randn(5, 3, 8)]",
        "self.l = nn.LSTM(8, 16, 2)",
    ),
    "bidirectional gru": (
        "def forward(self, x): return self.l(x)",
        "[torch.randn(3, 200, 8)]",
        "self.l = nn.GRU(8, 16, 2, batch_first=True, bidirectional=True)",
    ),
    "transformer": (
        "def forward(self, x): return self.l(x)",
        TOKENS,
        "self.l = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)",
    ),
    "tied weights": (
        "def forward(self, i): return self.e(i) @ self.l.weight.T",
        "[torch.randint(0, 10, (4,))]",
        "self.e = nn.Embedding(10, 8)\nself.l = nn.Linear(8, 10)\nself.l.weight = self.e.weight",
    ),
    "weight norm": (
        "def forward(self, x): return self.l(x)",
        "[torch.randn(8, 32)]",
        "self.l = nn.utils.parametrizations.weight_norm(nn.Linear(32, 8))",
    ),
    "conv net": (
        "def forward(self, x): return self.n(x)",
        "[torch.randn(2, 3, 8, 8)]",
        "self.n = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True),\n"
        "    nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 5))",
    ),
    "resampling": (
        "def forward(self, x): return (F.interpolate(x, scale_factor=2), F.pixel_shuffle(x, 2),\n"
        "    F.interpolate(x, size=(5, 5), mode='bilinear'), F.pad(x, (1,) * 4, mode='reflect'))",
        IMAGES,
    ),
    "scatter and gather": (
        "def forward(self, x, i): return torch.zeros(8, 32).scatter_add(1, i, x), x.gather(1, i)",
        "[torch.randn(8, 32), torch.randint(0, 32, (8, 32))]",
    ),
    "arguments that are no tensors": (
        "def forward(self, x, k, flag, mode=None): return x * k if flag else x",
        "[torch.randn(4, 4), 3, True, None]",
    ),
    "transposed input": ("def forward(self, x): return x + 1", "[torch.randn(4, 8).t()]"),
    "constructor that looks at values": (
        "def forward(self, x): return x * self.k",
        "[torch.randn(4, 8)]",
        "self.k = torch.rand(3).sum().item()",
    ),
    "inputs from numpy": (
        "def forward(self, x): return x * 2",
        "[torch.from_numpy(__import__('numpy').random.rand(4, 4))]",
    ),
}


# Of each group that is broken down alike some are tried every time, all by `make test-all`.
SWEPT = (
    "half softmax", "group norm", "instance norm", "shapes", "activations", "half reductions",
    "losses", "embedding bag", "rebound buffer", "bidirectional gru", "transformer", "weight norm",
    "resampling", "batch norm in evaluation", "cross entropy",
)  # fmt: skip


@pytest.fixture(scope="module")
def model(traced_once: Model) -> Model:
    """A case is traced once for all tests here."""
    return traced_once


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.exhaustive if n in SWEPT else ()) for n in CASES],
)
def test_the_graph_computes_what_the_module_computes(
    name: str, model: Model, run_graph: RunGraph
) -> None:
    task = model(*CASES[name])
    args = draw(task, "task", 3, "cpu")
    reference = Reference.build(task, "cpu")
    got, updated = run_graph(task.graph, args, reference.weights())
    expected = reference.forward(args)
    for mine, theirs, spec in zip(got, expected, task.outputs, strict=True):
        assert tuple(theirs.shape) == spec.shape
        assert str(theirs.dtype) == f"torch.{spec.dtype}"
        torch.testing.assert_close(mine, theirs)
    for target, value in updated.items():
        torch.testing.assert_close(value, reference.weights()[target])


@pytest.mark.parametrize("name", ["baked in", "buffers", "nested tuple", "masked softmax"])
def test_a_task_survives_json(name: str, model: Model) -> None:
    task = model(*CASES[name])
    assert Task.model_validate_json(task.model_dump_json()) == task


def operators(graph: Graph) -> set[str]:
    return {node.op.split(".")[1] if "." in node.op else node.op for node in graph.nodes}


def test_what_moves_memory_is_broken_down(model: Model) -> None:
    found = operators(model("def forward(self, x): return F.softmax(x, -1)").graph)
    assert found == {"input", "amax", "sub", "exp", "sum", "div"}
    found = operators(model("def forward(self, x): return F.layer_norm(x, (32,))").graph)
    assert found == {"input", "var_mean", "getitem", "add", "rsqrt", "sub", "mul"}


def test_what_libraries_do_well_stays_whole(model: Model) -> None:
    assert "lstm" in operators(model(*CASES["lstm"]).graph)
    assert "scaled_dot_product_attention" in operators(model(*CASES["sdpa"]).graph)
    found = operators(model(*CASES["conv net"]).graph)
    assert {"convolution", "addmm", "max_pool2d_with_indices"} <= found


def test_a_sum_by_index_stays_the_operator_that_repeats_itself(model: Model) -> None:
    """What torch breaks it down into adds up in changing order, on a CPU too."""
    forward = "def forward(self, x, i): return torch.zeros(4, 8).index_add_(0, i, x, alpha=2)"
    found = operators(model(forward, "[torch.randn(6, 8), torch.randint(0, 4, (6,))]").graph)
    assert "index_add" in found
    assert "index_put" not in found


def test_training_batch_norm_updates_its_statistics(model: Model) -> None:
    task = model(*CASES["batch norm"])
    targets = {mutation.target for mutation in task.graph.mutations}
    assert targets == {"n.running_mean", "n.running_var", "n.num_batches_tracked"}
    assert task.training
    assert any("the forward updates" in words for words in task.warnings)


def test_dropout_in_training_draws_random_numbers(model: Model) -> None:
    forward = "def forward(self, x): return self.d(x)"
    task = model(forward, "[torch.randn(4, 4)]", "self.d = nn.Dropout(0.5)")
    assert task.draws_random
    assert any("random" in words for words in task.warnings)
    assert not model(forward, "[torch.randn(4, 4)]", "self.d = nn.Dropout(0.5).eval()").draws_random
    assert not model(*CASES["sdpa"]).draws_random


def test_nested_outputs_are_flattened(model: Model) -> None:
    task = model(*CASES["nested tuple"])
    assert task.graph.output_structure == "tuple"
    assert [spec.shape for spec in task.outputs] == [(8, 16), (8, 16), ()]


def test_strides_of_inputs_are_kept(model: Model) -> None:
    task = model(*CASES["transposed input"])
    assert task.inputs[0].tensor is not None
    assert task.inputs[0].tensor.strides == (1, 8)


def test_a_copy_of_a_leaf_stays_where_a_view_of_it_is_returned(model: Model) -> None:
    """Without it the caller would be handed the weight, or the buffer as it is after the call."""
    said = "def forward(self, x): return {}"
    buffer = "self.register_buffer('seen', torch.zeros(8, 8))"
    changed = (
        "def forward(self, x):\n    y = self.seen.clone()\n    self.seen += 1\n    return y.t()"
    )
    for text in (
        said.format("self.seen.clone().t()"),
        said.format("x.clone().chunk(2)[1]"),
        changed,
    ):
        assert "aten.clone.default" in ops_of(model(text, "[torch.randn(8, 8)]", buffer))
    for text in ("(x * 2).clone().t()", "x.clone().t() + 1", "x.t()"):
        task = model(said.format(text), "[torch.randn(8, 8)]")
        assert "aten.clone.default" not in ops_of(task)


@pytest.mark.parametrize(
    "made",
    [
        "torch.empty_like(x.transpose(0, 1))",
        "torch.empty_strided((6, 4), (1, 6))",
        "x.new_empty(6, 4)",
    ],
)
def test_what_is_made_to_be_written_to_is_one_operator(
    made: str, model: Model, run_graph: RunGraph
) -> None:
    forward = f"""
def forward(self, x):
    y = {made}
    for i in range(6):
        y[i] = x[:, i] * (i + 1)
    return y
"""
    task = model(forward, "[torch.randn(4, 6)]")
    assert not [op for op in ops_of(task) if "empty" in op]
    (x,) = draw(task, "task", 1, "cpu")
    (got,), _ = run_graph(task.graph, (x,), {})
    torch.testing.assert_close(got, x.T * torch.arange(1.0, 7)[:, None])


def ops_of(task: Task) -> list[str]:
    return [node.op for node in task.graph.nodes]


def test_small_constants_become_full_and_others_carry_their_bytes(model: Model) -> None:
    graph = model(*CASES["baked in"]).graph
    assert any(node.op == "aten.full.default" for node in graph.nodes)
    assert [node.target for node in graph.nodes if node.op == "constant"]
    assert {n.target for n in graph.nodes if n.op == "weight"} >= {"scale", "ramp"}


def test_every_weight_of_the_graph_is_a_weight_of_the_task(model: Model) -> None:
    for name in ("tied weights", "baked in", "weight norm", "buffers"):
        task = model(*CASES[name])
        listed = {weight.name for weight in task.weights}
        assert {node.target for node in task.graph.nodes if node.target} <= listed


def test_huge_inputs_are_traced_without_being_made(model: Model) -> None:
    task = model(
        "def forward(self, x, i): return torch.softmax(x, -1), i * 2",
        "[torch.rand(1 << 20, 1 << 17) * 2 - 1, torch.randint(3, 70, (1 << 30, 64))]",
    )
    assert task.bytes_moved > 2**39
    assert task.inputs[0].minimum == pytest.approx(-1, abs=0.01)
    assert (task.inputs[1].minimum, task.inputs[1].maximum) == (3, 69)
