"""Regions of small models: what they are made of, which are equal, and their files."""

import textwrap
import weakref
from functools import cache

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.tools.candidates.plan.vocabulary import ADMITTED
from kernelwright.tools.tasks import Reference, draw, trace
from kernelwright.tools.tasks.outline import outline_of
from kernelwright.tools.tasks.regions import find_regions, in_order, model_regions, region_source
from kernelwright.tools.tasks.regions.work import operations
from kernelwright.tools.types import DType, Task, TracePolicy
from kernelwright.tools.types.graph import Node, Ref, Scalar, TensorSpec
from kernelwright.tools.types.outline import Outline, Region

HEADER = """
import torch
import torch.nn.functional as F
from torch import nn

"""
STACK = """
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x):
            return x + self.down(F.gelu(self.up(self.norm(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
            self.steps = nn.Parameter(torch.arange(16.0))

        def forward(self, x):
            return self.blocks(x * self.steps).topk(3)

    def get_inputs():
        return [torch.randn(6, 16)]
"""


@pytest.fixture(scope="module")
def outlined(tmp_path_factory):
    @cache
    def make(text: str) -> tuple[Task, Outline, Reference, list[object]]:
        path = tmp_path_factory.mktemp("regions") / "model.py"
        path.write_text(HEADER + textwrap.dedent(text))
        task = trace(path.read_text(), str(path), TracePolicy())
        assert isinstance(task, Task), task
        reference = Reference.build(task, "cpu")
        arguments = list(draw(task, "task", 0, "cpu"))
        return task, outline_of(reference, task, arguments, ADMITTED), reference, arguments

    return make


def test_layers_more_are_no_classes_more(outlined):
    counts = {}
    for layers in (2, 3):
        _, outline, _, _ = outlined(STACK.replace("LAYERS", str(layers)))
        found = model_regions(outline, lambda moved, operations: 0.0)
        counts[layers] = {item.words: len(item.regions) for item in found.classes}
        assert {kind.words for kind in found.left} == {"linear", "topk"}
        shares = sum(item.share for item in (*found.classes, *found.left))
        assert shares == pytest.approx(1.0, abs=0.2)  # views take the rest
    assert counts[2] == {"mul, layer_norm": 1, "gelu": 2, "add, layer_norm": 1, "add": 1}
    assert counts[3] == {"mul, layer_norm": 1, "gelu": 3, "add, layer_norm": 2, "add": 1}


def test_regions_in_files_of_their_own_make_the_whole(outlined):
    _, outline, reference, arguments = outlined(STACK.replace("LAYERS", "3"))
    values: dict[str, object] = dict(zip(outline.graph.inputs, arguments, strict=True))
    weights = reference.weights()
    for unit in in_order(outline.graph, find_regions(outline.graph)):
        if isinstance(unit, Region):
            values |= _carried_out(outline, unit, values)
        elif unit.op == "weight":
            values[unit.name] = weights[str(unit.target)]
        elif unit.op == "getitem":
            values[unit.name] = values[unit.args[0].node][unit.args[1].value]
        elif unit.op != "input":
            given = [values[a.node] if a.kind == "ref" else _plain(a) for a in unit.args]
            packet, overload = unit.op.split(".")[1:]
            values[unit.name] = getattr(getattr(torch.ops.aten, packet), overload)(*given)
    for name, right in zip(outline.graph.outputs, reference.forward(arguments), strict=True):
        torch.testing.assert_close(values[name], right)


def _plain(arg):
    return [_plain(item) for item in arg.items] if arg.kind == "list" else arg.value


def _carried_out(outline: Outline, region: Region, values: dict[str, object]) -> dict[str, object]:
    scope: dict[str, object] = {}
    exec(region_source(outline, region, 'a "region"'), scope)
    module = scope["Model"]()
    drawn = scope["get_inputs"]()
    for number, name in enumerate(region.weights):
        getattr(module, f"w{number}").data = values[name]
    given = [values[name] for name in region.inputs]
    assert [(x.shape, x.dtype, x.stride()) for x in drawn] == [
        (x.shape, x.dtype, x.stride()) for x in given
    ]
    with torch.no_grad():
        made = module(*given)
    return dict(zip(region.outputs, made if isinstance(made, tuple) else (made,), strict=True))


def test_products_begin_regions_where_our_kernels_compute_them(outlined):
    _, outline, _, _ = outlined(STACK.replace("LAYERS", "3"))
    found = model_regions(outline, lambda moved, operations: 0.0, joined=True)
    counts = {item.words: len(item.regions) for item in found.classes}
    assert counts == {
        "mul, layer_norm": 1,
        "linear, gelu": 3,
        "linear, add, layer_norm": 2,
        "linear, add": 1,
    }
    assert {kind.words for kind in found.left} == {"topk"}


def test_values_of_one_sign_keep_it(outlined):
    text = """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
                self.eval()

            def forward(self, x, at):
                return F.relu(self.norm(self.first(x))).flatten(1)[:, at]

        def get_inputs():
            return [torch.randn(2, 2, 8, 8), torch.randint(0, 7, (5,))]
    """
    _, outline, _, _ = outlined(text)
    (region,) = find_regions(outline.graph)
    scope: dict[str, object] = {}
    exec(region_source(outline, region, "norm"), scope)
    module = scope["Model"]()
    spread = next(w for w in module.parameters() if w.mean() > 0.5)
    assert bool((spread > 0).all())
    at = next(x for x in scope["get_inputs"]() if x.dtype is torch.int64)
    assert 0 <= int(at.min()) <= int(at.max()) < 7
    made = module(*scope["get_inputs"]())
    assert bool(torch.isfinite(made).all())


def test_values_are_drawn_as_wide_as_they_are(outlined):
    text = """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale, self.shift = nn.Parameter(torch.ones(64)), nn.Parameter(torch.zeros(64))

            def forward(self, x, values):
                chances = torch.softmax(x, -1).sort(-1).values
                return (chances * 2) @ values * self.scale + self.shift

        def get_inputs():
            return [torch.randn(16, 1000), torch.randn(1000, 64) * 1e-3]
    """
    _, outline, _, _ = outlined(text)
    regions = find_regions(outline.graph)
    scopes: list[dict[str, object]] = [{} for _ in regions]
    for region, scope in zip(regions, scopes, strict=True):
        exec(region_source(outline, region, "some"), scope)
    drawn = [x for scope in scopes for x in scope["get_inputs"]()]
    (chances,) = (x for x in drawn if x.shape == (16, 1000) and bool((x >= 0).all()))
    assert chances.sum(-1) == pytest.approx(1.0, abs=0.2)  # 40, were the least width 0.05
    weights = [w for scope in scopes for w in scope["Model"]().parameters()]
    assert len(weights) == 2
    assert all(0.02 < float(w.std()) < 0.08 for w in weights)  # they are equal in the model


def test_what_is_returned_by_name_is_outlined_too(outlined):
    text = """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

            def forward(self, x):
                h = torch.relu(self.first(x))
                return {"out": self.second(h), "hidden": h}

        def get_inputs():
            return [torch.randn(4, 8)]
    """
    _, outline, reference, arguments = outlined(text)
    assert len(outline.graph.outputs) == len(reference.forward(arguments)) == 2
    assert [len(region.nodes) for region in find_regions(outline.graph)] == [1]


def test_the_floor_of_a_region_counts_what_its_product_computes(outlined):
    _, outline, _, _ = outlined(STACK.replace("LAYERS", "3"))
    found = model_regions(outline, lambda moved, operations: float(operations), joined=True)
    counts = {item.words: item.floor_ms / len(item.regions) for item in found.classes}
    assert counts["linear, gelu"] == 2 * 6 * 32 * 16 + 6 * 32
    assert counts["linear, add"] == 2 * 6 * 16 * 32 + 6 * 16


def test_torch_compile_is_taken_to_keep_products_and_to_fuse_all_else(outlined):
    _, outline, _, _ = outlined(STACK.replace("LAYERS", "3"))
    found = model_regions(outline, lambda moved, operations: 0.0, joined=True)
    by_words = {item.words: item for item in found.classes}
    alone = by_words["linear, add"]
    assert alone.compiled_ms == pytest.approx(alone.time_ms)  # nothing to fuse with one another
    norm = by_words["linear, add, layer_norm"]
    assert 0.0 < norm.compiled_ms < norm.time_ms
    times = {item.name: item.time_ms for item in outline.seen}
    longest = sum(
        sum(times[n] for n in region.nodes if "linear" in n)
        + max(times[n] for n in region.nodes if "linear" not in n)
        for region in norm.regions
    )
    assert norm.compiled_ms == pytest.approx(longest)


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("scaled_dot_product_attention", (None, 0.0)),
        ("_scaled_dot_product_flash_attention", (0.0,)),
        ("_scaled_dot_product_flash_attention_for_cpu", (0.0,)),
        ("_scaled_dot_product_efficient_attention", (None, True, 0.0)),
        ("_scaled_dot_product_cudnn_attention", (None, True, 0.0)),
    ],
)
def test_causal_attention_computes_half_wherever_its_operator_says_so(name, before):
    schema = getattr(torch.ops.aten, name).default._schema
    at = [argument.name for argument in schema.arguments].index("is_causal")
    assert at == 3 + len(before)
    spec = TensorSpec(shape=(2, 4, 16, 8), dtype=DType.FLOAT32)
    given = {one: Node(name=one, op="input", out=(spec,)) for one in "qkv"}

    def counted(*flags):
        args = (*(Ref(node=one) for one in "qkv"), *(Scalar(value=one) for one in flags))
        return operations(Node(name="a", op=f"aten.{name}.default", args=args, out=(spec,)), given)

    assert counted(*before) == counted(*before, False) == 2 * 2 * 4 * 16 * 16 * (8 + 8)
    assert counted(*before, True) == counted(*before) // 2


def test_a_region_holds_no_value_longer_than_it_is_read(outlined):
    """The names of a backward of twelve layers would hold 40 GB of scores' gradients."""
    text = """
        class Model(nn.Module):
            def forward(self, x):
                for _ in range(6):
                    x = torch.sigmoid(x) * torch.tanh(x)
                return x

        def get_inputs():
            return [torch.randn(256, 256)]
    """
    _, outline, _, _ = outlined(text)
    (region,) = find_regions(outline.graph)
    scope: dict[str, object] = {}
    exec(region_source(outline, region, "a chain"), scope)
    alive, most = 0, 0

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal alive, most
            made = func(*args, **(kwargs or {}))
            alive, most = alive + 1, max(most, alive + 1)
            weakref.finalize(made, gone)
            return made

    def gone():
        nonlocal alive
        alive -= 1

    with torch.no_grad(), Watched():
        scope["Model"]()(*scope["get_inputs"]())
    assert most <= 4, most
